package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Lifecycle says how long sandboxes live and how many there are. The zero value: no queue, and nothing
// ends but by its template's idle timeout.
type Lifecycle struct {
	PerTenant   int           // sandboxes of one tenant; 0: Options.MaxBoxes
	Queue       int           // instances of one tenant that may wait for a place
	QueueTime   time.Duration // how long an exec waits for a place, and a turn for a caller who asks again
	ReclaimIdle time.Duration // unused for so long, a sandbox makes room for a waiting one; 0: never
	MaxAge      time.Duration // of sandboxes whose template says nothing; 0: none
	AgeGrace    time.Duration // how long what runs may go on beyond the age
	Activity    []string      // beside execs, what keeps a sandbox from being idle: Activity…
	// PassedHook is called behind each hook of an instance, up or down; nil: nothing is.
	PassedHook func(inst *instance.Instance, hook string, up bool)
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
	for _, inst := range r.live.All() {
		r.expireTurn(inst, now)
		r.checkLife(inst, now)
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

func (r *Orchestrator) maxAge(t instance.Template) time.Duration {
	if t.MaxAgeSeconds > 0 {
		return time.Duration(t.MaxAgeSeconds) * time.Second
	}
	return r.o.Lifecycle.MaxAge
}

// checkLife puts an instance away that is too old or idle. An instance that is too old and busy is put away when its
// last exec ends (left), or after AgeGrace, when no exec waits for a person, which has a bound of its own.
func (r *Orchestrator) checkLife(inst *instance.Instance, now time.Time) {
	age, most := now.Sub(inst.Info().CreatedAt), r.maxAge(inst.Template)
	idle := time.Duration(inst.Template.IdleSeconds) * time.Second
	old := most > 0 && age > most
	if old {
		inst.MarkOverAge()
	}
	switch {
	case old && inst.BeginStop(func(u instance.Usage) bool { return u.Running == 0 }):
		r.putAwayLater(inst, audit.ActionSandboxHibernate, "age")
	case old && age > most+r.o.Lifecycle.AgeGrace && inst.BeginStop(func(u instance.Usage) bool { return u.Waits == 0 }):
		r.putAwayLater(inst, audit.ActionSandboxExpire, "age")
	case idle > 0 && inst.BeginStop(func(u instance.Usage) bool { return u.Running == 0 && now.Sub(u.LastActive) > idle }):
		r.putAwayLater(inst, audit.ActionSandboxHibernate, "idle")
	}
}

// putAwayLater puts a claimed instance away in the background.
func (r *Orchestrator) putAwayLater(inst *instance.Instance, action, why string) {
	r.wg.Go(func() {
		if _, err := r.putAway(context.WithoutCancel(r.ctx), sandbox.Caller{}, inst, action, why); err != nil {
			r.o.Log.Error("sandbox not put away in order", "thread", inst.Thread.String(), "why", why, "error", err)
		}
	})
}

// putAway ends a claimed instance so that the next call restarts it. action and why are what its record
// says. What went wrong is told when all is done: the instance is gone in any case.
func (r *Orchestrator) putAway(ctx context.Context, c sandbox.Caller, inst *instance.Instance, action, why string) (sandbox.Info, error) {
	if inst.Ownership != nil && !r.owners.Confirm(inst.Ownership) { // which lets go of the instance
		return sandbox.Info{}, ownership.NotHere(&ownership.Elsewhere{})
	}
	info, err := r.saveHibernated(inst)
	if err != nil {
		err = sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be kept")
	}
	rec := audit.About(c, inst.Thread, action, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(inst.ID), inst.Template.Name, "ok", why
	if e := r.o.Audit.AppendResult(context.WithoutCancel(ctx), rec); err == nil {
		err = e
	}
	r.o.Metrics.Changed(action, why)
	r.remove(ctx, inst)
	return info, err
}

// left counts an exec out of its instance, which was its last one when the instance is too old.
func (r *Orchestrator) left(inst *instance.Instance) {
	inst.Leave()
	if inst.BeginStop(func(u instance.Usage) bool { return u.OverAge && u.Running == 0 }) {
		r.putAwayLater(inst, audit.ActionSandboxHibernate, "age")
	}
}

// active notes that a thread was used, if the configuration counts that.
func (r *Orchestrator) active(t sandbox.Thread, kind string) {
	if !slices.Contains(r.o.Lifecycle.Activity, kind) {
		return
	}
	if inst := r.live.Find(t); inst != nil {
		inst.MarkActive()
	}
}

// Pause freezes the thread's sandbox, which keeps its memory. Pausing a paused one changes
// nothing. Conflict: execs run in it, whose deadlines go on, or it is hibernated; NotFound: there is
// none; NotSupported: the driver cannot. The next exec resumes it by itself.
func (r *Orchestrator) Pause(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	inst, asleep, err := r.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if asleep != nil {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "the sandbox is hibernated: there is nothing to pause")
	}
	inst.PauseMu.Lock()
	defer inst.PauseMu.Unlock()
	p, ok := r.o.Driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot pause a sandbox", r.caps.Name)
	}
	done, err := inst.BeginPause()
	if done || err != nil {
		return inst.Info(), err
	}
	ctx, cancel := deadline.Detached(ctx, cleanupTimeout)
	defer cancel()
	return r.changePause(ctx, c, inst, audit.ActionSandboxPause, "asked", func() error { return p.Pause(ctx, inst.ID) }, func() {
		inst.ChangeState(sandbox.Paused, sandbox.Running)
	})
}

// changePause pauses or resumes an instance between two records, and returns it as it is then. undo is called when it did not come to it.
func (r *Orchestrator) changePause(ctx context.Context, c sandbox.Caller, inst *instance.Instance, action, why string, do func() error, undo func()) (sandbox.Info, error) {
	rec := audit.About(c, inst.Thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject, rec.Detail = string(inst.ID), inst.Template.Name, why
	done := false
	err := r.o.Audit.Do(ctx, rec, func(*audit.Record) error {
		err := do()
		done = err == nil
		return err
	})
	if !done {
		undo()
		return inst.Info(), err
	}
	r.o.Metrics.Changed(action, why)
	if err == nil {
		err = r.hooks.Publish(ctx, inst)
	}
	return inst.Info(), err
}

// Resume thaws a paused sandbox and starts a hibernated one again. A running one stays as it is. NotFound:
// the thread has none.
func (r *Orchestrator) Resume(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	inst, asleep, err := r.existing(ctx, c, id)
	if err == nil && (asleep != nil || inst.Ending() != "") {
		if t := (sandbox.Thread{Owner: c.Owner, ID: id}); r.refuse(t) == nil {
			inst, err = r.join(ctx, c, t, "", 0, nil)
		} else {
			err = errStopping
		}
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	return r.wake(ctx, c, inst, "asked")
}

// wake thaws an instance if it is paused.
func (r *Orchestrator) wake(ctx context.Context, c sandbox.Caller, inst *instance.Instance, why string) (sandbox.Info, error) {
	inst.PauseMu.Lock()
	defer inst.PauseMu.Unlock()
	if info := inst.Info(); info.State != sandbox.Paused {
		return info, nil
	}
	p, ok := r.o.Driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot resume a sandbox", r.caps.Name)
	}
	ctx, cancel := deadline.Detached(ctx, cleanupTimeout)
	defer cancel()
	return r.changePause(ctx, c, inst, audit.ActionSandboxResume, why, func() error {
		err := p.Resume(ctx, inst.ID)
		if err == nil {
			inst.ChangeState(sandbox.Paused, sandbox.Running)
			inst.MarkActive()
		}
		return err
	}, func() {})
}

// Hibernate ends the container and keeps the files and what the sandbox was; the next call that needs a
// sandbox brings it back. A hibernated one stays so. Conflict: execs run in it; with force they end
// as killed. NotFound: the thread has none.
func (r *Orchestrator) Hibernate(ctx context.Context, c sandbox.Caller, id string, force bool) (sandbox.Info, error) {
	inst, asleep, err := r.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if asleep != nil {
		return *asleep, nil
	}
	busy := 0
	if inst.BeginStop(func(u instance.Usage) bool { busy = u.Running; return force || busy == 0 }) {
		return r.putAway(ctx, c, inst, audit.ActionSandboxHibernate, "asked")
	}
	if busy > 0 {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "%d execs run in the sandbox: wait for them, or send \"force\": true, which ends them", busy)
	}
	select { // it is being ended already
	case <-inst.Gone:
	case <-ctx.Done():
		return sandbox.Info{}, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
	}
	if saved := r.Specs.Read(inst.Thread); saved != nil && saved.Hibernated != nil {
		return *saved.Hibernated, nil
	}
	return sandbox.Info{}, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}

// existing returns the thread's instance when there is one, ready, or its hibernated sandbox. It starts none.
func (r *Orchestrator) existing(ctx context.Context, c sandbox.Caller, id string) (*instance.Instance, *sandbox.Info, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, nil, err
	}
	if err := r.threads.Exists(ctx, t); err != nil {
		return nil, nil, err
	}
	if inst := r.live.Find(t); inst != nil {
		return inst, nil, r.waitReady(ctx, inst, 0)
	}
	if saved := r.Specs.Read(t); saved != nil && saved.Hibernated != nil {
		return nil, saved.Hibernated, nil
	}
	return nil, nil, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}
