package orchestrator

import (
	"context"
	"fmt"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What a sandbox does to its neighbours. Its limits bound what it takes, not how it takes it: while it computes all the
// time, all others wait behind its processes, and while it forks all the time, they wait for the kernel's locks that it
// holds. So what runs in it is watched: one that computes for long counts little until it stops, and an exec that
// goes on forking at the limit of processes is ended.

const (
	loadEvery = 100 * time.Millisecond
	// loadTimeout bounds one look: two small files, or for the first one a question to the engine.
	loadTimeout = 5 * time.Second
	// loadAgain is how long after a look that failed the next one is.
	loadAgain = time.Second
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

// watchLoad sees to it that the load of b is watched as long as something may run in it.
func (r *Orchestrator) watchLoad(inst *instance.Instance) {
	meter, ok := r.o.Driver.(driver.Meter)
	if !ok {
		return
	}
	if inst.Load.Watch() {
		r.wg.Go(func() { r.followLoad(inst, meter) })
	}
}

// mayStopWatching counts the one who watches out when nothing can run in b. The next exec brings another one.
func (r *Orchestrator) mayStopWatching(inst *instance.Instance) bool {
	contexts := r.Contexts.Living(inst.Thread)
	return inst.Load.Unwatch(func() bool { return contexts == 0 && !inst.Busy() })
}

// followLoad watches one instance. It ends when the instance does, with the server, or when nothing can run in it.
func (r *Orchestrator) followLoad(inst *instance.Instance, meter driver.Meter) {
	u := burden{limit: inst.Template.Limits.CPUMillis}
	for {
		if inst.Ending() != "" {
			return
		}
		wait := loadEvery
		load, err := r.lookAtLoad(inst, meter)
		switch sandbox.KindOf(err) {
		case "":
			u.look(time.Now(), load)
			r.countCPU(inst, load.CPU)
		case sandbox.NotFound: // it is gone, or about to be
			inst.Load.Stop()
			return
		case sandbox.NotSupported: // and it never will be: nobody tries again
			r.o.Log.Debug("the load of a sandbox is not seen", "sandbox", string(inst.ID), "error", err)
			inst.Load.SetUnmetered()
			r.weigh(inst, &u)
			return
		default:
			wait = loadAgain
		}
		r.weigh(inst, &u)
		if u.forks.bomb() {
			r.endForkBomb(inst, u.forks.seen)
			u.forks = forks{last: u.forks.last}
		}
		select {
		case <-r.ctx.Done():
			return
		case <-inst.Gone:
			return
		case <-time.After(wait):
		}
		if r.mayStopWatching(inst) {
			return
		}
	}
}

func (r *Orchestrator) lookAtLoad(inst *instance.Instance, meter driver.Meter) (driver.Load, error) {
	ctx, cancel := context.WithTimeout(r.ctx, loadTimeout)
	defer cancel()
	return meter.Load(ctx, inst.ID)
}

// weigh sets the weight that b is to have, when that is another one.
func (r *Orchestrator) weigh(inst *instance.Instance, u *burden) {
	weigher, ok := r.o.Driver.(driver.Weigher)
	want := u.weight()
	if !ok || inst.Load.Shares() == want || inst.Ending() != "" || time.Now().Before(u.notBefore) {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, weighTimeout)
	defer cancel()
	if err := weigher.Weigh(ctx, inst.ID, want); err != nil {
		if r.ctx.Err() == nil && inst.Ending() == "" {
			r.o.Log.Warn("sandbox not weighed; tried again", "thread", inst.Thread.String(), "weight", int(want), "error", err)
		}
		want, u.notBefore = 0, time.Now().Add(weighAgain) // nobody knows which one it has
	}
	inst.Load.SetShares(want)
}

// endForkBomb ends the exec in b that has the most processes. When there is none, or that does not help, the sandbox
// is ended.
func (r *Orchestrator) endForkBomb(inst *instance.Instance, refused uint64) {
	limit := inst.Template.Limits.PIDs
	why := fmt.Sprintf("it went on starting processes at the limit of %d that the sandbox may have (limits.pids)", limit)
	e := r.mostTasks(inst)
	log := r.o.Log.With("thread", inst.Thread.String(), "sandbox", string(inst.ID), "refused", refused)
	if e != nil {
		e.EndBecause(why)
		ctx, cancel := context.WithTimeout(r.ctx, forkEnd)
		defer cancel()
		err := inst.Client.Kill(ctx, e.ID)
		if err == nil || sandbox.KindOf(err) == sandbox.NotFound {
			log.Warn("exec ended: "+why, "exec", e.ID)
			return
		}
		if inst.Ending() != "" { // somebody else ends all of it
			return
		}
		log.Warn("exec not ended", "exec", e.ID, "error", err)
	}
	if r.ctx.Err() != nil {
		return
	}
	log.Warn("sandbox ended: " + why)
	// Not waited for here: who watches must not hold up the end of what it watches.
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), removeTimeout)
		defer cancel()
		if err := r.retire(ctx, sandbox.Caller{}, inst, sandbox.StatusKilled, why); err != nil {
			r.o.Log.Error("sandbox not retired", "thread", inst.Thread.String(), "error", err)
		}
	})
}

// mostTasks returns the running exec of b with the most processes and threads, as sandboxd says; the newest one when
// it does not say. nil: none runs.
func (r *Orchestrator) mostTasks(inst *instance.Instance) *execution.Exec {
	var most *execution.Exec
	all := r.execs.RunningIn(inst.Thread)
	var tasks map[string]uint32
	if len(all) > 1 {
		ctx, cancel := context.WithTimeout(r.ctx, forkAnswer)
		defer cancel()
		var err error
		if tasks, err = inst.Client.Tasks(ctx); err != nil {
			r.o.Log.Warn("processes not counted", "thread", inst.Thread.String(), "error", err)
		}
	}
	for _, e := range all {
		if most == nil || tasks[e.ID] > tasks[most.ID] || tasks[e.ID] == tasks[most.ID] && e.Started.After(most.Started) {
			most = e
		}
	}
	return most
}

// burden is what one who watches remembers of an instance.
type burden struct {
	limit      int64 // thousandths of a core
	last       driver.Load
	at         time.Time // of last; zero: there was none
	heavySince time.Time // zero: it is not
	lightSince time.Time // zero: it is not
	heavy      bool
	forks      forks
	notBefore  time.Time // it is not weighed
}

func (u *burden) look(now time.Time, load driver.Load) {
	before, last := u.at, u.last
	u.at, u.last = now, load
	if before.IsZero() {
		u.forks.last = load.Refused
		return
	}
	u.forks.look(now, load.Refused)
	cores := float64(load.CPU-last.CPU) / float64(max(now.Sub(before), 1))
	most := min(heavyCores, float64(u.limit)/2000)
	switch {
	case cores >= most:
		u.lightSince = time.Time{}
		if u.heavySince.IsZero() {
			u.heavySince = before
		}
		// Half a look less: the clock of the looks is not exact.
		u.heavy = u.heavy || now.Sub(u.heavySince) > heavyTime-loadEvery/2
	case cores < most/2:
		u.heavySince = time.Time{}
		if u.lightSince.IsZero() {
			u.lightSince = before
		}
		u.heavy = u.heavy && now.Sub(u.lightSince) < lightTime
	default:
		u.heavySince, u.lightSince = time.Time{}, time.Time{}
	}
}

// weight is what the instance is to count. While it forks beyond its limit it is not held back: its processes queue for locks
// of the kernel that neighbours need, too, and each must have run before the next one gets its turn.
func (u *burden) weight() driver.Weight {
	if u.heavy && u.forks.since.IsZero() {
		return driver.LowWeight
	}
	return driver.UsualWeight
}

// forks is what is remembered of the processes that a sandbox was refused.
type forks struct {
	last  uint64    // the kernel's count
	seen  uint64    // refusals since
	since time.Time // zero: there was none
	until time.Time // the newest one
}

func (f *forks) look(now time.Time, count uint64) {
	fresh := count - min(count, f.last)
	f.last = count
	switch {
	case fresh == 0 && now.Sub(f.until) > forkPause:
		f.since, f.seen = time.Time{}, 0
	case fresh > 0:
		if f.since.IsZero() {
			f.since = now
		}
		f.until = now
		f.seen += fresh
	}
}

// bomb reports whether they were too many for too long.
func (f *forks) bomb() bool {
	return !f.since.IsZero() && f.until.Sub(f.since) >= forkTime && f.seen >= forkRefusals
}
