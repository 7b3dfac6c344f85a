package orchestrator

import (
	"math"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// gauges tell how full this server is.
type gauges struct {
	audit        *audit.Log
	execs        *execution.Registry
	live         *instance.Map
	maxInstances int
	places       *capacity.Places
	pool         *pool.Pool
}

// levels is how full this server is now.
func (g *gauges) levels() metrics.Levels {
	l := metrics.Levels{Sandboxes: map[sandbox.State]int{}, Places: g.maxInstances, Execs: g.execs.Running(), Waiting: g.places.Waiting()}
	for _, inst := range g.live.All() {
		l.Sandboxes[inst.Info().State]++
	}
	l.Pools = g.pool.Levels()
	archive, _ := g.audit.Archive()
	l.Unarchived = archive.Behind
	l.Sinks = map[string]int{}
	for _, s := range g.audit.Sinks() {
		l.Sinks[s.Name] = bounded(s.Behind)
	}
	l.AuditLag = bounded(g.audit.Lag())
	s := g.audit.State()
	l.Audit = metrics.AuditLevels{Room: int(s.Room), Missed: bounded(s.Missed), Unsigned: bounded(s.Unsigned)}
	if s.Err != nil {
		l.Audit.Failing = 1
	}
	return l
}

func bounded(n uint64) int { return int(min(n, math.MaxInt32)) } //nolint:gosec // bounded
