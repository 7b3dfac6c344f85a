package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// Starts brings instances up: it finds the instance of a thread, or starts one, in a new sandbox or in one of the pool.
type Starts struct {
	Lifecycle *Lifecycle
	Shutdown  *Shutdown
	Skills    *mounted.Skills
	audit     *audit.Log
	ctx       context.Context
	execs     *execution.Registry
	hooks     *hooks.Hooks
	live      *instance.Map
	log       *slog.Logger
	orders    *orders
	owners    *ownership.Owners
	pool      *pool.Pool
	queue     *queue
	startTime time.Duration
	store     *store.Store
	teardown  *teardown
	threads   *threads.Threads
	wg        *sync.WaitGroup
	narrowing *Narrowing
	maker     *maker
}

// Acquire returns the thread's sandbox and starts it when there is none. Many callers at once get one.
func (s *Starts) Acquire(ctx context.Context, c sandbox.Caller, id string, o sandbox.AcquireOptions) (sandbox.Info, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if err := s.Shutdown.refuse(t); err != nil {
		return sandbox.Info{}, err
	}
	if _, ok := s.orders.templates[o.Template]; !ok && o.Template != "" {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Invalid, "there is no template %.80q; GET /api/templates lists them", o.Template)
	}
	if err := sandbox.CheckEnv("env", o.Env); err != nil {
		return sandbox.Info{}, err
	}
	if err := s.Skills.Narrow(ctx, t, o.Skills); err != nil {
		return sandbox.Info{}, err
	}
	if err := s.narrowing.narrowCapabilities(ctx, c, t, o.Capabilities); err != nil {
		return sandbox.Info{}, err
	}
	newEnv := false
	inst, err := s.join(ctx, c, t, o.Template, o.Wait, func(inst *instance.Instance) {
		newEnv = o.Env != nil && inst.SetEnvironment(o.Env)
	})
	if err != nil && !errors.Is(err, errStillStarting) {
		if o.Skills != nil || o.Capabilities != nil { // what was narrowed is there, sandbox or not
			_, e := s.threads.Ensure(context.WithoutCancel(ctx), t)
			err = errors.Join(err, e)
		}
		return sandbox.Info{}, err
	}
	if newEnv { // of a starting one it is kept when it runs
		s.orders.saveOrder(inst)
	}
	s.Lifecycle.active(t, ActivityAcquire)
	if o.Skills != nil && inst.IsReady() {
		s.Skills.ShowNow(ctx, inst)
	}
	return inst.Info(), s.remember(ctx, t, o)
}

// remember writes down what the caller wants of the thread beyond the life of this sandbox.
func (s *Starts) remember(ctx context.Context, t sandbox.Thread, o sandbox.AcquireOptions) error {
	if o.Labels == nil && o.Mode == "" {
		return nil
	}
	if _, err := s.threads.Ensure(ctx, t); err != nil { // the start may not have come to that yet
		return err
	}
	info, err := s.store.Thread(ctx, t)
	if err != nil {
		return err
	}
	before := info
	if o.Labels != nil {
		info.Labels = o.Labels
	}
	if o.Mode != "" {
		info.Mode = o.Mode
	}
	if info.Mode == before.Mode && maps.Equal(info.Labels, before.Labels) {
		return nil
	}
	return s.store.PutThread(ctx, info)
}

// instance finds the thread's instance or puts a new one in, whose start goes on in the background. An instance that
// is being removed is waited for by the start of the new one.
func (s *Starts) instanceFor(c sandbox.Caller, t sandbox.Thread, o order) (*instance.Instance, error) {
	var old, made *instance.Instance
	inst, err := s.live.Put(t, func(former *instance.Instance) (next *instance.Instance, err error) {
		if former != nil && former.Ending() == "" {
			return former, nil
		}
		old = former
		made, err = s.maker.newInstance(t, o, former)
		return made, err
	})
	if made != nil {
		s.wg.Go(func() { s.begin(c, made, old) })
	}
	return inst, err
}

// newInstance makes the next instance of a thread, with its place. It runs in instance.Map.Put.
func (m *maker) newInstance(t sandbox.Thread, o order, former *instance.Instance) (*instance.Instance, error) {
	tmpl := o.template
	var place *capacity.Ticket
	var x *instance.Pooled
	onVolume := m.onVolume(t)
	if former == nil && !onVolume { // a volume cannot be added to a sandbox that waits
		x, place = m.takePooled(t, o)
	}
	if x == nil {
		var err error
		if place, err = m.queue.takePlace(t, former); err != nil {
			return nil, err
		}
	}
	now := time.Now().UTC()
	info := sandbox.Info{
		ID: sandbox.NewID(), State: sandbox.Starting, Template: tmpl.Name, Driver: m.caps.Name, Runtime: tmpl.Runtime,
		CreatedAt: now, IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: tmpl.Loosened,
	}
	if x != nil {
		info.ID, info.Warm = x.ID, true
	}
	inst := instance.NewStarting(t, tmpl, info, o.env)
	inst.Seat.Slot = place
	if x != nil {
		inst.Pooled, inst.Dir, inst.FileSync = x, x.Dir, x.FileSync
		inst.Link, inst.Client, inst.Skills.Folder = x.Link, x.Client, x.Skills.Folder
		inst.FileSync.Shut()
	} else {
		inst.Dir = instance.RunDir(filepath.Join(m.runRoot, string(inst.ID)))
		inst.FileSync = m.copies.Sync(inst.ID)
	}
	if onVolume {
		inst.FileSync.OnVolume = true
	}
	m.copies.AskContexts(inst)
	return inst, nil
}

var errStillStarting = sandbox.Errorf(sandbox.Timeout, "the sandbox is still starting")

// join returns the thread's instance when it is ready, of the template that is named, or of any when none is. use
// is called with the instance before it is waited for; nil: nothing is. On errStillStarting the instance is there.
func (s *Starts) join(ctx context.Context, c sandbox.Caller, t sandbox.Thread, named string, wait time.Duration, use func(*instance.Instance)) (*instance.Instance, error) {
	cold := false
	for {
		inst := s.live.Find(t)
		if inst == nil || inst.Ending() != "" {
			err := s.threads.Restore(ctx, t, true)
			if err != nil {
				return nil, err
			}
			o := s.orders.order(t, named)
			o.cold = cold
			if inst, err = s.instanceFor(c, t, o); err != nil {
				return nil, err
			}
		}
		if named != "" && named != inst.Template.Name {
			return nil, sandbox.Errorf(sandbox.Conflict, "the thread has a sandbox of template %q; delete it first to get one of %q", inst.Template.Name, named)
		}
		if use != nil {
			use(inst)
		}
		err := s.queue.waitReady(ctx, inst, wait)
		if cold = cold || errors.Is(err, hooks.ErrNotFilled); !errors.Is(err, hooks.ErrNotFilled) && !errors.Is(err, instance.ErrGivenUp) {
			return inst, err
		}
	}
}

// start brings the instance up and tells its waiters. When it fails nothing is left over.
func (s *Starts) start(ctx context.Context, c sandbox.Caller, inst *instance.Instance, former *instance.Instance) {
	began := inst.Asked
	if former != nil {
		select {
		case <-former.Gone:
		case <-ctx.Done():
		}
	}
	queued := time.Now()
	way, action := hooks.Cold, audit.ActionSandboxCreate
	if inst.Pooled != nil {
		way, action = hooks.Claimed, audit.ActionSandboxClaim
	} else {
		defer s.pool.Cold()()
	}
	rec := audit.About(c, inst.Thread, action, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(inst.ID), inst.Template.Name
	instance.RecordLoosened(&rec, inst.Template.Loosened)
	attempt, err := s.audit.Append(ctx, rec)
	if err == nil {
		err = s.hooks.Up(ctx, &hooks.Start{Way: way, Instance: inst, Caller: c, Queued: queued.Sub(began)})
	}
	result := audit.About(c, inst.Thread, action, audit.PhaseResult)
	result.Sandbox, result.Subject, result.Parent = string(inst.ID), inst.Template.Name, attempt.ID
	result.Millis, result.Outcome = time.Since(began).Milliseconds(), "ok"
	if err != nil {
		result.Outcome, result.Detail = "error", string(sandbox.KindOf(err))
	}
	if _, e := s.audit.Append(context.WithoutCancel(ctx), result); e != nil && err == nil {
		err = e
	}
	s.queue.measureStart(inst, err)
	if err != nil {
		s.log.Error("sandbox did not start", "thread", inst.Thread.String(), "sandbox", string(inst.ID), "error", err)
		inst.Err = err
		inst.End(sandbox.StatusLost)
		s.teardown.remove(ctx, inst)
	}
	close(inst.Ready)
}

// retire ends the sandbox of an instance, once; its execs end with status. It returns when all of it is gone.
func (d *teardown) retire(ctx context.Context, c sandbox.Caller, inst *instance.Instance, status sandbox.Status, why string) error {
	inst.Turn.GiveUp(sandbox.Errorf(sandbox.Conflict, "the sandbox was %s before it started", why)) // an instance that waits for its place
	select {                                                                                        // an instance that is starting is not pulled from under its start
	case <-inst.Ready:
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
	}
	if inst.Ownership != nil && inst.Err == nil && !d.owners.Confirm(inst.Ownership) {
		return nil // it is another server's now
	}
	if !inst.StopAs(status) {
		select {
		case <-inst.Gone:
			return nil
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
		}
	}
	rec := audit.About(c, inst.Thread, audit.ActionSandboxRemove, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(inst.ID), inst.Template.Name, "ok", why
	err := d.audit.AppendResult(context.WithoutCancel(ctx), rec)
	d.metrics.Changed(audit.ActionSandboxRemove, string(status))
	d.remove(ctx, inst)
	return err
}

// remove takes away all of an instance whose ending is set, and takes it out of the map.
func (d *teardown) remove(ctx context.Context, inst *instance.Instance) {
	d.hooks.Down(ctx, inst)
	d.leaveMap(inst)
}

// watch ends the instances whose sandbox died.
func (d *teardown) watch(events <-chan driver.Event) {
	for ev := range events {
		if ev.State != sandbox.Lost {
			continue
		}
		if d.pool.Ended(ev.ID) {
			continue
		}
		if inst := d.live.FindID(ev.ID); inst != nil { // after: a sandbox that was claimed from the pool meanwhile is here
			d.wg.Go(func() { d.died(inst, ev.OOM) })
		}
	}
}

// died retires an instance whose sandbox ended by itself. When it ran out of memory, its execs say so.
func (d *teardown) died(inst *instance.Instance, oom bool) {
	status, why := sandbox.StatusLost, "the sandbox ended by itself"
	if oom {
		status, why = sandbox.StatusOOM, "the sandbox ran out of memory"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), d.startTime+removeTimeout)
	defer cancel()
	if err := d.retire(ctx, sandbox.Caller{}, inst, status, why); err != nil {
		d.log.Error("dead sandbox not retired", "thread", inst.Thread.String(), "error", err)
	}
}

// Templates lists what a sandbox can be made from.
func (s *Starts) Templates() []sandbox.Template {
	list := make([]sandbox.Template, 0, len(s.orders.templates))
	for _, t := range s.orders.templates {
		list = append(list, t.Template)
	}
	slices.SortFunc(list, func(a, b sandbox.Template) int { return strings.Compare(a.Name, b.Name) })
	return list
}
