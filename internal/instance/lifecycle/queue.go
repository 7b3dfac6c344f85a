package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// An instance that finds no place waits in the queue of its tenant (package capacity). It is in the map all the
// while, "starting", so that many callers share one turn. The turn is kept as long as a caller waits for
// the instance; an instance that a caller was told of (202) is kept for QueueTime after the last call that asked for it.

// Queue lets instances wait for a slot, and callers for instances.
type Queue struct {
	audit     *audit.Log
	ctx       context.Context
	bounds    Bounds
	limits    *limits.Gate
	live      *instance.Map
	log       *slog.Logger
	metrics   *metrics.Metrics
	nudged    chan struct{}
	places    *capacity.Places
	startTime time.Duration
}

// QueueNoted is how long an instance has to wait for a place before the audit log says so.
const QueueNoted = time.Second

// TakeSlot returns the place of a thread's new instance. It is that of the one before when that has not been
// released yet. It runs in instance.Map.Put.
func (q *Queue) TakeSlot(t sandbox.Thread, former *instance.Instance) (*capacity.Ticket, error) {
	if former != nil {
		if slot := former.Seat.TakeSlot(); slot != nil {
			return slot, nil
		}
	}
	ticket, err := q.places.Take(t.Tenant)
	if err != nil {
		q.metrics.Refused("full")
		return nil, err
	}
	if !ticket.Held() {
		q.nudge()
	}
	return ticket, nil
}

// AwaitSlot waits until the instance has its slot, or no caller waits for it.
func (q *Queue) AwaitSlot(inst *instance.Instance) error {
	select {
	case <-inst.Seat.Slot.Granted():
	case <-inst.Turn.Unwanted():
	case <-q.ctx.Done():
		inst.Turn.GiveUp(ErrStopping)
	}
	return inst.Turn.Seat()
}

// Note records how long an instance waited, and why it was refused when it was.
func (q *Queue) Note(c sandbox.Caller, inst *instance.Instance, waited time.Duration, refusal error) {
	rec := audit.About(c, inst.Thread, audit.ActionSandboxQueue, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Millis = string(inst.ID), inst.Template.Name, "ok", waited.Milliseconds()
	if refusal != nil {
		rec.Outcome, rec.Detail = "error", refusal.Error()
	}
	if _, err := q.audit.Append(context.WithoutCancel(q.ctx), rec); err != nil {
		q.log.Error("the audit log cannot be written", "error", err)
	}
}

// WaitReady waits for the start of an instance: for d when it is not 0 (ErrStillStarting), else until ctx ends. A caller that
// waits without a d waits for QueueTime at most for a place: CapacityExceeded.
func (q *Queue) WaitReady(ctx context.Context, inst *instance.Instance, d time.Duration) error {
	select {
	case <-inst.Ready:
		return inst.Err
	default:
	}
	if !inst.Turn.Arrive() {
		return instance.ErrGivenUp
	}
	wait := d
	if d <= 0 {
		wait = q.bounds.QueueTime
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		select {
		case <-inst.Ready:
			inst.Turn.Depart(false, false)
			return inst.Err
		case <-late.C:
			if d > 0 {
				inst.Turn.Depart(true, false)
				return ErrStillStarting
			}
			if inst.Seat.Slot.Held() {
				continue // it starts, within StartTime
			}
			q.leaveEarly(inst, "late")
			return inst.Seat.Slot.Refusal()
		case <-ctx.Done():
			q.leaveEarly(inst, "gone")
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
		}
	}
}

func (q *Queue) leaveEarly(inst *instance.Instance, why string) {
	if inst.Turn.Depart(false, true) {
		q.metrics.Refused(why)
	}
}

// expireTurn withdraws a promised turn that no caller has asked for since.
func (q *Queue) expireTurn(inst *instance.Instance, now time.Time) {
	if inst.Turn.Expire(now, q.bounds.QueueTime) {
		q.metrics.Refused("gone")
	}
}

// ErrStopping is the answer to new work while the server stops.
var ErrStopping error = &sandbox.Error{
	Kind: sandbox.Unavailable, NotStarted: true, Detail: "this server is stopping and takes no new work; try again, it comes back or another one answers",
}

// ErrStillStarting: the caller waited as long as it wanted to, and the start goes on.
var ErrStillStarting = sandbox.Errorf(sandbox.Timeout, "the sandbox is still starting")

// nudge makes the next look come at once.
func (q *Queue) nudge() {
	select {
	case q.nudged <- struct{}{}:
	default:
	}
}

// LetIn takes a place of the limits for an instance that begins. That of the one before has to be given back first.
func (q *Queue) LetIn(c sandbox.Caller, inst, former *instance.Instance) error {
	if former != nil {
		select {
		case <-former.Gone:
		case <-time.After(q.startTime): // start says what is wrong
		case <-q.ctx.Done():
		}
	}
	p, err := q.limits.Sandbox(q.ctx, c, inst.ID)
	if err != nil {
		return err
	}
	q.live.SetLimits(inst, p)
	return nil
}

// Measure counts a start that has ended, with err or well.
func (q *Queue) Measure(inst *instance.Instance, err error) {
	i := inst.Info()
	if err != nil {
		q.metrics.StartFailed(metrics.StartOf(i), sandbox.KindOf(err))
		return
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	q.metrics.Started(metrics.StartOf(i), ms(i.Timings.Queue), ms(i.Timings.Create), ms(i.Timings.Ready))
}
