package findings

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/series"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// levels is a server with the levels of the test.
type levels struct{ now metrics.Levels }

func (l *levels) Points(time.Duration) ([]series.Point, time.Time) { return nil, time.Time{} }
func (l *levels) Levels() (metrics.Levels, bool)                   { return l.now, true }

// TestFindings: what is wrong with a server is found, each with what to do, and nothing is when nothing is wrong.
func TestFindings(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s, err := store.Open(ctx, store.Options{Journal: filepath.Join(dir, "state.jsonl"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit")})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	disk, err := quota.Open(ctx, quota.Options{Data: dir, Mode: quota.Off, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	now := &levels{metrics.Levels{Places: 2, Sandboxes: map[sandbox.State]int{sandbox.Running: 1}, Pools: []metrics.Pool{{Template: "base", Waiting: 1, Target: 1}}}}
	var tools error
	draining, good := false, true
	p := Parts{
		Data: dir, Disk: disk, DiskQuota: quota.Off, Store: s, Driver: memory.New(memory.Options{}), Audit: log, Levels: now,
		Tools: func() error { return tools }, TLS: func() (string, bool) { return "good until tomorrow", good }, Draining: func() bool { return draining },
	}
	look := func() map[string]string {
		t.Helper()
		var closers []func() error
		open := Open(p, func(f func() error) { closers = append(closers, f) })
		f, err := open(ctx)
		if err != nil || f.At.IsZero() {
			t.Fatalf("%+v %v", f, err)
		}
		wrong := map[string]string{}
		for _, i := range f.Items {
			if i.State != "ok" && i.Fix == "" {
				t.Errorf("nothing to do about %+v", i)
			}
			if i.State != "ok" {
				wrong[strings.TrimSuffix(i.Check+", "+i.Name, ", ")] = i.Detail
			}
		}
		for _, c := range closers {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
		return wrong
	}
	mine := []string{"state", "driver", "audit log", "capacity, sandboxes", "capacity, pool of base", "server, mcp servers", "server, tls", "server, drain"}
	well := look()
	for _, name := range mine {
		if well[name] != "" {
			t.Errorf("%s: %s, of a server that is well", name, well[name])
		}
	}
	now.now.Waiting, now.now.Pools[0].Waiting = 3, 0
	tools, draining, good = errors.New("line 3: "+strings.Repeat("x", 2*maxDetail)), true, false
	wrong := look()
	if d := wrong["disk quota"]; !strings.Contains(d, "switched off") {
		t.Errorf("disk quota: %q", d)
	}
	for _, name := range mine[3:] {
		if wrong[name] == "" {
			t.Errorf("%s is not found among %v", name, wrong)
		}
	}
	if n := len(wrong["server, mcp servers"]); n > maxDetail+8 {
		t.Errorf("%d bytes of one error", n)
	}
	now.now.Waiting, now.now.Places = 0, 1
	if d := look()["capacity, sandboxes"]; !strings.Contains(d, "1 of 1") {
		t.Errorf("a full server: %q", d)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	open := Open(p, func(f func() error) { t.Cleanup(func() { _ = f() }) })
	if _, err := open(done); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("before the first look has ended: %v", err)
	}
}
