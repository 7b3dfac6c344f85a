package start

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// Starts starts instances: it finds the instance of a thread, or starts one, in a new sandbox or in one of
// the pool.
type Starts struct {
	lifecycle *lifecycle.Lifecycle
	drain     *drain.Drain
	skills    *mounted.Skills
	audit     *audit.Log
	ctx       context.Context
	execs     *execution.Registry
	hooks     *hooks.Hooks
	live      *instance.Map
	log       *slog.Logger
	orders    *lifecycle.Orders
	owners    *ownership.Owners
	pool      *pool.Pool
	queue     *lifecycle.Queue
	startTime time.Duration
	store     *store.Store
	teardown  *lifecycle.Teardown
	threads   *threads.Threads
	wg        *sync.WaitGroup
	narrowing *narrower
	Maker     *Maker
}

// begin waits for the place of a new instance, and starts it. While it waits the thread is ours, so that all who
// ask for its sandbox come here.
func (s *Starts) begin(c sandbox.Caller, inst *instance.Instance, former *instance.Instance) {
	if !inst.Seat.Slot.Held() && inst.Main == nil {
		ctx, cancel := context.WithTimeout(s.ctx, ownership.TakeTimeout)
		own, err := s.owners.Acquire(ctx, inst.Thread, "")
		cancel()
		if err != nil {
			inst.Turn.GiveUp(ownership.NotHere(err))
		} else {
			defer s.owners.Release(own)
		}
	}
	if err := s.queue.LetIn(c, inst, former); err != nil {
		inst.Turn.GiveUp(err)
		s.dismiss(inst, err)
		return
	}
	if err := s.queue.AwaitSlot(inst); err != nil {
		s.dismiss(inst, err)
		return
	}
	if waited := time.Since(inst.Asked); waited > lifecycle.QueueNoted && former == nil {
		s.queue.Note(c, inst, waited, nil)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.startTime)
	defer cancel()
	s.start(ctx, c, inst, former)
	if inst.Main == nil {
		s.orders.Save(inst)
	}
}

// dismiss takes away an instance that was never started. A sandbox that waited for it is removed: it left the pool
// when the thread took it, so nothing else knows it.
func (s *Starts) dismiss(inst *instance.Instance, err error) {
	s.queue.Note(sandbox.Caller{}, inst, time.Since(inst.Asked), err)
	inst.Err = err
	if inst.Pooled == nil {
		s.teardown.Forget(inst)
	} else {
		inst.End(sandbox.StatusLost)
		s.teardown.Remove(s.ctx, inst)
	}
	close(inst.Ready)
}

// enterTries bounds how often an instance may be put away, or paused, between being ready and being entered.
const enterTries = 10

// Enter returns the thread's running instance with an exec counted in, and the environment that all execs have.
// An instance that is paused is resumed; when there is none, one is acquired: as the last one was, or else of
// the default template.
func (s *Starts) Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	return s.enter(ctx, c, t, (*instance.Instance).Enter)
}

// enter is Enter; count counts the exec in.
func (s *Starts) enter(
	ctx context.Context, c sandbox.Caller, t sandbox.Thread, count func(*instance.Instance) (map[string]string, error),
) (*instance.Instance, map[string]string, error) {
	var err error
	for range enterTries {
		if err := s.drain.Refuse(t); err != nil {
			return nil, nil, err
		}
		var inst *instance.Instance
		var env map[string]string
		if inst, err = s.Join(ctx, c, t, "", 0, nil); err == nil {
			if env, err = count(inst); err == nil {
				if s.execs.Begin() {
					return inst, env, nil
				}
				s.lifecycle.Left(inst)
				return nil, nil, lifecycle.ErrStopping
			}
		}
		switch {
		case errors.Is(err, sandbox.SandboxLost) && inst != nil && inst.Ending() != "" && inst.Err == nil: // another one is started
		case errors.Is(err, instance.ErrPaused):
			if _, err := s.lifecycle.Wake(ctx, c, inst, "an exec"); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, err
		}
	}
	return nil, nil, err
}

// Acquire returns the thread's sandbox and starts it when there is none. Many callers at once get one.
func (s *Starts) Acquire(ctx context.Context, c sandbox.Caller, id string, o sandbox.AcquireOptions) (sandbox.Info, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if err := s.drain.Refuse(t); err != nil {
		return sandbox.Info{}, err
	}
	if _, ok := s.orders.Templates[o.Template]; !ok && o.Template != "" {
		return sandbox.Info{}, sandbox.Errorf(sandbox.Invalid, "there is no template %.80q; GET /api/templates lists them", o.Template)
	}
	if err := s.orders.Admit(t, o.Env); err != nil {
		return sandbox.Info{}, err
	}
	if err := s.skills.Narrow(ctx, t, o.Skills); err != nil {
		return sandbox.Info{}, err
	}
	if err := s.narrowing.narrow(ctx, c, t, o.Capabilities); err != nil {
		return sandbox.Info{}, err
	}
	newEnv := false
	inst, err := s.Join(ctx, c, t, o.Template, o.Wait, func(inst *instance.Instance) {
		newEnv = o.Env != nil && inst.Saved.SetEnv(o.Env)
	})
	if err != nil && !errors.Is(err, lifecycle.ErrStillStarting) {
		if o.Skills != nil || o.Capabilities != nil { // what was narrowed is there, sandbox or not
			_, e := s.threads.Ensure(context.WithoutCancel(ctx), t)
			err = errors.Join(err, e)
		}
		return sandbox.Info{}, err
	}
	if newEnv { // of a starting one it is kept when it runs
		s.orders.Save(inst)
	}
	s.lifecycle.Active(t, lifecycle.ActivityAcquire)
	if o.Skills != nil && inst.IsReady() {
		s.skills.ShowNow(ctx, inst)
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
	_, err := s.store.ChangeThread(ctx, t, func(info *sandbox.ThreadInfo, found bool) error {
		if !found { // it was deleted just now
			return sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
		}
		if o.Labels != nil {
			info.Labels = o.Labels
		}
		if o.Mode != "" {
			info.Mode = o.Mode
		}
		return nil
	})
	return err
}

// instance finds the thread's instance or puts a new one in, whose start goes on in the background. An instance that
// is being removed is waited for by the start of the new one.
func (s *Starts) instanceFor(c sandbox.Caller, t sandbox.Thread, o lifecycle.Order) (*instance.Instance, error) {
	var old, made *instance.Instance
	inst, err := s.live.Put(t, func(former *instance.Instance) (next *instance.Instance, err error) {
		if former != nil && former.Ending() == "" {
			return former, nil
		}
		old = former
		made, err = s.Maker.newInstance(t, o, former)
		return made, err
	})
	if made != nil {
		s.wg.Go(func() { s.begin(c, made, old) })
	}
	return inst, err
}

// Join returns the thread's instance when it is ready, of the template that is named, or of any when none is. use
// is called with the instance before it is waited for; nil: nothing is. On errStillStarting the instance is there.
func (s *Starts) Join(ctx context.Context, c sandbox.Caller, t sandbox.Thread, named string, wait time.Duration, use func(*instance.Instance)) (*instance.Instance, error) {
	cold := false
	for {
		inst := s.live.Find(t)
		if inst == nil || inst.Ending() != "" {
			err := s.threads.Restore(ctx, t, true)
			if err != nil {
				return nil, err
			}
			o := s.orders.Next(t, named)
			o.Cold = cold
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
		err := s.queue.WaitReady(ctx, inst, wait)
		if cold = cold || errors.Is(err, hooks.ErrNotFilled); !errors.Is(err, hooks.ErrNotFilled) && !errors.Is(err, instance.ErrGivenUp) {
			return inst, err
		}
	}
}

// start starts the instance and tells its waiters. When it fails nothing is left over.
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
		err = s.hooks.Up(ctx, &hooks.Start{Way: way, Instance: inst, Caller: c, Queued: queued.Sub(began), MakeWay: s.pool.MakeWay})
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
	s.queue.Measure(inst, err)
	if err != nil {
		s.log.Error("sandbox did not start", "thread", inst.Thread.String(), "sandbox", string(inst.ID), "error", err)
		inst.Err = err
		inst.End(sandbox.StatusLost)
		s.teardown.Remove(ctx, inst)
	} else {
		s.lifecycle.Started(inst)
	}
	close(inst.Ready)
}

// Templates lists what a sandbox can be made from.
func (s *Starts) Templates() []sandbox.Template {
	list := make([]sandbox.Template, 0, len(s.orders.Templates))
	for _, t := range s.orders.Templates {
		shown := t.Template
		shown.Image = t.Image
		list = append(list, shown)
	}
	slices.SortFunc(list, func(a, b sandbox.Template) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Resume thaws a paused sandbox and starts a hibernated one again. A running one stays as it is. NotFound:
// the thread has none.
func (s *Starts) Resume(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	inst, asleep, err := s.lifecycle.Existing(ctx, c, id)
	if err == nil && (asleep != nil || inst.Ending() != "") {
		if t := (sandbox.Thread{Owner: c.Owner, ID: id}); s.drain.Refuse(t) == nil {
			inst, err = s.Join(ctx, c, t, "", 0, nil)
		} else {
			err = lifecycle.ErrStopping
		}
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	return s.lifecycle.Wake(ctx, c, inst, "asked")
}
