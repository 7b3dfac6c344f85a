package orchestrator

import (
	"context"
	"math"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// measureStart counts a start that has ended, with err or well.
func (r *Orchestrator) measureStart(inst *instance.Instance, err error) {
	i := inst.Info()
	if err != nil {
		r.o.Metrics.StartFailed(metrics.StartOf(i), sandbox.KindOf(err))
		return
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	r.o.Metrics.Started(metrics.StartOf(i), ms(i.Timings.Queue), ms(i.Timings.Create), ms(i.Timings.Ready))
}

// levels is how full this server is now.
func (r *Orchestrator) levels() metrics.Levels {
	l := metrics.Levels{Sandboxes: map[sandbox.State]int{}, Places: r.o.MaxInstances, Execs: r.execs.Running(), Waiting: r.places.Waiting()}
	for _, inst := range r.live.All() {
		l.Sandboxes[inst.Info().State]++
	}
	l.Pools = r.pool.Levels()
	archive, _ := r.o.Audit.Archive()
	l.Unarchived = archive.Behind
	l.Sinks = map[string]int{}
	for _, s := range r.o.Audit.Sinks() {
		l.Sinks[s.Name] = bounded(s.Behind)
	}
	l.AuditLag = bounded(r.o.Audit.Lag())
	s := r.o.Audit.State()
	l.Audit = metrics.AuditLevels{Room: int(s.Room), Missed: bounded(s.Missed), Unsigned: bounded(s.Unsigned)}
	if s.Err != nil {
		l.Audit.Failing = 1
	}
	return l
}

func bounded(n uint64) int { return int(min(n, math.MaxInt32)) } //nolint:gosec // bounded

// loadSandboxes are the sandboxes of the orchestrator, as those who watch their load see them.
type loadSandboxes struct{ r *Orchestrator }

// Kill implements load.Sandboxes.
func (s loadSandboxes) Kill(inst *instance.Instance, why string) {
	s.r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.r.ctx), removeTimeout)
		defer cancel()
		if err := s.r.retire(ctx, sandbox.Caller{}, inst, sandbox.StatusKilled, why); err != nil {
			s.r.o.Log.Error("sandbox not retired", "thread", inst.Thread.String(), "error", err)
		}
	})
}
