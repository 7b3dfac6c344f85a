package app

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// openLimits makes the gate that bounds what callers take, and counts it.
func (p *App) openLimits() {
	p.limits = limits.New(limits.Options{
		State: p.store, Table: limitTable{&p.cfg.Limits}, Server: p.peers.ID(), Refused: p.metrics.Limited, Log: p.log,
		// It is built before the orchestrator, and called only after it.
		Disk: func(ctx context.Context, tenant, user string) (int64, error) {
			return p.orch.Files.DiskUsed(ctx, tenant, user)
		},
	})
	p.onClose(p.limits.Close)
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
