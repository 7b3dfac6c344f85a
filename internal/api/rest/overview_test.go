package rest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/series"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// kept is the series of a server.
type kept struct{}

func (kept) Points(step time.Duration) ([]series.Point, time.Time) {
	at := time.Unix(1_800_000_000, 0)
	one := series.Point{At: at.Add(-step), Levels: series.Levels{Running: 2}}
	return []series.Point{one, {At: at, Levels: series.Levels{Running: 3}, Counts: metrics.Counts{ToolErrors: 5}}}, at.Add(-time.Hour)
}

func (kept) Levels() (metrics.Levels, bool) {
	return metrics.Levels{Sandboxes: map[sandbox.State]int{sandbox.Running: 4}, Places: 9, Waiting: 1, Pools: []metrics.Pool{{Template: "base", Waiting: 2, Target: 3}}}, true
}

// TestOverview: an operator sees how the server goes, each series with a value for each time.
func TestOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.options(t)
	server := &overview.Server{Replica: "r1", Version: "1", Series: kept{}, Disk: func() (overview.DiskRoom, error) { return overview.DiskRoom{TotalBytes: 10, FreeBytes: 4}, nil }}
	o.Overview = server
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for window, step := range map[string]float64{"": 10, "?window=hour": 10, "?window=day": 300} {
		m := decodeBody(t, send(h, "GET", "/api/overview"+window, "", "X-API-Key: root"))
		times, _ := m["times"].([]any)
		if m["step_s"] != step || len(times) != 2 || times[1].(float64)-times[0].(float64) != step || m["replica"] != "r1" {
			t.Errorf("%s: %v", window, m)
		}
		now, _ := m["now"].(map[string]any)
		if now["sandboxes"].(map[string]any)["running"] != 4.0 || now["max_sandboxes"] != 9.0 || now["queue"] != 1.0 || m["disk"].(map[string]any)["free_bytes"] != 4.0 {
			t.Errorf("%v %v", now, m["disk"])
		}
		for _, s := range m["series"].([]any) {
			one, _ := s.(map[string]any)
			values, _ := one["values"].([]any)
			if len(values) != 2 {
				t.Errorf("%v", one)
			}
			if want := map[any]float64{"sandboxes_running": 3, "tool_errors": 5}[one["name"]]; values[1] != want {
				t.Errorf("%v, want %v", one, want)
			}
		}
	}
	wantProblem(t, send(h, "GET", "/api/overview?window=week", "", "X-API-Key: root"), http.StatusBadRequest, "invalid")
	server.Disk = func() (overview.DiskRoom, error) { return overview.DiskRoom{}, errors.New("/srv/secret: gone") }
	wantProblem(t, send(h, "GET", "/api/overview", "", "X-API-Key: root"), http.StatusInternalServerError, "internal")
	wantProblem(t, send(handler(t, newWorld(t)), "GET", "/api/overview", "", "X-API-Key: root"), http.StatusNotImplemented, "not_supported")
}

// TestExamine: an operator sees what the server found; a wait has a deadline.
func TestExamine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.options(t)
	server := &overview.Server{Series: kept{}, Examine: func(ctx context.Context) (overview.ServerFindings, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the wait has no deadline")
		}
		return overview.ServerFindings{At: time.Unix(1_800_000_000, 0).UTC(), Items: []overview.ServerFinding{{Check: "clock", State: "warning", Detail: "is wrong", Fix: "set it"}}}, nil
	}}
	o.Overview = server
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	m := decodeBody(t, send(h, "GET", "/api/doctor", "", "X-API-Key: root"))
	items, _ := m["items"].([]any)
	if len(items) != 1 || items[0].(map[string]any)["fix"] != "set it" || m["at"] != "2027-01-15T08:00:00Z" {
		t.Errorf("%v", m)
	}
	server.Examine = func(context.Context) (overview.ServerFindings, error) {
		return overview.ServerFindings{}, sandbox.Errorf(sandbox.Unavailable, "the server still looks")
	}
	wantProblem(t, send(h, "GET", "/api/doctor", "", "X-API-Key: root"), http.StatusServiceUnavailable, "unavailable")
	wantProblem(t, send(handler(t, newWorld(t)), "GET", "/api/doctor", "", "X-API-Key: root"), http.StatusNotImplemented, "not_supported")
}
