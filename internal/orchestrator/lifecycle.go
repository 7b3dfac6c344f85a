package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Lifecycle says how long sandboxes live and how many there are. The zero value: no queue, and nothing
// ends but by its template's idle timeout.
type Lifecycle struct {
	PerTenant   int           // sandboxes of one tenant; 0: Options.MaxBoxes
	Queue       int           // boxes of one tenant that may wait for a place
	QueueTime   time.Duration // how long an exec waits for a place, and a turn for a caller who asks again
	ReclaimIdle time.Duration // unused for so long, a sandbox makes room for one that waits; 0: never
	MaxAge      time.Duration // of sandboxes whose template says nothing; 0: none
	AgeGrace    time.Duration // how long what runs may go on beyond the age
	Activity    []string      // beside execs, what keeps a sandbox from being idle: Activity…
}

// What may count as activity of a sandbox, beside execs, which always do. Looking never does.
const (
	ActivityAcquire   = "acquire"    // a call for the sandbox
	ActivityFileWrite = "file_write" // a change of the thread's files by the API
	ActivityFileRead  = "file_read"  // a read of them
	ActivityToolCall  = "tool_call"  // a tool call by the agent; those of code belong to its exec
)

// sweepEvery is how often it is looked for sandboxes that are idle or too old.
const sweepEvery = time.Second

// watchLives puts sandboxes away that are idle or too old, or whose place another one needs.
func (r *Orchestrator) watchLives() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		case <-r.nudged:
		}
		r.lookAtLives(time.Now())
	}
}

// lookAtLives is one look of watchLives.
func (r *Orchestrator) lookAtLives(now time.Time) {
	for _, b := range r.all() {
		r.expireTurn(b, now)
		r.checkLife(b, now)
	}
	r.makeRoom(now)
}

// nudge makes the next look come at once.
func (r *Orchestrator) nudge() {
	select {
	case r.nudged <- struct{}{}:
	default:
	}
}

func (r *Orchestrator) maxAge(t Template) time.Duration {
	if t.MaxAgeSeconds > 0 {
		return time.Duration(t.MaxAgeSeconds) * time.Second
	}
	return r.o.Lifecycle.MaxAge
}

// checkLife puts a box away that is too old or idle. One that is too old and busy is put away when its
// last exec ends (left), or after AgeGrace, when no exec waits for a person, which has a bound of its own.
func (r *Orchestrator) checkLife(b *box, now time.Time) {
	age, most := now.Sub(b.snapshot().CreatedAt), r.maxAge(b.template)
	idle := time.Duration(b.template.IdleSeconds) * time.Second
	old := most > 0 && age > most
	switch {
	case old && b.claim(func() bool { b.overAge = true; return b.running == 0 }):
		r.putAwayLater(b, audit.ActionSandboxHibernate, "age")
	case old && age > most+r.o.Lifecycle.AgeGrace && b.claim(func() bool { return b.waits == 0 }):
		r.putAwayLater(b, audit.ActionSandboxExpire, "age")
	case idle > 0 && b.claim(func() bool { return b.running == 0 && now.Sub(b.lastActive) > idle }):
		r.putAwayLater(b, audit.ActionSandboxHibernate, "idle")
	}
}

// claim takes a box that is ready out of use if ok, which is asked in the same step: no exec comes in
// between. Its execs end as killed.
func (b *box) claim(ok func() bool) bool {
	if !b.isReady() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending != "" || !ok() {
		return false
	}
	b.ending = sandbox.StatusKilled
	b.info.State = sandbox.Stopping
	return true
}

func (b *box) lastUse() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastActive
}

// putAwayLater puts a claimed box away in the background.
func (r *Orchestrator) putAwayLater(b *box, action, why string) {
	r.wg.Go(func() {
		if _, err := r.putAway(context.WithoutCancel(r.ctx), sandbox.Caller{}, b, action, why); err != nil {
			r.o.Log.Error("sandbox not put away in order", "thread", b.thread.String(), "why", why, "error", err)
		}
	})
}

// putAway ends a claimed box so that the next call brings it back. action and why are what its record
// says. What went wrong is told when all is done: the box is gone in any case.
func (r *Orchestrator) putAway(ctx context.Context, c sandbox.Caller, b *box, action, why string) (sandbox.Info, error) {
	if b.hold != nil && !r.confirm(b.hold) { // which lets go of the box
		return sandbox.Info{}, notHere(&elsewhere{})
	}
	info, err := r.saveHibernated(b)
	if err != nil {
		err = sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be kept")
	}
	rec := record(c, b.thread, action, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(b.id), b.template.Name, "ok", why
	if e := r.note(context.WithoutCancel(ctx), rec); err == nil {
		err = e
	}
	r.o.Metrics.Changed(action, why)
	r.remove(ctx, b)
	return info, err
}

// left counts an exec out of its box, which was its last one when the box is too old.
func (r *Orchestrator) left(b *box) {
	b.leave()
	if b.claim(func() bool { return b.overAge && b.running == 0 }) {
		r.putAwayLater(b, audit.ActionSandboxHibernate, "age")
	}
}

// active notes that a thread was used, if the configuration counts that.
func (r *Orchestrator) active(t sandbox.Thread, kind string) {
	if !slices.Contains(r.o.Lifecycle.Activity, kind) {
		return
	}
	if b := r.find(t); b != nil {
		b.mu.Lock()
		b.lastActive = time.Now()
		b.mu.Unlock()
	}
}

// Pause freezes the thread's sandbox, which keeps its memory. Pausing one that is paused changes
// nothing. Conflict: execs run in it, whose deadlines go on, or it is hibernated; NotFound: there is
// none; NotSupported: the driver cannot. The next exec resumes it by itself.
func (r *Orchestrator) Pause(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	b, asleep, err := r.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if asleep != nil {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "the sandbox is hibernated: there is nothing to pause")
	}
	b.shift.Lock()
	defer b.shift.Unlock()
	p, ok := r.o.Driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot pause a sandbox", r.caps.Name)
	}
	done, err := b.beginPause()
	if done || err != nil {
		return b.snapshot(), err
	}
	ctx, cancel := detached(ctx, cleanupTimeout)
	defer cancel()
	return r.shift(ctx, c, b, audit.ActionSandboxPause, "asked", func() error { return p.Pause(ctx, b.id) }, func() {
		b.changeState(sandbox.Paused, sandbox.Running)
	})
}

// beginPause shuts the door for execs. done: it is paused already.
func (b *box) beginPause() (done bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ending != "":
		return false, sandbox.Errorf(sandbox.SandboxLost, "the sandbox ended just now")
	case b.info.State == sandbox.Paused:
		return true, nil
	case b.running > 0:
		return false, sandbox.Errorf(sandbox.Conflict, "%d execs run in the sandbox, and their deadlines would go on: wait for them, or kill them", b.running)
	}
	b.info.State = sandbox.Paused
	return false, nil
}

// changeState changes the state of a box that is in another one.
func (b *box) changeState(from, to sandbox.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.info.State == from {
		b.info.State = to
	}
}

// shift pauses or resumes a box between two records, and gives it as it is then. undo is called when it did not come to it.
func (r *Orchestrator) shift(ctx context.Context, c sandbox.Caller, b *box, action, why string, do func() error, undo func()) (sandbox.Info, error) {
	rec := record(c, b.thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject, rec.Detail = string(b.id), b.template.Name, why
	done := false
	err := r.o.Audit.Do(ctx, rec, func(*audit.Record) error {
		err := do()
		done = err == nil
		return err
	})
	if !done {
		undo()
		return b.snapshot(), err
	}
	r.o.Metrics.Changed(action, why)
	if err == nil {
		err = r.publish(ctx, b)
	}
	return b.snapshot(), err
}

// Resume thaws a paused sandbox and brings a hibernated one back. One that runs is as it was. NotFound:
// the thread has none.
func (r *Orchestrator) Resume(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	b, asleep, err := r.existing(ctx, c, id)
	if err == nil && (asleep != nil || b.endingStatus() != "") {
		if t := (sandbox.Thread{Owner: c.Owner, ID: id}); r.refuse(t) == nil {
			b, err = r.join(ctx, c, t, "", 0, nil)
		} else {
			err = errStopping
		}
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	return r.wake(ctx, c, b, "asked")
}

// wake thaws a box if it is paused.
func (r *Orchestrator) wake(ctx context.Context, c sandbox.Caller, b *box, why string) (sandbox.Info, error) {
	b.shift.Lock()
	defer b.shift.Unlock()
	if info := b.snapshot(); info.State != sandbox.Paused {
		return info, nil
	}
	p, ok := r.o.Driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot resume a sandbox", r.caps.Name)
	}
	ctx, cancel := detached(ctx, cleanupTimeout)
	defer cancel()
	return r.shift(ctx, c, b, audit.ActionSandboxResume, why, func() error {
		err := p.Resume(ctx, b.id)
		if err == nil {
			b.changeState(sandbox.Paused, sandbox.Running)
			b.mu.Lock()
			b.lastActive = time.Now()
			b.mu.Unlock()
		}
		return err
	}, func() {})
}

// Hibernate ends the container and keeps the files and what the sandbox was; the next call that needs a
// sandbox brings it back. One that is hibernated stays so. Conflict: execs run in it; with force they end
// as killed. NotFound: the thread has none.
func (r *Orchestrator) Hibernate(ctx context.Context, c sandbox.Caller, id string, force bool) (sandbox.Info, error) {
	b, asleep, err := r.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if asleep != nil {
		return *asleep, nil
	}
	busy := 0
	if b.claim(func() bool { busy = b.running; return force || busy == 0 }) {
		return r.putAway(ctx, c, b, audit.ActionSandboxHibernate, "asked")
	}
	if busy > 0 {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "%d execs run in the sandbox: wait for them, or send \"force\": true, which ends them", busy)
	}
	select { // somebody else is ending it
	case <-b.gone:
	case <-ctx.Done():
		return sandbox.Info{}, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
	}
	if k := r.readKept(b.thread); k != nil && k.Hibernated != nil {
		return *k.Hibernated, nil
	}
	return sandbox.Info{}, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}

// existing gives the thread's box when there is one, ready, or its hibernated sandbox. It starts none.
func (r *Orchestrator) existing(ctx context.Context, c sandbox.Caller, id string) (*box, *sandbox.Info, error) {
	t, err := thread(c, id)
	if err != nil {
		return nil, nil, err
	}
	if err := r.there(ctx, t); err != nil {
		return nil, nil, err
	}
	if b := r.find(t); b != nil {
		return b, nil, r.waitReady(ctx, b, 0)
	}
	if k := r.readKept(t); k != nil && k.Hibernated != nil {
		return nil, k.Hibernated, nil
	}
	return nil, nil, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}
