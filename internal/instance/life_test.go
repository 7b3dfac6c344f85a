package instance

import (
	"errors"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// newLife returns a life that has begun, as that of an instance which runs.
func newLife() *Life {
	l := &New(sandbox.Thread{ID: "t"}, Template{}, sandbox.Info{State: sandbox.Running}).Life
	close(l.Ready)
	return l
}

// TestLifeStopsOnce: an end that has begun keeps its first reason, and no exec comes in after it.
func TestLifeStopsOnce(t *testing.T) {
	l := newLife()
	if err := l.enter(""); err != nil {
		t.Fatal(err)
	}
	if l.BeginStop(func(u Usage) bool { return u.Running == 0 }) || l.StopIdle() {
		t.Fatal("stopped although an exec runs")
	}
	l.Leave()
	if !l.StopIdle() || l.Ending() != sandbox.StatusLost {
		t.Fatalf("not stopped: %q", l.Ending())
	}
	if l.StopAs(sandbox.StatusKilled) {
		t.Error("stopped twice")
	}
	if l.End(sandbox.StatusKilled); l.Ending() != sandbox.StatusLost {
		t.Errorf("it ends as %q", l.Ending())
	}
	if err := l.enter(""); !errors.Is(err, sandbox.SandboxLost) {
		t.Errorf("an exec came in: %v", err)
	}
}

// TestLifePaused: no exec comes into a paused sandbox, and a busy one is not paused.
func TestLifePaused(t *testing.T) {
	l := newLife()
	if done, err := l.BeginPause(); done || err != nil {
		t.Fatal(done, err)
	}
	if done, err := l.BeginPause(); !done || err != nil {
		t.Fatal(done, err)
	}
	if err := l.enter(""); !errors.Is(err, ErrPaused) {
		t.Errorf("an exec came in: %v", err)
	}
	l.ChangeState(sandbox.Paused, sandbox.Running)
	if err := l.enter(""); err != nil {
		t.Fatal(err)
	}
	if _, err := l.BeginPause(); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("paused although an exec runs: %v", err)
	}
}

// TestLifeGivenUp: the execs of an instance that is given up in the queue end as lost.
func TestLifeGivenUp(t *testing.T) {
	inst := NewStarting(sandbox.Thread{ID: "t"}, Template{}, sandbox.Info{}, map[string]string{"A": "1"})
	if !inst.Turn.GiveUp(errUnwanted) || inst.Ending() != sandbox.StatusLost {
		t.Errorf("it ends as %q", inst.Ending())
	}
	if inst.Saved.Env()["A"] != "1" || !inst.Saved.SetEnv(nil) || inst.Saved.SetEnv(nil) {
		t.Error("the environment is not what was set")
	}
}
