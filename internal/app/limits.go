package app

import (
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/files"
)

// openLimits makes the gate that bounds what callers take, and counts it.
func (b *builder) openLimits(f *foundation, m *metrics.Metrics, disk *files.Meter) *limits.Gate {
	g := limits.New(limits.Options{
		State: f.store, Table: limitTable{&b.cfg.Limits}, Server: f.data.peers.ID(), Refused: m.Limited, Disk: disk.Used, Log: b.log,
	})
	b.onClose(g.Close)
	return g
}

// limitTable is the configuration as limits want it.
type limitTable struct{ of *config.Limits }

// Of returns the rules of a caller.
func (t limitTable) Of(c sandbox.Caller) (tenant, user, key limits.Rules) {
	tenant, user = rules(t.of.OfTenant(c.Tenant)), rules(t.of.OfUser(c.Tenant, c.User))
	if c.KeyID != "" {
		key = rules(t.of.OfKey(c.KeyID))
	}
	return tenant, user, key
}

func rules(r config.LimitRules) limits.Rules {
	return limits.Rules{
		RequestsPerMinute: int64(r.RequestsPerMinute), RequestsBurst: int64(r.RequestsBurst), Execs: int64(r.Execs), Sandboxes: int64(r.Sandboxes),
		CPUSecondsPerDay: int64(r.CPUSecondsPerDay), DiskMiB: int64(r.DiskMiB), ToolCallsPerDay: int64(r.ToolCallsPerDay),
		ToolCallsPerMinute: int64(r.ToolCallsPerMinute), ToolCallsBurst: int64(r.ToolCallsBurst),
	}
}
