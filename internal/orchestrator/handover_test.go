package orchestrator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// run runs a command for a request that holds the thread, and returns its id, or the replica that is to be asked.
func (w *town) run(r *Orchestrator, thread string) (id, elsewhere string, err error) {
	elsewhere, done, err := r.Placement.Hold(w.Context(), caller, thread)
	if err != nil || elsewhere != "" {
		return "", elsewhere, err
	}
	defer done()
	id, err = r.Runs.RunCommand(w.Context(), caller, thread, sandbox.Command{Shell: "x", Timeout: time.Minute, Background: true})
	return id, "", err
}

func (w *town) mustRun(r *Orchestrator, thread string) string {
	w.Helper()
	id, elsewhere, err := w.run(r, thread)
	if err != nil || elsewhere != "" {
		w.Fatalf("run in %s: passed on to %q, %v", thread, elsewhere, err)
	}
	return id
}

// drainOf begins to drain a server.
func (w *town) drainOf(r *Orchestrator, within time.Duration) (done chan struct{}) {
	w.Helper()
	done = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), within)
	go func() {
		defer close(done)
		defer cancel()
		r.Shutdown.Drain(ctx)
	}()
	w.Cleanup(func() { cancel(); <-done })
	w.eventually("it drains", r.Shutdown.Draining)
	return done
}

func threadNamed(id string) sandbox.Thread { return sandbox.Thread{Owner: caller.Owner, ID: id} }

// TestHandOver: a server that stops hands its threads over to the other one, each when nothing runs for it; what runs ends
// where it runs, and what is new is passed on.
func TestHandOver(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newTownOf(t, g)
	a, b := w.settle("a"), w.settle("b")
	info, err := a.Starts.Acquire(t.Context(), caller, "idle", sandbox.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := w.mustRun(a, "busy")
	busy := a.live.Find(threadNamed("busy")).ID
	_, asked, err := a.Placement.Hold(t.Context(), caller, "asked") // a request that has not come to its work yet
	if err != nil {
		t.Fatal(err)
	}
	done := w.drainOf(a, time.Minute)

	w.eventually("the idle thread is handed over", func() bool { return a.live.Find(threadNamed("idle")) == nil })
	if replica, _, err := a.Placement.Hold(t.Context(), caller, "idle"); replica != "b" || err != nil {
		t.Errorf("the idle thread: %q, %v", replica, err)
	}
	if owner, err := b.Placement.Owner(t.Context(), caller, "idle"); owner != "" || err != nil {
		t.Errorf("for the other server it is held by %q, %v", owner, err)
	}
	if got := b.live.Find(threadNamed("idle")); got == nil || got.ID != info.ID {
		t.Errorf("the sandbox was not adopted: %+v", got)
	}
	second := w.mustRun(a, "busy") // something runs there, so that it is done there
	if owner, err := b.Placement.Owner(t.Context(), caller, "busy"); owner != "a" || err != nil {
		t.Errorf("the busy thread is held by %q, %v", owner, err)
	}
	if _, err := a.Starts.Acquire(t.Context(), caller, "asked", sandbox.AcquireOptions{}); err != nil {
		t.Errorf("a request that was there before: %v", err)
	}
	asked()
	if replica, _, err := a.Placement.Hold(t.Context(), caller, "new"); replica != "b" || err != nil {
		t.Errorf("a new thread: %q, %v", replica, err)
	}
	if _, err := a.Starts.Acquire(t.Context(), caller, "new", sandbox.AcquireOptions{}); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a new sandbox: %v", err)
	}
	if a.Shutdown.PassOn(t.Context()) != "b" || b.Shutdown.PassOn(t.Context()) != "" {
		t.Errorf("work of nobody goes to %q and %q", a.Shutdown.PassOn(t.Context()), b.Shutdown.PassOn(t.Context()))
	}
	select {
	case <-done:
		t.Fatal("the drain did not wait for an exec that runs")
	default:
	}
	close(g.open)
	<-done
	for _, id := range []string{first, second} {
		if res, err := a.Execs.Wait(t.Context(), caller, "busy", id); err != nil || res.Status != sandbox.StatusExited {
			t.Errorf("exec: %+v, %v", res, err)
		}
	}
	if n := len(a.owners.All()) + len(a.live.All()); n != 0 {
		t.Errorf("%d owned threads and instances are left", n)
	}
	w.mustRun(b, "busy")
	w.mustRun(b, "asked")
	if got := b.live.Find(threadNamed("busy")).ID; got != busy {
		t.Errorf("the busy thread has the sandbox %s, had %s", got, busy)
	}
	if n := w.boxes.Load(); n != 3 {
		t.Errorf("%d sandboxes were started", n)
	}
	recs, _, err := a.o.Audit.List(t.Context(), audit.Filter{Action: audit.ActionServerDrain})
	if err != nil || len(recs) != 1 || !strings.HasSuffix(recs[0].Detail, ", 3 threads were handed over") {
		t.Errorf("records: %+v, %v", recs, err)
	}
}

// TestHandOverEnds: an exec that runs for longer than the drain is killed, then its thread is handed over. Who asks
// for the thread shortly before waits for that.
func TestHandOverEnds(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newTownOf(t, g)
	a, b := w.settle("a"), w.settle("b")
	id := w.mustRun(a, "busy")
	done := w.drainOf(a, 2*time.Second)
	until := a.Shutdown.LastEntry()
	w.eventually("it takes no exec any more", func() bool { return time.Now().After(until) })
	if _, elsewhere, err := w.run(a, "busy"); elsewhere != "b" || err != nil {
		t.Errorf("a late exec: passed on to %q, %v", elsewhere, err)
	}
	<-done
	if res, err := a.Execs.Wait(t.Context(), caller, "busy", id); err != nil || res.Status != sandbox.StatusKilled {
		t.Errorf("exec: %+v, %v", res, err)
	}
	if owner, err := b.Placement.Owner(t.Context(), caller, "busy"); owner != "" || err != nil || b.live.Find(threadNamed("busy")) == nil {
		t.Errorf("the other server does not have it: %q, %v", owner, err)
	}
	close(g.open)
}

// TestNobodyToHandOverTo: without a server that takes work nothing is handed over: new work is refused, and the sandboxes
// wait for the next server.
func TestNobodyToHandOverTo(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a, b := w.settle("a"), w.settle("b")
	if _, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	<-w.drainOf(b, time.Minute)
	if replica, _, err := b.Placement.Hold(t.Context(), caller, "main"); replica != "a" || err != nil {
		t.Errorf("held by %q, %v", replica, err)
	}
	<-w.drainOf(a, time.Minute)
	if a.live.Find(mainThread) == nil {
		t.Error("the thread was handed over to nobody")
	}
	if _, _, err := a.Placement.Hold(t.Context(), caller, "new"); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a new thread: %v", err)
	}
}
