package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// A box that finds no place waits in the queue of its tenant (package capacity). It is in the map all the
// while, "starting", so that many callers share one turn. The turn is kept as long as somebody waits for
// the box; one that a caller was told of (202) is kept for QueueTime after the last call that asked for it.

// queueNoted is how long a box has to wait for a place before the audit log says so.
const queueNoted = time.Second

// turn is the box's part in the queue. It is guarded by box.mu.
type turn struct {
	waiters  int       // callers that wait for the box to be ready
	promised bool      // a caller was told that it starts, and will ask again
	asked    time.Time // by whom it was last asked for
	placed   bool      // it has its place: it is not given up any more
	refusal  error     // why it was given up
	unwanted chan struct{}
}

var (
	errNobodyWaits = sandbox.Errorf(sandbox.CapacityExceeded, "nobody waits for the sandbox any more")
	// errGivenUp tells a caller who came a moment too late to ask for a new box.
	errGivenUp = sandbox.Errorf(sandbox.CapacityExceeded, "the sandbox was given up before it started; try again")
)

// takePlace gives the place of a thread's new box. It is that of the one before when that has not been
// given back yet. The caller holds Orchestrator.mu.
func (r *Orchestrator) takePlace(t sandbox.Thread, former *box) (*capacity.Ticket, error) {
	if former != nil && !former.passed {
		former.passed = true
		return former.place, nil
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

// givePlaceBack ends a box's claim to its place. The caller holds Orchestrator.mu.
func givePlaceBack(b *box) {
	if !b.passed && b.place != nil {
		b.passed = true
		b.place.Leave()
	}
}

// begin waits for the place of a new box, and starts it. While it waits the thread is ours, so that all who
// ask for its sandbox come here.
func (r *Orchestrator) begin(c sandbox.Caller, b *box, former *box) {
	if !b.place.Held() {
		ctx, cancel := context.WithTimeout(r.ctx, takeTimeout)
		h, err := r.acquire(ctx, b.thread, "")
		cancel()
		if err != nil {
			b.giveUp(notHere(err))
		} else {
			defer r.release(h)
		}
	}
	if err := r.letIn(c, b, former); err != nil {
		r.turnAway(b, err)
		return
	}
	if err := r.awaitPlace(b); err != nil {
		r.dismiss(b, err)
		return
	}
	if waited := time.Since(b.asked); waited > queueNoted && former == nil {
		r.noteQueue(c, b, waited, nil)
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.o.StartTime)
	defer cancel()
	r.start(ctx, c, b, former)
	r.saveOrder(b)
}

func (r *Orchestrator) awaitPlace(b *box) error {
	select {
	case <-b.place.Granted():
	case <-b.turn.unwanted:
	case <-r.ctx.Done():
		b.giveUp(errStopping)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn.refusal == nil {
		b.turn.placed = true
	}
	return b.turn.refusal
}

// dismiss takes away a box that was never started.
func (r *Orchestrator) dismiss(b *box, err error) {
	r.noteQueue(sandbox.Caller{}, b, time.Since(b.asked), err)
	b.err = err
	r.leaveMap(b)
	close(b.ready)
}

func (r *Orchestrator) noteQueue(c sandbox.Caller, b *box, waited time.Duration, refusal error) {
	rec := record(c, b.thread, audit.ActionSandboxQueue, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Millis = string(b.id), b.template.Name, "ok", waited.Milliseconds()
	if refusal != nil {
		rec.Outcome, rec.Detail = "error", refusal.Error()
	}
	if _, err := r.o.Audit.Append(context.WithoutCancel(r.ctx), rec); err != nil {
		r.o.Log.Error("the audit log cannot be written", "error", err)
	}
}

// giveUp ends the wait of a box that has no place yet, and reports whether it did.
func (b *box) giveUp(why error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.giveUpLocked(why)
}

func (b *box) giveUpLocked(why error) bool {
	if b.turn.placed || b.turn.refusal != nil || b.turn.unwanted == nil {
		return false
	}
	b.turn.refusal = why
	if b.ending == "" {
		b.ending = sandbox.StatusLost
	}
	close(b.turn.unwanted)
	return true
}

// arrive counts a waiter in; false: the box was given up.
func (b *box) arrive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn.refusal != nil {
		return false
	}
	b.turn.waiters++
	return true
}

// depart counts a waiter out. One that was promised the box will ask again; when the last of the others
// leaves early, nobody wants it.
func (b *box) depart(promised, early bool) (unwanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn.waiters--
	b.turn.asked = time.Now()
	b.turn.promised = b.turn.promised || promised
	return early && b.turn.waiters == 0 && !b.turn.promised && b.giveUpLocked(errNobodyWaits)
}

// waitReady waits for the start of b: for d when it is not 0 (errStillStarting), else until ctx ends. Who
// waits without a d waits for QueueTime at most for a place: CapacityExceeded.
func (r *Orchestrator) waitReady(ctx context.Context, b *box, d time.Duration) error {
	select {
	case <-b.ready:
		return b.err
	default:
	}
	if !b.arrive() {
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
		case <-b.ready:
			b.depart(false, false)
			return b.err
		case <-late.C:
			if d > 0 {
				b.depart(true, false)
				return errStillStarting
			}
			if b.place.Held() {
				continue // it starts, within StartTime
			}
			r.leaveEarly(b, "late")
			return b.place.Refusal()
		case <-ctx.Done():
			r.leaveEarly(b, "gone")
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
		}
	}
}

func (r *Orchestrator) leaveEarly(b *box, why string) {
	if b.depart(false, true) {
		r.o.Metrics.Refused(why)
	}
}

// expireTurn gives up a turn that was promised and that nobody has asked for since.
func (r *Orchestrator) expireTurn(b *box, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn.waiters == 0 && b.turn.promised && now.Sub(b.turn.asked) > r.o.Lifecycle.QueueTime && b.giveUpLocked(errNobodyWaits) {
		r.o.Metrics.Refused("gone")
	}
}

// makeRoom hibernates sandboxes that nobody has used for ReclaimIdle, the longest unused first, as many
// as there are boxes that wait for a place, less those that are ending anyway.
func (r *Orchestrator) makeRoom(now time.Time) {
	wants := r.places.Wants()
	if len(wants) == 0 || r.o.Lifecycle.ReclaimIdle <= 0 {
		return
	}
	boxes := r.all()
	slices.SortFunc(boxes, func(a, b *box) int { return a.lastUse().Compare(b.lastUse()) })
	ending := map[string]int{}
	spare := 0 // ending ones whose place goes to whoever's turn it is
	for _, b := range boxes {
		if b.endingStatus() != "" {
			ending[b.thread.Tenant]++
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
		for _, b := range boxes {
			if need <= 0 {
				break
			}
			if w.Own && b.thread.Tenant != w.Tenant {
				continue
			}
			if b.claim(func() bool { return b.running == 0 && now.Sub(b.lastActive) > r.o.Lifecycle.ReclaimIdle }) {
				need--
				r.putAwayLater(b, audit.ActionSandboxHibernate, "room")
			}
		}
	}
}
