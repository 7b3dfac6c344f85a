package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// drain begins to drain and returns when new work is refused.
func (h *house) drain(t *testing.T, ctx context.Context) (done chan struct{}) {
	t.Helper()
	done = make(chan struct{})
	go func() {
		defer close(done)
		h.Shutdown.Drain(ctx)
	}()
	eventually(t, "it drains", h.Shutdown.Draining)
	return done
}

func TestDrainWaitsAndRefuses(t *testing.T) {
	t.Parallel()
	g := newGate()
	h := newHouseOf(t, g, places(1, lifecycle.Bounds{Queue: 5, QueueTime: time.Minute}))
	e := h.background(t, "x")
	queued := make(chan error, 1)
	go func() {
		_, err := h.exec(t, "waits", time.Minute)
		queued <- err
	}()
	h.waitFor(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := h.drain(t, ctx)
	if err := <-queued; !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("one that waited for a place: %v", err)
	}
	_, execErr := h.exec(t, "x", time.Minute)
	_, acquireErr := h.Starts.Acquire(ctx, caller, "x", sandbox.AcquireOptions{})
	_, toolErr := h.Calls.CallTool(ctx, caller, "x", sandbox.ToolRef{}, nil)
	fileErr := h.Files.ChangeFiles(ctx, caller, "x", audit.ActionFileMkdir, "/mnt/user-data/workspace/d", func(*paths.FS) (int64, error) { return 0, nil })
	for what, err := range map[string]error{"exec": execErr, "acquire": acquireErr, "tool call": toolErr, "file": fileErr} {
		if !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := h.Threads.Thread(ctx, caller, "x"); err != nil {
		t.Errorf("looking: %v", err)
	}
	select {
	case <-done:
		t.Fatal("the drain did not wait for an exec that runs")
	case <-time.After(100 * time.Millisecond):
	}
	close(g.open)
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the drain goes on without an exec")
	}
	if res, err := h.Execs.Wait(ctx, caller, "x", e); err != nil || res.Status != sandbox.StatusExited {
		t.Errorf("%+v, %v", res, err)
	}
	if got := h.records(t, audit.ActionServerDrain); got["ok: 1 execs ran, 0 were ended, 0 left"] != 1 {
		t.Errorf("records: %v", got)
	}
	if left, err := h.driver.List(ctx, nil); err != nil || len(left) != 1 {
		t.Errorf("the sandbox does not go on: %v, %v", left, err)
	}
}

// TestDrainEnds: what runs longer than the drain is killed, and who follows it sees that.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	h := newHouseOf(t, newGate())
	e := h.background(t, "x")
	events := make(chan sandbox.Event, 10)
	go func() {
		defer close(events)
		err := h.Execs.Events(context.Background(), caller, "x", e, 0, func(ev sandbox.Event) error { events <- ev; return nil })
		if err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	h.Shutdown.Drain(ctx)
	var last sandbox.Event
	for ev := range events {
		last = ev
	}
	if last.Type != sandbox.EventExit || last.Result.Status != sandbox.StatusKilled {
		t.Errorf("the last event is %+v", last)
	}
	list, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: "t", Exec: e})
	if err != nil || len(list) != 2 || list[0].Outcome != "killed" || list[0].Detail != "the server stopped" {
		t.Errorf("records: %+v, %v", list, err)
	}
	if got := h.records(t, audit.ActionServerDrain); got["ok: 1 execs ran, 1 were ended, 0 left"] != 1 {
		t.Errorf("records: %v", got)
	}
}

// TestDrainAtOnce: a drain that is cancelled waits for nothing, and one whose execs cannot be ended is bounded.
func TestDrainAtOnce(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"cancelled": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			g.deaf = deaf
			h := newHouseOf(t, g)
			h.background(t, "x")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if !deaf {
				cancel()
			}
			began := time.Now()
			h.Shutdown.Drain(ctx)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if n := h.execs.Running(); n != 1 {
				t.Errorf("%d run", n)
			}
			close(g.open)
			eventually(t, "it ends by itself", func() bool { return h.execs.Running() == 0 })
		})
	}
}

// TestReap: what no record names is removed when it is old enough, and what is used is not.
func TestReap(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	ctx := t.Context()
	h.mustExec(t, "known")
	known := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "known"})
	spec := h.hooks.ThreadSpec(known)
	spec.ID = sandbox.NewID()
	if _, err := h.driver.Create(ctx, spec); err != nil { // as a server that died left it
		t.Fatal(err)
	}
	folder := func(id sandbox.ID, age time.Duration) string {
		dir := filepath.Join(h.runRoot, string(id))
		if err := os.MkdirAll(filepath.Join(dir, "sock"), 0o700); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	old, young, foreign := folder(sandbox.NewID(), time.Hour), folder(sandbox.NewID(), 0), folder("not-ours", time.Hour)
	folder(known.ID, time.Hour)
	ofOrphan := folder(spec.ID, time.Hour)
	orphans := map[sandbox.ID]time.Time{}
	h.reaper.Reconcile(orphans)
	if _, err := h.driver.Inspect(ctx, spec.ID); err != nil {
		t.Errorf("a young sandbox, which may just be starting, was removed: %v", err)
	}
	gone := func(path string) bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) }
	if !gone(old) || gone(young) || gone(foreign) || gone(string(known.Dir)) || gone(ofOrphan) {
		t.Errorf("old %t, young %t, foreign %t, known %t, of the orphan %t", gone(old), gone(young), gone(foreign), gone(string(known.Dir)), gone(ofOrphan))
	}
	h.reaper.Young = 0 // now it is old
	h.reaper.Reconcile(orphans)
	if _, err := h.driver.Inspect(ctx, spec.ID); err != nil {
		t.Errorf("an orphan that was not seen as one for a lease time was removed: %v", err)
	}
	orphans[spec.ID] = time.Now().Add(-2 * ownership.LeaseTime)
	h.reaper.Reconcile(orphans)
	if _, err := h.driver.Inspect(ctx, spec.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("the orphan: %v", err)
	}
	if _, err := h.driver.Inspect(ctx, known.ID); err != nil {
		t.Errorf("the known one: %v", err)
	}
	h.reaper.Reconcile(orphans)
	if !gone(ofOrphan) || gone(string(known.Dir)) {
		t.Error("the orphan's folder stays, or that of the known one went")
	}
	h.reaper.Young = 20 * time.Second
	if got := h.records(t, audit.ActionSandboxReap); got["ok: a sandbox without a record"] != 1 {
		t.Errorf("records: %v", got)
	}
	h.mustExec(t, "known")
}
