package contexts

import (
	"errors"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// idle returns contexts of which one is idle, "c" of thread "t".
func idle(t *testing.T) (*Contexts, *entry, sandbox.Thread) {
	t.Helper()
	x := New(Options{Registry: NewRegistry(nil, nil)})
	thread := sandbox.Thread{Owner: sandbox.Owner{Tenant: "a", User: "b"}, ID: "t"}
	e := &entry{id: "c", thread: thread, language: "python", state: sandbox.ContextIdle, inst: instance.New(thread, instance.Template{}, sandbox.Info{})}
	if err := x.add(e); err != nil {
		t.Fatal(err)
	}
	return x, e, thread
}

func TestOneRunAtATime(t *testing.T) {
	x, _, thread := idle(t)
	run, err := x.Acquire(thread, &sandbox.Code{ContextID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	x.Begin(run, "exec")
	if _, err := x.Acquire(thread, &sandbox.Code{ContextID: "c"}); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a second run: %v", err)
	}
	if out := x.End(run, ""); out.State != sandbox.ContextIdle {
		t.Errorf("%+v", out)
	}
	if _, err := x.Acquire(thread, &sandbox.Code{ContextID: "c"}); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// TestEndOfAFormerLife: a run that ends after a restart does not end the restarted context.
func TestEndOfAFormerLife(t *testing.T) {
	x, e, thread := idle(t)
	run, err := x.Acquire(thread, &sandbox.Code{ContextID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	e.life++ // as RestartContext does
	e.state = sandbox.ContextIdle
	x.mu.Unlock()
	if out := x.End(run, "it was ended"); out.State != sandbox.ContextLost {
		t.Errorf("the run is told %+v", out)
	}
	if _, err := x.Acquire(thread, &sandbox.Code{ContextID: "c"}); err != nil {
		t.Errorf("the restarted context: %v", err)
	}
}

// TestGoneWithItsSandbox: a context whose sandbox ends is lost, and does not count any more.
func TestGoneWithItsSandbox(t *testing.T) {
	x, e, thread := idle(t)
	e.inst.End(sandbox.StatusLost)
	if _, err := x.Acquire(thread, &sandbox.Code{ContextID: "c"}); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("%v", err)
	}
	if n := x.Living(thread); n != 0 {
		t.Errorf("%d live", n)
	}
}
