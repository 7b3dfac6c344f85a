package orchestrator

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/execution/run"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// patient is a sandboxd whose exec runs until it is let end, and that hears of holds.
type patient struct {
	daemon
	end chan struct{}

	mu    sync.Mutex
	holds []uint32
}

func (p *patient) HoldDeadline(_ context.Context, req *connect.Request[sandboxv1.HoldDeadlineRequest]) (*connect.Response[sandboxv1.HoldDeadlineResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, req.Msg.GetForMs())
	return connect.NewResponse(&sandboxv1.HoldDeadlineResponse{}), nil
}

func (p *patient) Run(ctx context.Context, req *connect.Request[sandboxv1.RunRequest], out *connect.ServerStream[sandboxv1.Event]) error {
	if err := out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}); err != nil {
		return err
	}
	select {
	case <-p.end:
	case <-ctx.Done():
		return ctx.Err()
	}
	return out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{}}}})
}

// started starts an exec with a deadline of a second and waits until it runs.
func startedExec(t *testing.T, h *house) string {
	t.Helper()
	id, err := h.Runs.RunCommand(t.Context(), caller, "t", sandbox.Command{Shell: "x", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.execs.Find(id).WaitBegun(t.Context()); err != nil {
		t.Fatal(err)
	}
	return id
}

// holdsOf hold the deadlines of the execs of a house, for most altogether.
func holdsOf(t *testing.T, h *house, most time.Duration) *run.Holds {
	holds := run.NewHolds(run.HoldOptions{Execs: h.execs, Live: h.live, Most: most, Log: h.options.Log})
	t.Cleanup(holds.Close)
	return holds
}

// TestApprovalHoldsTheDeadline: an exec whose call waits for a person outlives its own deadline, and those who follow
// it hear why.
func TestApprovalHoldsTheDeadline(t *testing.T) {
	t.Parallel()
	p := &patient{end: make(chan struct{})}
	h := newHouseWith(t, p, noTools{}, func(o *Options) { o.Tools.ApprovalWait = time.Minute })
	id := startedExec(t, h)
	a := sandbox.Approval{ID: "a1", State: sandbox.ApprovalPending, Exec: id, Tool: "fs__write", Arguments: []byte(`{"secret":1}`)}
	holds := holdsOf(t, h, time.Minute)
	over := holds.ApprovalWaits(t.Context(), a)
	second := holds.ApprovalWaits(t.Context(), a)
	time.Sleep(time.Second + run.UnansweredGrace + time.Second) // its deadline has passed here, too
	a.State = sandbox.ApprovalApproved
	over(a)
	second(a)
	close(p.end)
	res, err := h.Execs.Wait(t.Context(), caller, "t", id)
	if err != nil || res.Status != sandbox.StatusExited {
		t.Errorf("%+v, %v", res, err)
	}
	var events []sandbox.EventType
	if err := h.Execs.Events(t.Context(), caller, "t", id, 0, func(ev sandbox.Event) error {
		events = append(events, ev.Type)
		if ev.Approval != nil && (ev.Approval.ID != "a1" || ev.Approval.Arguments != nil) {
			t.Errorf("%+v", ev.Approval)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	want := []sandbox.EventType{"started", "approval_required", "approval_required", "approval_decided", "approval_decided", "exit"}
	if !slices.Equal(events, want) {
		t.Errorf("events %v", events)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		holds := slices.Clone(p.holds)
		p.mu.Unlock()
		if len(holds) > 1 && holds[0] > 0 && holds[len(holds)-1] == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("sandboxd heard %v", holds)
		}
	}
}

// TestHoldsHaveABound: with all its holds used up, an exec ends at its deadline, whatever waits.
func TestHoldsHaveABound(t *testing.T) {
	t.Parallel()
	p := &patient{end: make(chan struct{})}
	h := newHouseWith(t, p, noTools{}, func(o *Options) { o.Tools.ApprovalWait = 200 * time.Millisecond })
	id := startedExec(t, h)
	over := holdsOf(t, h, 200*time.Millisecond).ApprovalWaits(t.Context(), sandbox.Approval{ID: "a1", Exec: id})
	defer over(sandbox.Approval{})
	res, err := h.Execs.Wait(t.Context(), caller, "t", id)
	if err != nil || res.Status != sandbox.StatusTimeout {
		t.Errorf("%+v, %v", res, err)
	}
}
