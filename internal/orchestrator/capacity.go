package orchestrator

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// queue lets instances wait for a slot, and callers for instances.
type queue struct {
	audit     *audit.Log
	ctx       context.Context
	lifecycle LifecycleOptions
	limits    *limits.Gate
	live      *instance.Map
	log       *slog.Logger
	metrics   *metrics.Metrics
	nudged    chan struct{}
	places    *capacity.Places
	startTime time.Duration
}

// An instance that finds no place waits in the queue of its tenant (package capacity). It is in the map all the
// while, "starting", so that many callers share one turn. The turn is kept as long as a caller waits for
// the instance; an instance that a caller was told of (202) is kept for QueueTime after the last call that asked for it.

// queueNoted is how long an instance has to wait for a place before the audit log says so.
const queueNoted = time.Second

// takePlace returns the place of a thread's new instance. It is that of the one before when that has not been
// released yet. It runs in instance.Map.Put.
func (q *queue) takePlace(t sandbox.Thread, former *instance.Instance) (*capacity.Ticket, error) {
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

// begin waits for the place of a new instance, and starts it. While it waits the thread is ours, so that all who
// ask for its sandbox come here.
func (s *Starts) begin(c sandbox.Caller, inst *instance.Instance, former *instance.Instance) {
	if !inst.Seat.Slot.Held() {
		ctx, cancel := context.WithTimeout(s.ctx, ownership.TakeTimeout)
		own, err := s.owners.Acquire(ctx, inst.Thread, "")
		cancel()
		if err != nil {
			inst.Turn.GiveUp(ownership.NotHere(err))
		} else {
			defer s.owners.Release(own)
		}
	}
	if err := s.queue.letIn(c, inst, former); err != nil {
		inst.Turn.GiveUp(err)
		s.dismiss(inst, err)
		return
	}
	if err := s.queue.awaitPlace(inst); err != nil {
		s.dismiss(inst, err)
		return
	}
	if waited := time.Since(inst.Asked); waited > queueNoted && former == nil {
		s.queue.noteQueue(c, inst, waited, nil)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.startTime)
	defer cancel()
	s.start(ctx, c, inst, former)
	s.orders.saveOrder(inst)
}

func (q *queue) awaitPlace(inst *instance.Instance) error {
	select {
	case <-inst.Seat.Slot.Granted():
	case <-inst.Turn.Unwanted():
	case <-q.ctx.Done():
		inst.Turn.GiveUp(errStopping)
	}
	return inst.Turn.Seat()
}

// dismiss takes away an instance that was never started. A sandbox that waited for it is removed: it left the pool
// when the thread took it, so nothing else knows it.
func (s *Starts) dismiss(inst *instance.Instance, err error) {
	s.queue.noteQueue(sandbox.Caller{}, inst, time.Since(inst.Asked), err)
	inst.Err = err
	if inst.Pooled == nil {
		s.teardown.leaveMap(inst)
	} else {
		inst.End(sandbox.StatusLost)
		s.teardown.remove(s.ctx, inst)
	}
	close(inst.Ready)
}

func (q *queue) noteQueue(c sandbox.Caller, inst *instance.Instance, waited time.Duration, refusal error) {
	rec := audit.About(c, inst.Thread, audit.ActionSandboxQueue, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Millis = string(inst.ID), inst.Template.Name, "ok", waited.Milliseconds()
	if refusal != nil {
		rec.Outcome, rec.Detail = "error", refusal.Error()
	}
	if _, err := q.audit.Append(context.WithoutCancel(q.ctx), rec); err != nil {
		q.log.Error("the audit log cannot be written", "error", err)
	}
}

// waitReady waits for the start of b: for d when it is not 0 (errStillStarting), else until ctx ends. Who
// waits without a d waits for QueueTime at most for a place: CapacityExceeded.
func (q *queue) waitReady(ctx context.Context, inst *instance.Instance, d time.Duration) error {
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
		wait = q.lifecycle.QueueTime
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
			q.leaveEarly(inst, "late")
			return inst.Seat.Slot.Refusal()
		case <-ctx.Done():
			q.leaveEarly(inst, "gone")
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
		}
	}
}

func (q *queue) leaveEarly(inst *instance.Instance, why string) {
	if inst.Turn.Depart(false, true) {
		q.metrics.Refused(why)
	}
}

// expireTurn gives up a turn that was promised and that no caller has asked for since.
func (q *queue) expireTurn(inst *instance.Instance, now time.Time) {
	if inst.Turn.Expire(now, q.lifecycle.QueueTime) {
		q.metrics.Refused("gone")
	}
}

// makeRoom hibernates sandboxes that were not used for ReclaimIdle, the longest unused first, as many
// as there are instances that wait for a place, less those that are ending anyway.
func (l *Lifecycle) makeRoom(now time.Time) {
	wants := l.places.Wants()
	if len(wants) == 0 || l.lifecycle.ReclaimIdle <= 0 {
		return
	}
	boxes := l.live.All()
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
				return u.Running == 0 && now.Sub(u.LastActive) > l.lifecycle.ReclaimIdle
			}) {
				need--
				l.putAwayLater(inst, audit.ActionSandboxHibernate, "room")
			}
		}
	}
}
