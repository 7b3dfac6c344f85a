package orchestrator

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// Lifecycle pauses and hibernates instances: on request, when they are idle or too old, and when another one needs the slot.
type Lifecycle struct {
	nudged    chan struct{} // holds a token: an instance waits for a place
	specs     *savedspec.Specs
	audit     *audit.Log
	caps      driver.Capabilities
	ctx       context.Context
	driver    driver.Driver
	hooks     *hooks.Hooks
	lifecycle LifecycleOptions
	live      *instance.Map
	log       *slog.Logger
	metrics   *metrics.Metrics
	orders    *orders
	owners    *ownership.Owners
	places    *capacity.Places
	queue     *queue
	store     *store.Store
	teardown  *teardown
	threads   *threads.Threads
	wg        *sync.WaitGroup
}

// LifecycleOptions say how long sandboxes live and how many there are. The zero value: no queue, and nothing
// ends but by its template's idle timeout.
type LifecycleOptions struct {
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
func (l *Lifecycle) watchLives() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		case <-l.nudged:
		}
		l.lookAtLives(time.Now())
	}
}

// lookAtLives is one look of watchLives.
func (l *Lifecycle) lookAtLives(now time.Time) {
	for _, inst := range l.live.All() {
		l.queue.expireTurn(inst, now)
		l.checkLife(inst, now)
	}
	l.makeRoom(now)
}

// nudge makes the next look come at once.
func (q *queue) nudge() {
	select {
	case q.nudged <- struct{}{}:
	default:
	}
}

func (l *Lifecycle) maxAge(t instance.Template) time.Duration {
	if t.MaxAgeSeconds > 0 {
		return time.Duration(t.MaxAgeSeconds) * time.Second
	}
	return l.lifecycle.MaxAge
}

// checkLife puts an instance away that is too old or idle. An instance that is too old and busy is put away when its
// last exec ends (left), or after AgeGrace, when no exec waits for a person, which has a bound of its own.
func (l *Lifecycle) checkLife(inst *instance.Instance, now time.Time) {
	age, most := now.Sub(inst.Info().CreatedAt), l.maxAge(inst.Template)
	idle := time.Duration(inst.Template.IdleSeconds) * time.Second
	old := most > 0 && age > most
	if old {
		inst.MarkOverAge()
	}
	switch {
	case old && inst.BeginStop(func(u instance.Usage) bool { return u.Running == 0 }):
		l.putAwayLater(inst, audit.ActionSandboxHibernate, "age")
	case old && age > most+l.lifecycle.AgeGrace && inst.BeginStop(func(u instance.Usage) bool { return u.Waits == 0 }):
		l.putAwayLater(inst, audit.ActionSandboxExpire, "age")
	case idle > 0 && inst.BeginStop(func(u instance.Usage) bool { return u.Running == 0 && now.Sub(u.LastActive) > idle }):
		l.putAwayLater(inst, audit.ActionSandboxHibernate, "idle")
	}
}

// putAwayLater puts a claimed instance away in the background.
func (l *Lifecycle) putAwayLater(inst *instance.Instance, action, why string) {
	l.wg.Go(func() {
		if _, err := l.putAway(context.WithoutCancel(l.ctx), sandbox.Caller{}, inst, action, why); err != nil {
			l.log.Error("sandbox not put away in order", "thread", inst.Thread.String(), "why", why, "error", err)
		}
	})
}

// putAway ends a claimed instance so that the next call restarts it. action and why are what its record
// says. What went wrong is told when all is done: the instance is gone in any case.
func (l *Lifecycle) putAway(ctx context.Context, c sandbox.Caller, inst *instance.Instance, action, why string) (sandbox.Info, error) {
	if inst.Ownership != nil && !l.owners.Confirm(inst.Ownership) { // which lets go of the instance
		return sandbox.Info{}, ownership.NotHere(&ownership.Elsewhere{})
	}
	info, err := l.orders.saveHibernated(inst)
	if err != nil {
		err = sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be kept")
	}
	rec := audit.About(c, inst.Thread, action, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(inst.ID), inst.Template.Name, "ok", why
	if e := l.audit.AppendResult(context.WithoutCancel(ctx), rec); err == nil {
		err = e
	}
	l.metrics.Changed(action, why)
	l.teardown.remove(ctx, inst)
	return info, err
}

// left counts an exec out of its instance, which was its last one when the instance is too old.
func (l *Lifecycle) left(inst *instance.Instance) {
	inst.Leave()
	if inst.BeginStop(func(u instance.Usage) bool { return u.OverAge && u.Running == 0 }) {
		l.putAwayLater(inst, audit.ActionSandboxHibernate, "age")
	}
}

// active notes that a thread was used, if the configuration counts that.
func (l *Lifecycle) active(t sandbox.Thread, kind string) {
	if !slices.Contains(l.lifecycle.Activity, kind) {
		return
	}
	if inst := l.live.Find(t); inst != nil {
		inst.MarkActive()
	}
}

// Pause freezes the thread's sandbox, which keeps its memory. Pausing a paused one changes
// nothing. Conflict: execs run in it, whose deadlines go on, or it is hibernated; NotFound: there is
// none; NotSupported: the driver cannot. The next exec resumes it by itself.
func (l *Lifecycle) Pause(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	inst, asleep, err := l.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if asleep != nil {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "the sandbox is hibernated: there is nothing to pause")
	}
	inst.PauseMu.Lock()
	defer inst.PauseMu.Unlock()
	p, ok := l.driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot pause a sandbox", l.caps.Name)
	}
	done, err := inst.BeginPause()
	if done || err != nil {
		return inst.Info(), err
	}
	ctx, cancel := deadline.Detached(ctx, cleanupTimeout)
	defer cancel()
	return l.changePause(ctx, c, inst, audit.ActionSandboxPause, "asked", func() error { return p.Pause(ctx, inst.ID) }, func() {
		inst.ChangeState(sandbox.Paused, sandbox.Running)
	})
}

// changePause pauses or resumes an instance between two records, and returns it as it is then. undo is called when it did not come to it.
func (l *Lifecycle) changePause(ctx context.Context, c sandbox.Caller, inst *instance.Instance, action, why string, do func() error, undo func()) (sandbox.Info, error) {
	rec := audit.About(c, inst.Thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject, rec.Detail = string(inst.ID), inst.Template.Name, why
	done := false
	err := l.audit.Do(ctx, rec, func(*audit.Record) error {
		err := do()
		done = err == nil
		return err
	})
	if !done {
		undo()
		return inst.Info(), err
	}
	l.metrics.Changed(action, why)
	if err == nil {
		err = l.hooks.Publish(ctx, inst)
	}
	return inst.Info(), err
}

// Resume thaws a paused sandbox and starts a hibernated one again. A running one stays as it is. NotFound:
// the thread has none.
func (s *Starts) Resume(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	inst, asleep, err := s.Lifecycle.existing(ctx, c, id)
	if err == nil && (asleep != nil || inst.Ending() != "") {
		if t := (sandbox.Thread{Owner: c.Owner, ID: id}); s.Shutdown.refuse(t) == nil {
			inst, err = s.join(ctx, c, t, "", 0, nil)
		} else {
			err = errStopping
		}
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	return s.Lifecycle.wake(ctx, c, inst, "asked")
}

// wake thaws an instance if it is paused.
func (l *Lifecycle) wake(ctx context.Context, c sandbox.Caller, inst *instance.Instance, why string) (sandbox.Info, error) {
	inst.PauseMu.Lock()
	defer inst.PauseMu.Unlock()
	if info := inst.Info(); info.State != sandbox.Paused {
		return info, nil
	}
	p, ok := l.driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot resume a sandbox", l.caps.Name)
	}
	ctx, cancel := deadline.Detached(ctx, cleanupTimeout)
	defer cancel()
	return l.changePause(ctx, c, inst, audit.ActionSandboxResume, why, func() error {
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
func (l *Lifecycle) Hibernate(ctx context.Context, c sandbox.Caller, id string, force bool) (sandbox.Info, error) {
	inst, asleep, err := l.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if asleep != nil {
		return *asleep, nil
	}
	busy := 0
	if inst.BeginStop(func(u instance.Usage) bool { busy = u.Running; return force || busy == 0 }) {
		return l.putAway(ctx, c, inst, audit.ActionSandboxHibernate, "asked")
	}
	if busy > 0 {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "%d execs run in the sandbox: wait for them, or send \"force\": true, which ends them", busy)
	}
	select { // it is being ended already
	case <-inst.Gone:
	case <-ctx.Done():
		return sandbox.Info{}, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
	}
	if saved := l.specs.Read(inst.Thread); saved != nil && saved.Hibernated != nil {
		return *saved.Hibernated, nil
	}
	return sandbox.Info{}, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}

// existing returns the thread's instance when there is one, ready, or its hibernated sandbox. It starts none.
func (l *Lifecycle) existing(ctx context.Context, c sandbox.Caller, id string) (*instance.Instance, *sandbox.Info, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, nil, err
	}
	if err := l.threads.Exists(ctx, t); err != nil {
		return nil, nil, err
	}
	if inst := l.live.Find(t); inst != nil {
		return inst, nil, l.queue.waitReady(ctx, inst, 0)
	}
	if saved := l.specs.Read(t); saved != nil && saved.Hibernated != nil {
		return nil, saved.Hibernated, nil
	}
	return nil, nil, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}
