package orchestrator

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// While a call of an exec waits for a person, the exec's deadline is held: ours, and sandboxd's, which is told every
// few seconds, so that nothing is held any more when this server dies. Ours is held a little longer each time: it must
// never pass before sandboxd's. All holds of one exec have a bound; code beside the wait goes on, and gains no more.
const (
	heldFor     = 15 * time.Second // at a time
	holdAgain   = 5 * time.Second
	heldBeyond  = 10 * time.Second // by us
	tellTimeout = 4 * time.Second  // for sandboxd to hear it
	// heldAtMost is behind all other bounds.
	heldAtMost = 2 * sandbox.MaxApprovalWait
	// maxApprovalEvents bounds those of one exec.
	maxApprovalEvents = 1000
	// reportEvery is how often a client of /mcp hears that its call waits.
	reportEvery = time.Second
)

// held is how the deadline of an exec is held. It is guarded by the exec's mu.
type held struct {
	clock   *deadline.Clock // of this server's own deadline; nil before the exec runs
	waits   int             // calls that wait for people
	kept    bool            // keepHeld runs
	spent   time.Duration
	changed chan struct{} // holds a token: waits is another one
	events  int
}

// watchedCall is the key, in a context, of who listens to the progress of a call of the agent's own.
type watchedCall struct{}

// ApprovalWaits tells those who listen that a call waits for a person, and holds the deadline of its exec. over is to be
// called once, with how that ended.
func (r *Orchestrator) ApprovalWaits(ctx context.Context, a sandbox.Approval) (over func(sandbox.Approval)) {
	if a.Exec == "" {
		return reportWait(ctx, a)
	}
	e := r.execs.find(a.Exec)
	if e == nil {
		return func(sandbox.Approval) {}
	}
	r.hold(e)
	e.approvalEvent(ctx, sandbox.EventApprovalRequired, a)
	return func(a sandbox.Approval) {
		e.approvalEvent(ctx, sandbox.EventApprovalDecided, a)
		e.mu.Lock()
		e.held.waits--
		e.held.tell()
		e.mu.Unlock()
	}
}

func (h *held) tell() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// approvalEvent adds an event about a request, after the one that says that the exec started.
func (e *execution) approvalEvent(ctx context.Context, typ sandbox.EventType, a sandbox.Approval) {
	ctx, cancel := deadline.Detached(ctx, tellTimeout)
	defer cancel()
	_ = e.waitBegun(ctx) // it has: its code makes the call
	a.Arguments, a.Annotations = nil, nil
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.result != nil || e.err != nil || e.held.events >= maxApprovalEvents {
		return
	}
	e.held.events++
	e.addLocked(sandbox.Event{Type: typ, Time: time.Now().UTC(), Approval: &a})
}

// hold counts a call that waits, and has somebody hold the deadline.
func (r *Orchestrator) hold(e *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.held
	if h.changed == nil {
		h.changed = make(chan struct{}, 1)
	}
	h.waits++
	if !h.kept && h.clock != nil && e.result == nil {
		h.kept = true
		r.wg.Go(func() { r.keepHeld(e) })
	}
	h.tell()
}

// keepHeld holds the deadline of e as long as calls of it wait.
func (r *Orchestrator) keepHeld(e *execution) {
	inst := r.find(e.thread)
	if inst == nil {
		return
	}
	inst.Waiting(+1)
	defer inst.Waiting(-1)
	for {
		e.mu.Lock()
		clock, left := e.held.clock, r.o.ApprovalWait-e.held.spent
		holds := e.held.waits > 0 && left > 0 && e.result == nil
		e.mu.Unlock()
		if !holds {
			if r.letGo(inst, e, clock) {
				return
			}
			continue
		}
		began, lease := time.Now(), min(heldFor, left)
		clock.Hold(lease + heldBeyond)
		if err := holdDeadline(r.ctx, inst, e, lease); err != nil {
			r.o.Log.Warn("a deadline is not held", "exec", e.id, "error", err)
		}
		select {
		case <-e.held.changed:
		case <-time.After(min(holdAgain, left)):
		case <-r.ctx.Done(): // the holds end by themselves
			return
		}
		e.mu.Lock()
		e.held.spent += time.Since(began)
		e.mu.Unlock()
	}
}

func holdDeadline(ctx context.Context, inst *instance.Instance, e *execution, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	return inst.Client.HoldDeadline(ctx, e.id, d)
}

// letGo lets the deadline of e go on, and reports whether it stays so. When sandboxd cannot be told, its ownership ends by
// itself, and ours after it.
func (r *Orchestrator) letGo(inst *instance.Instance, e *execution, clock *deadline.Clock) bool {
	if err := holdDeadline(r.ctx, inst, e, 0); err == nil {
		clock.Go()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held.kept = e.held.waits > 0 && e.held.spent < r.o.ApprovalWait && e.result == nil
	return !e.held.kept
}

// reportWait tells the client of an agent's own call that it waits, so that it does not give up.
func reportWait(ctx context.Context, a sandbox.Approval) (over func(sandbox.Approval)) {
	progress, _ := ctx.Value(watchedCall{}).(func(sandbox.ToolProgress))
	if progress == nil {
		return func(sandbox.Approval) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		// Progress only grows, and the tool's own comes after: these steps are tiny.
		for step := 1e-6; ; step += 1e-6 {
			progress(sandbox.ToolProgress{Progress: step, Message: "waiting for the approval " + a.ID})
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func(sandbox.Approval) {
		cancel()
		wg.Wait()
	}
}
