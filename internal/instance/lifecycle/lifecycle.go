package lifecycle

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
	"github.com/skerry-sandbox/skerry/internal/instance/usage"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// Lifecycle pauses and hibernates instances: on request, when they are idle or too old, and when another one needs the slot.
type Lifecycle struct {
	nudged   chan struct{} // holds a token: an instance waits for a place
	specs    *savedspec.Specs
	audit    *audit.Log
	caps     driver.Capabilities
	ctx      context.Context
	driver   driver.Driver
	hooks    *hooks.Hooks
	bounds   Bounds
	live     *instance.Map
	log      *slog.Logger
	metrics  *metrics.Metrics
	orders   *Orders
	owners   *ownership.Owners
	places   *capacity.Places
	queue    *Queue
	teardown *Teardown
	threads  *threads.Threads
	usage    *usage.Writer
	wg       *sync.WaitGroup
}

// Bounds say how long sandboxes live and how many there are. The zero value: no queue, and nothing
// ends but by its template's idle timeout.
type Bounds struct {
	PerTenant   int           // sandboxes of one tenant; 0: MaxSandboxes alone
	Queue       int           // instances of one tenant that may wait for a place
	QueueTime   time.Duration // how long an exec waits for a place, and a turn for a caller who asks again
	ReclaimIdle time.Duration // unused for so long, a sandbox makes room for a waiting one; 0: never
	MaxAge      time.Duration // of sandboxes whose template says nothing; 0: none
	AgeGrace    time.Duration // how long what runs may go on beyond the age
	Activity    []string      // beside execs, what keeps a sandbox from being idle: Activity…
	// PassedHook is called behind each hook of an instance, up or down; nil: nothing is.
	PassedHook func(inst *instance.Instance, hook string, up bool)
}

// makeRoom hibernates sandboxes that were not used for ReclaimIdle, the longest unused first. It hibernates
// as many as there are instances that wait for a place, less the instances that are ending anyway.
func (l *Lifecycle) makeRoom(now time.Time) {
	wants := l.places.Wants()
	if len(wants) == 0 || l.bounds.ReclaimIdle <= 0 {
		return
	}
	instances := l.live.All()
	slices.SortFunc(instances, func(a, inst *instance.Instance) int { return a.LastUse().Compare(inst.LastUse()) })
	ending := map[string]int{}
	spare := 0 // ending ones whose place goes to the next in the queue
	for _, inst := range instances {
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
		for _, inst := range instances {
			if need <= 0 {
				break
			}
			if w.Own && inst.Thread.Tenant != w.Tenant {
				continue
			}
			if inst.BeginStop(func(u instance.Usage) bool {
				return u.Running == 0 && (inst.Main != nil || now.Sub(u.LastActive) > l.bounds.ReclaimIdle)
			}) {
				need--
				l.stopLater(inst, audit.ActionSandboxHibernate, "room")
			}
		}
	}
}

// Touch remembers the thread's last activity and what it used, not on the exec's way.
func (l *Lifecycle) Touch(inst *instance.Instance) { l.usage.Touch(inst.Own()) }

// What may count as activity of a sandbox, beside execs, which always do. Looking never does.
const (
	ActivityAcquire   = "acquire"    // a call for the sandbox
	ActivityFileWrite = "file_write" // a change of the thread's files by the API
	ActivityFileRead  = "file_read"  // a read of them
	ActivityToolCall  = "tool_call"  // a tool call by the agent; those of code belong to its exec
)

// SweepEvery is how often it is looked for sandboxes that are idle or too old.
const SweepEvery = time.Second

// Watch puts sandboxes away that are idle or too old, or whose place another one needs.
func (l *Lifecycle) Watch() {
	tick := time.NewTicker(SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		case <-l.nudged:
		}
		l.Look(time.Now())
	}
}

// Look is one look of watchLives.
func (l *Lifecycle) Look(now time.Time) {
	for _, inst := range l.live.All() {
		l.queue.expireTurn(inst, now)
		l.checkLife(inst, now)
	}
	l.makeRoom(now)
	l.usage.Look(now)
}

func (l *Lifecycle) maxAge(t instance.Template) time.Duration {
	if t.MaxAgeSeconds > 0 {
		return time.Duration(t.MaxAgeSeconds) * time.Second
	}
	return l.bounds.MaxAge
}

// checkLife ends an instance that is too old or idle. A busy instance that is too old ends with its last
// exec (left), or after AgeGrace. Execs that wait for a person delay AgeGrace; they have a bound of their
// own.
func (l *Lifecycle) checkLife(inst *instance.Instance, now time.Time) {
	age, most := now.Sub(inst.Info().CreatedAt), l.maxAge(inst.Template)
	idle := time.Duration(inst.Template.IdleSeconds) * time.Second
	old := most > 0 && age > most
	if old {
		inst.MarkOverAge()
	}
	switch {
	case old && inst.BeginStop(func(u instance.Usage) bool { return u.Running == 0 }):
		l.stopLater(inst, audit.ActionSandboxHibernate, "age")
	case old && age > most+l.bounds.AgeGrace && inst.BeginStop(func(u instance.Usage) bool { return u.Waits == 0 }):
		l.stopLater(inst, audit.ActionSandboxExpire, "age")
	case idle > 0 && inst.BeginStop(func(u instance.Usage) bool { return u.Running == 0 && now.Sub(u.LastActive) > idle }):
		l.stopLater(inst, audit.ActionSandboxHibernate, "idle")
	}
}

// stopLater stops a claimed instance in the background.
func (l *Lifecycle) stopLater(inst *instance.Instance, action, why string) {
	l.wg.Go(func() {
		if _, err := l.stop(context.WithoutCancel(l.ctx), sandbox.Caller{}, inst, action, why); err != nil {
			l.log.Error("sandbox not put away in order", "thread", inst.Thread.String(), "why", why, "error", err)
		}
	})
}

// stop ends a claimed instance so that the next call restarts it. action and why are what its record
// says. What went wrong is told when all is done: the instance is gone in any case. Of a second instance nothing is kept.
func (l *Lifecycle) stop(ctx context.Context, c sandbox.Caller, inst *instance.Instance, action, why string) (sandbox.Info, error) {
	if inst.Main != nil {
		return inst.Info(), l.teardown.finish(ctx, c, inst, sandbox.StatusKilled, why)
	}
	if inst.Owned() != nil && !l.owners.Confirm(inst.Owned()) { // which lets go of the instance
		return sandbox.Info{}, ownership.NotHere(&ownership.Elsewhere{})
	}
	kind := sandbox.EventSandboxHibernated
	info, err := l.orders.SaveHibernated(inst)
	if err != nil {
		kind = sandbox.EventSandboxEnded
		err = sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be kept")
	}
	rec := audit.About(c, inst.Thread, action, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(inst.ID), inst.Template.Name, "ok", why
	if e := l.audit.AppendResult(context.WithoutCancel(ctx), rec); err == nil {
		err = e
	}
	l.metrics.Changed(action, why)
	l.teardown.Remove(ctx, inst)
	l.teardown.tell(inst, kind, why)
	return info, err
}

// Started tells followers that an instance runs.
func (l *Lifecycle) Started(inst *instance.Instance) {
	l.teardown.tell(inst, sandbox.EventSandboxStarted, "")
}

// Left counts an exec out of its instance, which was its last one when the instance is too old. What runs in a second
// instance counts in the thread's own, too.
func (l *Lifecycle) Left(inst *instance.Instance) {
	inst.Leave()
	if inst.Main != nil {
		l.LeftFor(inst.Main)
	}
	if inst.BeginStop(func(u instance.Usage) bool { return u.OverAge && u.Running == 0 }) {
		l.stopLater(inst, audit.ActionSandboxHibernate, "age")
	}
}

// LeftFor counts a script, which ran in a second instance or was to, out of the thread's own.
func (l *Lifecycle) LeftFor(main *instance.Instance) {
	if main.FileSync != nil {
		main.EndLoan()
	}
	l.Left(main)
}

// Active notes that a thread was used, if the configuration counts that.
func (l *Lifecycle) Active(t sandbox.Thread, kind string) {
	if !slices.Contains(l.bounds.Activity, kind) {
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
	inst, asleep, err := l.Existing(ctx, c, id)
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
	ctx, cancel := deadline.Detached(ctx, CleanupTimeout)
	defer cancel()
	return l.changePause(ctx, c, inst, audit.ActionSandboxPause, "asked", func() error { return p.Pause(ctx, inst.ID) }, func() {
		inst.ChangeState(sandbox.Paused, sandbox.Running)
	})
}

// SandboxLoad says what the thread's sandbox uses.
func (l *Lifecycle) SandboxLoad(ctx context.Context, c sandbox.Caller, id string) (sandbox.Load, error) {
	inst, asleep, err := l.Existing(ctx, c, id)
	if err != nil {
		return sandbox.Load{}, err
	}
	if asleep != nil {
		return sandbox.Load{}, sandbox.Errorf(sandbox.Conflict, "the sandbox is hibernated: it uses nothing")
	}
	m, ok := l.driver.(driver.Meter)
	if !ok {
		return sandbox.Load{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s does not measure a sandbox", l.caps.Name)
	}
	used, err := m.Load(ctx, inst.ID)
	return sandbox.Load{At: time.Now().UTC(), CPU: used.CPU, Memory: used.Memory, PIDs: used.PIDs, Limits: inst.Template.Limits}, err
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
	l.teardown.tell(inst, map[string]sandbox.ThreadEventKind{audit.ActionSandboxPause: sandbox.EventSandboxPaused, audit.ActionSandboxResume: sandbox.EventSandboxResumed}[action], why)
	if err == nil {
		err = l.hooks.Publish(ctx, inst)
	}
	return inst.Info(), err
}

// Wake thaws an instance if it is paused.
func (l *Lifecycle) Wake(ctx context.Context, c sandbox.Caller, inst *instance.Instance, why string) (sandbox.Info, error) {
	inst.PauseMu.Lock()
	defer inst.PauseMu.Unlock()
	if info := inst.Info(); info.State != sandbox.Paused {
		return info, nil
	}
	p, ok := l.driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot resume a sandbox", l.caps.Name)
	}
	ctx, cancel := deadline.Detached(ctx, CleanupTimeout)
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

// Hibernate ends the container and keeps the files and the saved spec of the sandbox. The next call that
// needs a sandbox starts it again. A hibernated one stays so. Conflict: execs run in it; with force they end
// as killed. NotFound: the thread has none.
func (l *Lifecycle) Hibernate(ctx context.Context, c sandbox.Caller, id string, force bool) (sandbox.Info, error) {
	inst, asleep, err := l.Existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if asleep != nil {
		return *asleep, nil
	}
	busy := 0
	if inst.BeginStop(func(u instance.Usage) bool { busy = u.Running; return force || busy == 0 }) {
		return l.stop(ctx, c, inst, audit.ActionSandboxHibernate, "asked")
	}
	if busy > 0 {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Conflict, "%d execs run in the sandbox: wait for them, or send \"force\": true, which ends them", busy)
	}
	select { // it is being ended already
	case <-inst.Gone:
	case <-ctx.Done():
		return sandbox.Info{}, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
	}
	if saved := l.specs.Head(inst.Thread); saved != nil && saved.Hibernated != nil {
		return *saved.Hibernated, nil
	}
	return sandbox.Info{}, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}

// Existing returns the thread's instance when there is one, ready, or its hibernated sandbox. It starts none.
func (l *Lifecycle) Existing(ctx context.Context, c sandbox.Caller, id string) (*instance.Instance, *sandbox.Info, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, nil, err
	}
	if err := l.threads.Exists(ctx, t); err != nil {
		return nil, nil, err
	}
	if inst := l.live.Find(t); inst != nil {
		return inst, nil, l.queue.WaitReady(ctx, inst, 0)
	}
	if saved := l.specs.Head(t); saved != nil && saved.Hibernated != nil {
		return nil, saved.Hibernated, nil
	}
	return nil, nil, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
}

// CleanupTimeout bounds records and releases that must outlive the request they belong to.
const CleanupTimeout = 10 * time.Second
