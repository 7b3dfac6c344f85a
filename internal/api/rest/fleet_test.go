package rest

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// twoServers are a server that serves, and one that does not answer. The first has the thread t1 of acme/ann.
type twoServers struct{ err error }

func (f twoServers) Servers(context.Context) ([]overview.ServerStatus, error) {
	now := time.Unix(1_800_000_000, 0).UTC()
	levels := metrics.Levels{Sandboxes: map[sandbox.State]int{sandbox.Running: 2, sandbox.Paused: 1}, Execs: 4, Pools: []metrics.Pool{{Template: "base", Waiting: 1, Target: 3}}}
	report := overview.NewReport("1.2.3", true, 5, levels)
	return []overview.ServerStatus{
		{ID: "r1", This: true, State: overview.Draining, StartedAt: now, SeenAt: &now, Slot: 1, Report: &report},
		{ID: "r2", State: overview.Silent, StartedAt: now, Slot: 2},
	}, f.err
}

func (f twoServers) Holder(t sandbox.Thread) (string, error) {
	if t == (sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, ID: "t1"}) {
		return "r1", f.err
	}
	return "", f.err
}

// TestServers: an operator sees all servers, and which of them has a thread of its own tenant.
func TestServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	with := func(f overview.Fleet) http.Handler {
		return handler(t, w, func(o *Options) { o.Keys, o.Anonymous, o.Fleet = w, nil, f })
	}
	h := with(twoServers{})
	ask := func(query string) (ids []string) {
		t.Helper()
		m := decodeBody(t, send(h, "GET", "/api/servers"+query, "", "X-API-Key: root"))
		for _, item := range m["items"].([]any) {
			one, _ := item.(map[string]any)
			id, _ := one["id"].(string)
			ids = append(ids, id)
			report, _ := one["report"].(map[string]any)
			if id == "r2" && (one["state"] != "silent" || report != nil || one["seen_at"] != nil) {
				t.Errorf("%v", one)
			}
			if id == "r1" && (one["this"] != true || one["state"] != "draining" || report["version"] != "1.2.3" || report["threads"] != 5.0 || report["execs"] != 4.0 ||
				report["sandboxes"].(map[string]any)["paused"] != 1.0 || report["pools"].([]any)[0].(map[string]any)["target"] != 3.0) {
				t.Errorf("%v", one)
			}
		}
		return ids
	}
	for query, want := range map[string][]string{
		"": {"r1", "r2"}, "?limit=1": {"r1"}, "?limit=1&cursor=r1": {"r2"},
		"?thread=t1&user=ann": {"r1"}, "?thread=t1": nil, "?thread=t2&user=ann": nil, "?thread=t1&user=bob": nil,
	} {
		if got := ask(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	wantProblem(t, send(h, "GET", "/api/servers?thread=..%2Fx", "", "X-API-Key: root"), http.StatusBadRequest, "invalid")
	wantProblem(t, send(h, "GET", "/api/servers?thread=t1&user=a%3Ab", "", "X-API-Key: root"), http.StatusBadRequest, "invalid")
	wantProblem(t, send(h, "GET", "/api/servers", "", "X-API-Key: ann"), http.StatusForbidden, "forbidden")
	wantProblem(t, send(with(twoServers{sandbox.Errorf(sandbox.Internal, "no disk")}), "GET", "/api/servers", "", "X-API-Key: root"), http.StatusInternalServerError, "internal")
	wantProblem(t, send(with(nil), "GET", "/api/servers", "", "X-API-Key: root"), http.StatusNotImplemented, "not_supported")
}

// TestTemplates: operators see which image a template has, and callers what is in it.
func TestTemplates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w, func(o *Options) {
		o.Keys, o.Anonymous = w, nil
		o.SBOM = func(_ context.Context, template string) ([]byte, error) {
			if template != "base" {
				return nil, sandbox.Errorf(sandbox.NotFound, "there is no template %q", template)
			}
			return []byte(`{"bomFormat":"CycloneDX"}`), nil
		}
	})
	for key, want := range map[string]any{"root": "image-of-base", "ann": nil} {
		m := decodeBody(t, send(h, "GET", "/api/templates", "", "X-API-Key: "+key))
		if one, _ := m["items"].([]any)[0].(map[string]any); one["name"] != "base" || one["image"] != want {
			t.Errorf("%s: %v", key, one)
		}
	}
	rec := send(h, "GET", "/api/templates/base/sbom", "", "X-API-Key: ann")
	if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != sbomType || rec.Body.String() != `{"bomFormat":"CycloneDX"}` {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	wantProblem(t, send(h, "GET", "/api/templates/none/sbom", "", "X-API-Key: ann"), http.StatusNotFound, "not_found")
	wantProblem(t, send(handler(t, w), "GET", "/api/templates/base/sbom", ""), http.StatusNotImplemented, "not_supported")
}
