package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// endTimeout bounds ending what still runs after a drain: sandboxd gives a tree about three seconds.
	endTimeout = 5 * time.Second
	drainLook  = 20 * time.Millisecond
)

var errStopping = sandbox.Errorf(sandbox.Unavailable, "this server is stopping and takes no new work; try again, it comes back or another one answers")

// Draining reports whether the server takes no new work any more.
func (r *Orchestrator) Draining() bool { return r.execs.closed() }

// refuse is the answer to new work while the server stops.
func (r *Orchestrator) refuse() error {
	if r.Draining() {
		return errStopping
	}
	return nil
}

// Drain refuses new work from now on and waits until no exec runs. When ctx's deadline passes first, what
// still runs is ended as killed; when ctx is cancelled, it is left alone: the next server ends it as lost.
// Sandboxes go on. Draining twice does nothing more.
func (r *Orchestrator) Drain(ctx context.Context) {
	if !r.execs.close() {
		return
	}
	for _, b := range r.all() {
		b.giveUp(errStopping)
	}
	began, running := time.Now(), r.execs.running()
	left := r.quiet(ctx)
	killed := 0
	if left > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		killed = r.endAll(ctx)
	}
	rec := record(sandbox.Caller{}, sandbox.Thread{}, audit.ActionServerDrain, audit.PhaseResult)
	rec.Outcome, rec.Millis = "ok", time.Since(began).Milliseconds()
	rec.Detail = fmt.Sprintf("%d execs ran, %d were ended, %d left", running, killed, r.execs.running())
	if err := r.note(context.WithoutCancel(ctx), rec); err != nil {
		r.o.Log.Error("the end of the drain is not recorded", "error", err)
	}
	r.o.Log.Info("drained", "ran", running, "ended", killed, "took", time.Since(began).Round(time.Millisecond))
}

// quiet waits until no exec runs, or ctx ends, and gives how many still do.
func (r *Orchestrator) quiet(ctx context.Context) int {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for {
		n := r.execs.running()
		if n == 0 {
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
// those who follow them see the end before the server goes. It gives how many it could kill.
func (r *Orchestrator) endAll(ctx context.Context) int {
	ctx, cancel := detached(ctx, endTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	killed := 0
	for _, e := range r.execs.unfinished() {
		wg.Go(func() {
			b := r.find(e.thread)
			if b == nil || e.waitBegun(ctx) != nil {
				return
			}
			e.endBecause("the server stopped")
			if err := b.client.Kill(ctx, e.id); err != nil {
				r.o.Log.Warn("exec not ended; the next server does", "exec", e.id, "error", err)
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
