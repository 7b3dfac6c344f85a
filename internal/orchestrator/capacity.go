package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// An instance that finds no place waits in the queue of its tenant (package capacity). It is in the map all the
// while, "starting", so that many callers share one turn. The turn is kept as long as a caller waits for
// the instance; an instance that a caller was told of (202) is kept for QueueTime after the last call that asked for it.

// queueNoted is how long an instance has to wait for a place before the audit log says so.
const queueNoted = time.Second

// takePlace returns the place of a thread's new instance. It is that of the one before when that has not been
// released yet. It runs in instance.Map.Put.
func (r *Orchestrator) takePlace(t sandbox.Thread, former *instance.Instance) (*capacity.Ticket, error) {
	if former != nil {
		if slot := former.Seat.TakeSlot(); slot != nil {
			return slot, nil
		}
	}
	ticket, err := r.places.Take(t.Tenant)
	if err != nil {
		r.o.Metrics.Refused("full")
		return nil, err
	}
	if !ticket.Held() {
		r.nudge()
	}
	return ticket, nil
}

// begin waits for the place of a new instance, and starts it. While it waits the thread is ours, so that all who
// ask for its sandbox come here.
func (r *Orchestrator) begin(c sandbox.Caller, inst *instance.Instance, former *instance.Instance) {
	if !inst.Seat.Slot.Held() {
		ctx, cancel := context.WithTimeout(r.ctx, ownership.TakeTimeout)
		own, err := r.owners.Acquire(ctx, inst.Thread, "")
		cancel()
		if err != nil {
			inst.Turn.GiveUp(ownership.NotHere(err))
		} else {
			defer r.owners.Release(own)
		}
	}
	if err := r.letIn(c, inst, former); err != nil {
		inst.Turn.GiveUp(err)
		r.dismiss(inst, err)
		return
	}
	if err := r.awaitPlace(inst); err != nil {
		r.dismiss(inst, err)
		return
	}
	if waited := time.Since(inst.Asked); waited > queueNoted && former == nil {
		r.noteQueue(c, inst, waited, nil)
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.o.StartTime)
	defer cancel()
	r.start(ctx, c, inst, former)
	r.saveOrder(inst)
}

func (r *Orchestrator) awaitPlace(inst *instance.Instance) error {
	select {
	case <-inst.Seat.Slot.Granted():
	case <-inst.Turn.Unwanted():
	case <-r.ctx.Done():
		inst.Turn.GiveUp(errStopping)
	}
	return inst.Turn.Seat()
}

// dismiss takes away an instance that was never started. A sandbox that waited for it is removed: it left the pool
// when the thread took it, so nothing else knows it.
func (r *Orchestrator) dismiss(inst *instance.Instance, err error) {
	r.noteQueue(sandbox.Caller{}, inst, time.Since(inst.Asked), err)
	inst.Err = err
	if inst.Pooled == nil {
		r.leaveMap(inst)
	} else {
		inst.End(sandbox.StatusLost)
		r.remove(r.ctx, inst)
	}
	close(inst.Ready)
}

func (r *Orchestrator) noteQueue(c sandbox.Caller, inst *instance.Instance, waited time.Duration, refusal error) {
	rec := audit.About(c, inst.Thread, audit.ActionSandboxQueue, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Millis = string(inst.ID), inst.Template.Name, "ok", waited.Milliseconds()
	if refusal != nil {
		rec.Outcome, rec.Detail = "error", refusal.Error()
	}
	if _, err := r.o.Audit.Append(context.WithoutCancel(r.ctx), rec); err != nil {
		r.o.Log.Error("the audit log cannot be written", "error", err)
	}
}

// waitReady waits for the start of b: for d when it is not 0 (errStillStarting), else until ctx ends. Who
// waits without a d waits for QueueTime at most for a place: CapacityExceeded.
func (r *Orchestrator) waitReady(ctx context.Context, inst *instance.Instance, d time.Duration) error {
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
		wait = r.o.Lifecycle.QueueTime
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
				return errStillStarting
			}
			if inst.Seat.Slot.Held() {
				continue // it starts, within StartTime
			}
			r.leaveEarly(inst, "late")
			return inst.Seat.Slot.Refusal()
		case <-ctx.Done():
			r.leaveEarly(inst, "gone")
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
		}
	}
}

func (r *Orchestrator) leaveEarly(inst *instance.Instance, why string) {
	if inst.Turn.Depart(false, true) {
		r.o.Metrics.Refused(why)
	}
}

// expireTurn gives up a turn that was promised and that no caller has asked for since.
func (r *Orchestrator) expireTurn(inst *instance.Instance, now time.Time) {
	if inst.Turn.Expire(now, r.o.Lifecycle.QueueTime) {
		r.o.Metrics.Refused("gone")
	}
}

// makeRoom hibernates sandboxes that were not used for ReclaimIdle, the longest unused first, as many
// as there are instances that wait for a place, less those that are ending anyway.
func (r *Orchestrator) makeRoom(now time.Time) {
	wants := r.places.Wants()
	if len(wants) == 0 || r.o.Lifecycle.ReclaimIdle <= 0 {
		return
	}
	boxes := r.live.All()
	slices.SortFunc(boxes, func(a, inst *instance.Instance) int { return a.LastUse().Compare(inst.LastUse()) })
	ending := map[string]int{}
	spare := 0 // ending ones whose place goes to the next in the queue
	for _, inst := range boxes {
		if inst.Ending() != "" {
			ending[inst.Thread.Tenant]++
			spare++
		}
	}
	for _, w := range wants {
		need := w.Count
		if w.Own {
			need -= ending[w.Tenant]
		} else {
			taken := min(need, spare)
			need, spare = need-taken, spare-taken
		}
		for _, inst := range boxes {
			if need <= 0 {
				break
			}
			if w.Own && inst.Thread.Tenant != w.Tenant {
				continue
			}
			if inst.BeginStop(func(u instance.Usage) bool {
				return u.Running == 0 && now.Sub(u.LastActive) > r.o.Lifecycle.ReclaimIdle
			}) {
				need--
				r.putAwayLater(inst, audit.ActionSandboxHibernate, "room")
			}
		}
	}
}
