package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Drain ends this server's work: it hands threads over to other servers, and ends what still runs.
type Drain struct {
	draining   atomic.Pointer[state] // nil until Drain
	stopping   context.Context       // ends when Drain begins
	endStreams context.CancelFunc
	targets    *ownership.Targets
	audit      *audit.Log
	execs      *execution.Registry
	hooks      *hooks.Hooks
	live       *instance.Map
	log        *slog.Logger
	owners     *ownership.Owners
	takeover   *ownership.Takeover
	teardown   *lifecycle.Teardown
}

const (
	// endTimeout bounds the killing of execs after a drain: sandboxd waits about three seconds for a tree.
	endTimeout = 5 * time.Second
	drainLook  = 20 * time.Millisecond
)

// Draining reports whether the server is stopping.
func (s *Drain) Draining() bool { return s.draining.Load() != nil }

// Refuse is the answer to new work for a thread while the server stops. A thread that is still here, while others are
// there to go on with it, has its work done here until it is handed over.
func (s *Drain) Refuse(t sandbox.Thread) error {
	d := s.draining.Load()
	if d == nil || d.passOn && s.owners.Owns(t) {
		return nil
	}
	return lifecycle.ErrStopping
}

// Drain ends this server's work. When other servers take work, threads are handed over to them, each as soon as nothing
// runs for it, and new work is passed on. When there are none, new work is refused, and sandboxes go on without a server. It
// returns when no exec runs and nothing is left to hand over. When ctx's deadline passes first, what
// still runs is ended as killed; when ctx is cancelled, it is left alone: the next server ends it as lost. Draining
// twice does nothing more.
func (s *Drain) Drain(ctx context.Context) {
	d := &state{passOn: s.targets.One(ctx) != "", until: s.lastEntry(ctx)}
	if !s.draining.CompareAndSwap(nil, d) {
		return
	}
	s.takeover.Stop()
	s.endStreams()
	if !d.passOn {
		s.execs.Close()
		for _, inst := range s.live.All() {
			inst.Turn.GiveUp(lifecycle.ErrStopping)
		}
	}
	began, running := time.Now(), s.execs.Running()
	left := s.quiet(ctx)
	killed := 0
	if left > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		killed = s.endAll(ctx)
	}
	s.execs.Close()
	rec := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionServerDrain, audit.PhaseResult)
	rec.Outcome, rec.Millis = "ok", time.Since(began).Milliseconds()
	rec.Detail = fmt.Sprintf("%d execs ran, %d were ended, %d left", running, killed, s.execs.Running())
	if n := d.handed.Load(); n > 0 {
		rec.Detail += fmt.Sprintf(", %d threads were handed over", n)
	}
	if err := s.audit.AppendResult(context.WithoutCancel(ctx), rec); err != nil {
		s.log.Error("the end of the drain is not recorded", "error", err)
	}
	s.log.Info("drained", "ran", running, "ended", killed, "handed over", d.handed.Load(), "took", time.Since(began).Round(time.Millisecond))
}

// quiet waits until no exec runs and all possible threads are handed over, or until ctx ends. It returns how
// many execs still run.
func (s *Drain) quiet(ctx context.Context) int {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for {
		threads := s.handOverAll(ctx)
		n := s.execs.Running()
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

// endAll kills every running exec. It waits, for a bounded time, until their ends are recorded, so that
// their followers see the end before the server goes. It returns how many it could kill.
func (s *Drain) endAll(ctx context.Context) int {
	ctx, cancel := deadline.Detached(ctx, endTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	killed := 0
	for _, e := range s.execs.Unfinished() {
		wg.Go(func() {
			inst := e.Instance(s.live)
			if inst == nil || e.WaitBegun(ctx) != nil {
				return
			}
			e.EndBecause("the server stopped")
			if err := inst.Conn.Client.Kill(ctx, e.ID); err != nil {
				s.log.Warn("exec not ended; the next server does", "exec", e.ID, "error", err)
				return
			}
			mu.Lock()
			killed++
			mu.Unlock()
		})
	}
	wg.Wait()
	if killed > 0 {
		s.quiet(ctx)
	}
	return killed
}

// state is the end of this server's work. It does not change, but for the count.
type state struct {
	passOn bool      // others take what is not here
	until  time.Time // when busy sandboxes take the last exec; zero: at any time
	handed atomic.Int64
}
