package run

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
)

// While a call of an exec waits for a person, the exec's deadline is held: ours, and sandboxd's, which is told every
// few seconds, so that nothing is held any more when this server dies. Ours is held a little longer each time: it must
// never pass before sandboxd's. All holds of one exec have a bound; code beside the wait goes on, and gains no further time.
const (
	heldFor     = 15 * time.Second // at a time
	holdAgain   = 5 * time.Second
	heldBeyond  = 10 * time.Second // by us
	tellTimeout = 4 * time.Second  // for sandboxd to hear it
	// heldAtMost is behind all other bounds.
	heldAtMost = 2 * sandbox.MaxApprovalWait
)

// HoldOptions are the parts that Holds work with.
type HoldOptions struct {
	Execs *execution.Registry
	Live  *instance.Map
	// Most is how long, altogether, an exec's deadline is held while calls of it wait for people.
	Most time.Duration
	Log  *slog.Logger
}

// Holds hold the deadlines of execs while calls of them wait for people.
type Holds struct {
	o    HoldOptions
	ctx  context.Context // ends with Close; owns every goroutine
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// NewHolds returns Holds, which the caller closes.
func NewHolds(o HoldOptions) *Holds {
	ctx, stop := context.WithCancel(context.Background())
	return &Holds{o: o, ctx: ctx, stop: stop}
}

// Close ends all holds. Execs end by their own deadlines then.
func (x *Holds) Close() {
	x.stop()
	x.wg.Wait()
}

// ApprovalWaits tells those who listen that a call waits for a person, and holds the deadline of its exec. over is to be
// called once, with how that ended.
func (x *Holds) ApprovalWaits(ctx context.Context, a sandbox.Approval) (over func(sandbox.Approval)) {
	if a.Exec == "" {
		return call.ReportWait(ctx, a)
	}
	e := x.o.Execs.Find(a.Exec)
	if e == nil {
		return func(sandbox.Approval) {}
	}
	x.hold(e)
	e.ApprovalEvent(ctx, sandbox.EventApprovalRequired, a)
	return func(a sandbox.Approval) {
		e.ApprovalEvent(ctx, sandbox.EventApprovalDecided, a)
		e.Hold.End()
	}
}

// hold counts a call that waits, and has the deadline held.
func (x *Holds) hold(e *execution.Exec) {
	if e.Hold.Begin() {
		x.wg.Go(func() { x.keepHeld(e) })
	}
}

// keepHeld holds the deadline of e as long as calls of it wait.
func (x *Holds) keepHeld(e *execution.Exec) {
	inst := e.Instance(x.o.Live)
	if inst == nil {
		return
	}
	inst.Waiting(+1)
	defer inst.Waiting(-1)
	for {
		clock, left, holds := e.Hold.Holds(x.o.Most)
		if !holds {
			if x.letGo(inst, e, clock) {
				return
			}
			continue
		}
		began, lease := time.Now(), min(heldFor, left)
		clock.Hold(lease + heldBeyond)
		if err := holdDeadline(x.ctx, inst, e, lease); err != nil {
			x.o.Log.Warn("a deadline is not held", "exec", e.ID, "error", err)
		}
		select {
		case <-e.Hold.Changed():
		case <-time.After(min(holdAgain, left)):
		case <-x.ctx.Done(): // the holds end by themselves
			return
		}
		e.Hold.Spend(time.Since(began))
	}
}

func holdDeadline(ctx context.Context, inst *instance.Instance, e *execution.Exec, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	return inst.Conn.Client.HoldDeadline(ctx, e.ID, d)
}

// letGo lets the deadline of e go on, and reports whether it stays so. When sandboxd cannot be told, its ownership ends by
// itself, and ours after it.
func (x *Holds) letGo(inst *instance.Instance, e *execution.Exec, clock *deadline.Clock) bool {
	if err := holdDeadline(x.ctx, inst, e, 0); err == nil {
		clock.Go()
	}
	return !e.Hold.Renew(x.o.Most)
}
