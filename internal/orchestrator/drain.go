package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// endTimeout bounds ending what still runs after a drain: sandboxd gives a tree about three seconds.
	endTimeout = 5 * time.Second
	drainLook  = 20 * time.Millisecond
)

var errStopping error = &sandbox.Error{
	Kind: sandbox.Unavailable, NotStarted: true, Detail: "this server is stopping and takes no new work; try again, it comes back or another one answers",
}

// Draining reports whether the server is stopping.
func (r *Orchestrator) Draining() bool { return r.draining.Load() != nil }

// refuse is the answer to new work for a thread while the server stops. A thread that is still here, while others are
// there to go on with it, has its work done here until it is handed over.
func (r *Orchestrator) refuse(t sandbox.Thread) error {
	d := r.draining.Load()
	if d == nil || d.passOn && r.owners.Owns(t) {
		return nil
	}
	return errStopping
}

// Drain ends this server's work. When other servers take work, threads are handed over to them, each as soon as nothing
// runs for it, and new work is passed on. When there are none, new work is refused, and sandboxes go on without a server. It
// returns when no exec runs and nothing is left to hand over. When ctx's deadline passes first, what
// still runs is ended as killed; when ctx is cancelled, it is left alone: the next server ends it as lost. Draining
// twice does nothing more.
func (r *Orchestrator) Drain(ctx context.Context) {
	d := &drain{passOn: r.drainTargets.One(ctx) != "", until: r.lastEntry(ctx)}
	if !r.draining.CompareAndSwap(nil, d) {
		return
	}
	r.takeover.Stop()
	r.endStreams()
	if !d.passOn {
		r.execs.Close()
		for _, inst := range r.live.All() {
			inst.Turn.GiveUp(errStopping)
		}
	}
	began, running := time.Now(), r.execs.Running()
	left := r.quiet(ctx)
	killed := 0
	if left > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		killed = r.endAll(ctx)
	}
	r.execs.Close()
	rec := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionServerDrain, audit.PhaseResult)
	rec.Outcome, rec.Millis = "ok", time.Since(began).Milliseconds()
	rec.Detail = fmt.Sprintf("%d execs ran, %d were ended, %d left", running, killed, r.execs.Running())
	if n := d.handed.Load(); n > 0 {
		rec.Detail += fmt.Sprintf(", %d threads were handed over", n)
	}
	if err := r.o.Audit.AppendResult(context.WithoutCancel(ctx), rec); err != nil {
		r.o.Log.Error("the end of the drain is not recorded", "error", err)
	}
	r.o.Log.Info("drained", "ran", running, "ended", killed, "handed over", d.handed.Load(), "took", time.Since(began).Round(time.Millisecond))
}

// quiet waits until no exec runs and all threads are handed over that can be, or until ctx ends, and returns how many
// execs still run.
func (r *Orchestrator) quiet(ctx context.Context) int {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for {
		threads := r.handOverAll(ctx)
		n := r.execs.Running()
		if n+threads == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return n
		case <-tick.C:
		}
	}
}

// endAll kills every exec that runs and waits, for a bounded time, until their ends are recorded, so that
// those who follow them see the end before the server goes. It returns how many it could kill.
func (r *Orchestrator) endAll(ctx context.Context) int {
	ctx, cancel := deadline.Detached(ctx, endTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	killed := 0
	for _, e := range r.execs.Unfinished() {
		wg.Go(func() {
			inst := r.live.Find(e.Thread)
			if inst == nil || e.WaitBegun(ctx) != nil {
				return
			}
			e.EndBecause("the server stopped")
			if err := inst.Client.Kill(ctx, e.ID); err != nil {
				r.o.Log.Warn("exec not ended; the next server does", "exec", e.ID, "error", err)
				return
			}
			mu.Lock()
			killed++
			mu.Unlock()
		})
	}
	wg.Wait()
	if killed > 0 {
		r.quiet(ctx)
	}
	return killed
}
