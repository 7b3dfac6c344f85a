package load

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// loadEvery is the time between two looks.
	loadEvery = 100 * time.Millisecond
	// loadTimeout bounds one look: two small files, or for the first one a question to the engine.
	loadTimeout = 5 * time.Second
	// loadAgain is how long after a look that failed the next one is.
	loadAgain = time.Second
	// lastTimeout bounds the last look at a sandbox that is about to go.
	lastTimeout = 2 * time.Second
	// weighTimeout bounds a change of weight: a small file, or a call of the engine.
	weighTimeout = 10 * time.Second
	// weighAgain is how long after a change that failed it is tried again.
	weighAgain = 5 * time.Second

	// heavyCores is what a sandbox computes all the time that is to count less, and half its limit if that is less.
	// It must do so for heavyTime: longer than an interpreter takes to start. It counts as before when it
	// computed less than half of that for lightTime.
	heavyCores = 0.5
	heavyTime  = 200 * time.Millisecond
	lightTime  = time.Second

	// A fork bomb is refused tens of thousands of processes a second. A program that is refused some does without,
	// waits, or ends: forkTime, forkRefusals and forkPause (without a refusal, it begins anew) keep away from those.
	forkTime     = time.Second
	forkRefusals = 300
	forkPause    = 500 * time.Millisecond
	// forkAnswer bounds the question which exec forks, and forkEnd the end of its tree. sandboxd works ahead of
	// what it supervises, but shares its limits. A sandbox in which that does not help is ended.
	forkAnswer = 2 * time.Second
	forkEnd    = 10 * time.Second
)

// Contexts are the interpreters of threads: a living one may compute without an exec.
type Contexts interface {
	Living(t sandbox.Thread) int
}

// Sandboxes are those of this server, as a Watcher sees them.
type Sandboxes interface {
	// Kill ends a sandbox for a reason that its record says. It does not wait.
	Kill(inst *instance.Instance, why string)
}

// Options are the parts that a Watcher works with.
type Options struct {
	Driver    driver.Driver
	Execs     *execution.Registry
	Contexts  Contexts
	Sandboxes Sandboxes
	// Limits count CPU time; nil: there are none.
	Limits *limits.Gate
	Log    *slog.Logger
	// Group counts what runs in the background, which ends with the context.
	Group *sync.WaitGroup
}

// Watcher watches the load of instances. A driver that cannot measure has none.
type Watcher struct {
	o       Options
	ctx     context.Context // ends with the server
	meter   driver.Meter    // nil: the driver cannot measure
	weigher driver.Weigher  // nil: it cannot change weights
}

// New returns a watcher that watches nothing yet.
func New(ctx context.Context, o Options) *Watcher {
	w := &Watcher{o: o, ctx: ctx}
	w.meter, _ = o.Driver.(driver.Meter)
	w.weigher, _ = o.Driver.(driver.Weigher)
	return w
}

// Watch watches the load of an instance as long as something may run in it.
func (w *Watcher) Watch(inst *instance.Instance) {
	if w.meter != nil && inst.Load.Watch() {
		w.o.Group.Go(func() { w.follow(inst) })
	}
}

// mayStop ends the watch when nothing can run in the instance. The next exec begins another one.
func (w *Watcher) mayStop(inst *instance.Instance) bool {
	living := w.o.Contexts.Living(inst.Thread)
	return inst.Load.Unwatch(func() bool { return living == 0 && !inst.Busy() })
}

// follow watches one instance. It ends when the instance does, with the server, or when nothing can run in it.
func (w *Watcher) follow(inst *instance.Instance) {
	u := burden{limit: inst.Template.Limits.CPUMillis}
	for {
		if inst.Ending() != "" {
			return
		}
		wait := loadEvery
		load, err := w.look(inst)
		switch sandbox.KindOf(err) {
		case "":
			u.look(time.Now(), load)
			w.countCPU(inst, load.CPU)
		case sandbox.NotFound: // it is gone, or about to be
			inst.Load.Stop()
			return
		case sandbox.NotSupported: // and it never will be
			w.o.Log.Debug("the load of a sandbox is not seen", "sandbox", string(inst.ID), "error", err)
			inst.Load.SetUnmetered()
			w.weigh(inst, &u)
			return
		default:
			wait = loadAgain
		}
		w.weigh(inst, &u)
		if u.forks.bomb() {
			w.endForkBomb(inst, u.forks.seen)
			u.forks = forks{last: u.forks.last}
		}
		select {
		case <-w.ctx.Done():
			return
		case <-inst.Gone:
			return
		case <-time.After(wait):
		}
		if w.mayStop(inst) {
			return
		}
	}
}

func (w *Watcher) look(inst *instance.Instance) (driver.Load, error) {
	ctx, cancel := context.WithTimeout(w.ctx, loadTimeout)
	defer cancel()
	return w.meter.Load(ctx, inst.ID)
}

// weigh sets the weight that an instance is to have, when that is another one.
func (w *Watcher) weigh(inst *instance.Instance, u *burden) {
	want := u.weight()
	if w.weigher == nil || inst.Load.Shares() == want || inst.Ending() != "" || time.Now().Before(u.notBefore) {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, weighTimeout)
	defer cancel()
	if err := w.weigher.Weigh(ctx, inst.ID, want); err != nil {
		if w.ctx.Err() == nil && inst.Ending() == "" {
			w.o.Log.Warn("sandbox not weighed; tried again", "thread", inst.Thread.String(), "weight", int(want), "error", err)
		}
		want, u.notBefore = 0, time.Now().Add(weighAgain) // which one it has is unknown
	}
	inst.Load.SetShares(want)
}

// endForkBomb ends the exec in an instance that has the most processes. When there is none, or that does not help, the sandbox
// is ended.
func (w *Watcher) endForkBomb(inst *instance.Instance, refused uint64) {
	limit := inst.Template.Limits.PIDs
	why := fmt.Sprintf("it went on starting processes at the limit of %d that the sandbox may have (limits.pids)", limit)
	e := w.mostTasks(inst)
	log := w.o.Log.With("thread", inst.Thread.String(), "sandbox", string(inst.ID), "refused", refused)
	if e != nil {
		e.EndBecause(why)
		ctx, cancel := context.WithTimeout(w.ctx, forkEnd)
		defer cancel()
		err := inst.Conn.Client.Kill(ctx, e.ID)
		if err == nil || sandbox.KindOf(err) == sandbox.NotFound {
			log.Warn("exec ended: "+why, "exec", e.ID)
			return
		}
		if inst.Ending() != "" { // all of it is being ended
			return
		}
		log.Warn("exec not ended", "exec", e.ID, "error", err)
	}
	if w.ctx.Err() != nil {
		return
	}
	log.Warn("sandbox ended: " + why)
	w.o.Sandboxes.Kill(inst, why)
}

// mostTasks returns the running exec of an instance with the most processes and threads, as sandboxd says; the newest one when
// it does not say. nil: none runs.
func (w *Watcher) mostTasks(inst *instance.Instance) *execution.Exec {
	var most *execution.Exec
	all := w.o.Execs.RunningIn(inst.Thread)
	var tasks map[string]uint32
	if len(all) > 1 {
		ctx, cancel := context.WithTimeout(w.ctx, forkAnswer)
		defer cancel()
		var err error
		if tasks, err = inst.Conn.Client.Tasks(ctx); err != nil {
			w.o.Log.Warn("processes not counted", "thread", inst.Thread.String(), "error", err)
		}
	}
	for _, e := range all {
		if most == nil || tasks[e.ID] > tasks[most.ID] || tasks[e.ID] == tasks[most.ID] && e.Started.After(most.Started) {
			most = e
		}
	}
	return most
}

// countCPU counts what a sandbox has computed, as its driver measured it.
func (w *Watcher) countCPU(inst *instance.Instance, total time.Duration) {
	c, _ := inst.Load.Payer()
	c.Owner = inst.Thread.Owner
	w.o.Limits.CPU(c, inst.ID, total, inst.Asked.IsZero())
}

// CountExec counts an exec that ended, frees what it took of the limits, and counts its CPU time where no driver measures it.
func (w *Watcher) CountExec(inst *instance.Instance, e *execution.Exec, res *sandbox.Result) {
	inst.Own().Used.Count(time.Duration(res.DurationMillis) * time.Millisecond)
	if w.meter == nil || inst.Load.IsUnmetered() {
		w.o.Limits.CPUUsed(e.Caller, time.Duration(res.Usage.CPUMillis)*time.Millisecond)
	}
	e.Limits.Release()
}

// CountLast counts what a sandbox that is about to go has computed since it was last looked at.
func (w *Watcher) CountLast(ctx context.Context, inst *instance.Instance) {
	_, looked := inst.Load.Payer()
	if w.meter != nil && looked {
		ctx, cancel := context.WithTimeout(ctx, lastTimeout)
		defer cancel()
		if load, err := w.meter.Load(ctx, inst.ID); err == nil {
			w.countCPU(inst, load.CPU)
		}
	}
	w.o.Limits.ForgetCPU(inst.ID)
}
