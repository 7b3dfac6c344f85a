package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// An instance that finds no place waits in the queue of its tenant (package capacity). It is in the map all the
// while, "starting", so that many callers share one turn. The turn is kept as long as somebody waits for
// the instance; one that a caller was told of (202) is kept for QueueTime after the last call that asked for it.

// queueNoted is how long an instance has to wait for a place before the audit log says so.
const queueNoted = time.Second

// queueTurn is the instance's part in the queue. It is guarded by instance.mu.
type queueTurn struct {
	waiters  int       // callers that wait for the instance to be ready
	promised bool      // a caller was told that it starts, and will ask again
	asked    time.Time // by whom it was last asked for
	placed   bool      // it has its place: it is not given up any more
	refusal  error     // why it was given up
	unwanted chan struct{}
}

var (
	errNobodyWaits = sandbox.Errorf(sandbox.CapacityExceeded, "nobody waits for the sandbox any more")
	// errGivenUp tells a caller who came a moment too late to ask for a new instance.
	errGivenUp = sandbox.Errorf(sandbox.CapacityExceeded, "the sandbox was given up before it started; try again")
)

// takePlace returns the place of a thread's new instance. It is that of the one before when that has not been
// given back yet. The caller holds Orchestrator.mu.
func (r *Orchestrator) takePlace(t sandbox.Thread, former *instance) (*capacity.Ticket, error) {
	if former != nil && !former.slotReleased {
		former.slotReleased = true
		return former.slot, nil
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

// givePlaceBack ends an instance's claim to its place. The caller holds Orchestrator.mu.
func givePlaceBack(inst *instance) {
	if !inst.slotReleased && inst.slot != nil {
		inst.slotReleased = true
		inst.slot.Leave()
	}
}

// begin waits for the place of a new instance, and starts it. While it waits the thread is ours, so that all who
// ask for its sandbox come here.
func (r *Orchestrator) begin(c sandbox.Caller, inst *instance, former *instance) {
	if !inst.slot.Held() {
		ctx, cancel := context.WithTimeout(r.ctx, ownership.TakeTimeout)
		own, err := r.owners.Acquire(ctx, inst.thread, "")
		cancel()
		if err != nil {
			inst.giveUp(ownership.NotHere(err))
		} else {
			defer r.owners.Release(own)
		}
	}
	if err := r.letIn(c, inst, former); err != nil {
		r.turnAway(inst, err)
		return
	}
	if err := r.awaitPlace(inst); err != nil {
		r.dismiss(inst, err)
		return
	}
	if waited := time.Since(inst.asked); waited > queueNoted && former == nil {
		r.noteQueue(c, inst, waited, nil)
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.o.StartTime)
	defer cancel()
	r.start(ctx, c, inst, former)
	r.saveOrder(inst)
}

func (r *Orchestrator) awaitPlace(inst *instance) error {
	select {
	case <-inst.slot.Granted():
	case <-inst.queueTurn.unwanted:
	case <-r.ctx.Done():
		inst.giveUp(errStopping)
	}
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.queueTurn.refusal == nil {
		inst.queueTurn.placed = true
	}
	return inst.queueTurn.refusal
}

// dismiss takes away an instance that was never started.
func (r *Orchestrator) dismiss(inst *instance, err error) {
	r.noteQueue(sandbox.Caller{}, inst, time.Since(inst.asked), err)
	inst.err = err
	r.leaveMap(inst)
	close(inst.ready)
}

func (r *Orchestrator) noteQueue(c sandbox.Caller, inst *instance, waited time.Duration, refusal error) {
	rec := record(c, inst.thread, audit.ActionSandboxQueue, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Millis = string(inst.id), inst.template.Name, "ok", waited.Milliseconds()
	if refusal != nil {
		rec.Outcome, rec.Detail = "error", refusal.Error()
	}
	if _, err := r.o.Audit.Append(context.WithoutCancel(r.ctx), rec); err != nil {
		r.o.Log.Error("the audit log cannot be written", "error", err)
	}
}

// giveUp ends the wait of an instance that has no place yet, and reports whether it did.
func (inst *instance) giveUp(why error) bool {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.giveUpLocked(why)
}

func (inst *instance) giveUpLocked(why error) bool {
	if inst.queueTurn.placed || inst.queueTurn.refusal != nil || inst.queueTurn.unwanted == nil {
		return false
	}
	inst.queueTurn.refusal = why
	if inst.ending == "" {
		inst.ending = sandbox.StatusLost
	}
	close(inst.queueTurn.unwanted)
	return true
}

// arrive counts a waiter in; false: the instance was given up.
func (inst *instance) arrive() bool {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.queueTurn.refusal != nil {
		return false
	}
	inst.queueTurn.waiters++
	return true
}

// depart counts a waiter out. One that was promised the instance will ask again; when the last of the others
// leaves early, nobody wants it.
func (inst *instance) depart(promised, early bool) (unwanted bool) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	inst.queueTurn.waiters--
	inst.queueTurn.asked = time.Now()
	inst.queueTurn.promised = inst.queueTurn.promised || promised
	return early && inst.queueTurn.waiters == 0 && !inst.queueTurn.promised && inst.giveUpLocked(errNobodyWaits)
}

// waitReady waits for the start of b: for d when it is not 0 (errStillStarting), else until ctx ends. Who
// waits without a d waits for QueueTime at most for a place: CapacityExceeded.
func (r *Orchestrator) waitReady(ctx context.Context, inst *instance, d time.Duration) error {
	select {
	case <-inst.ready:
		return inst.err
	default:
	}
	if !inst.arrive() {
		return errGivenUp
	}
	wait := d
	if d <= 0 {
		wait = r.o.Lifecycle.QueueTime
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		select {
		case <-inst.ready:
			inst.depart(false, false)
			return inst.err
		case <-late.C:
			if d > 0 {
				inst.depart(true, false)
				return errStillStarting
			}
			if inst.slot.Held() {
				continue // it starts, within StartTime
			}
			r.leaveEarly(inst, "late")
			return inst.slot.Refusal()
		case <-ctx.Done():
			r.leaveEarly(inst, "gone")
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
		}
	}
}

func (r *Orchestrator) leaveEarly(inst *instance, why string) {
	if inst.depart(false, true) {
		r.o.Metrics.Refused(why)
	}
}

// expireTurn gives up a turn that was promised and that nobody has asked for since.
func (r *Orchestrator) expireTurn(inst *instance, now time.Time) {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.queueTurn.waiters == 0 && inst.queueTurn.promised && now.Sub(inst.queueTurn.asked) > r.o.Lifecycle.QueueTime && inst.giveUpLocked(errNobodyWaits) {
		r.o.Metrics.Refused("gone")
	}
}

// makeRoom hibernates sandboxes that nobody has used for ReclaimIdle, the longest unused first, as many
// as there are instances that wait for a place, less those that are ending anyway.
func (r *Orchestrator) makeRoom(now time.Time) {
	wants := r.places.Wants()
	if len(wants) == 0 || r.o.Lifecycle.ReclaimIdle <= 0 {
		return
	}
	boxes := r.all()
	slices.SortFunc(boxes, func(a, inst *instance) int { return a.lastUse().Compare(inst.lastUse()) })
	ending := map[string]int{}
	spare := 0 // ending ones whose place goes to whoever's turn it is
	for _, inst := range boxes {
		if inst.endingStatus() != "" {
			ending[inst.thread.Tenant]++
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
			if w.Own && inst.thread.Tenant != w.Tenant {
				continue
			}
			if inst.beginStop(func() bool { return inst.running == 0 && now.Sub(inst.lastActive) > r.o.Lifecycle.ReclaimIdle }) {
				need--
				r.putAwayLater(inst, audit.ActionSandboxHibernate, "room")
			}
		}
	}
}
