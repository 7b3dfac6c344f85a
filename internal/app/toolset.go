package app

import (
	"context"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/tools/channels"
	"github.com/skerry-sandbox/skerry/internal/tools/drift"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// toolSet is the tools of MCP servers, how they were when they were first seen, and who may call them.
type toolSet struct {
	hub    *hub.Hub
	drift  *drift.Service
	policy *policy.Engine
	packs  *packSet // nil: the server takes none
	// channels are the skills of threads whose tools programs provide.
	channels *channels.Channels
}

// openTools opens the hub and the policy.
func (b *builder) openTools(ctx context.Context, f *foundation, i *isolation, x *extensionSet) (*toolSet, error) {
	t := &toolSet{drift: drift.New(drift.Options{Store: f.store, Audit: f.audit, Tenant: LocalOwner.Tenant, Log: b.log}), packs: openPacks(b, f)}
	var err error
	t.hub, err = hub.Open(hub.Options{Pins: t.drift, Quarantine: b.cfg.ToolDrift == "quarantine", ConfigPath: b.cfg.Extensions, StateDir: filepath.Join(b.cfg.Data, "mcp"), Version: buildinfo.Version(), Log: b.log, Tracer: f.tracer, LookupEnv: lookupEnv(b.cfg.Secrets), Secrets: f.secrets, Sealer: f.sealer, Isolation: i, UserServers: withPacks(x.servers(), t.packs)})
	if err != nil {
		return nil, err
	}
	b.onClose(t.hub.Close)
	if err := t.hub.ConfigError(); err != nil {
		b.log.Error("MCP servers not configured", "error", err)
	}
	x.changes.listen(t.hub.LookAgain)
	o := channels.Options{Server: f.data.peers.ID(), Alive: f.data.peers.Alive, Log: b.log}
	if t.packs != nil {
		o.Packs = t.packs
	}
	t.channels = channels.New(o)
	if t.packs != nil {
		t.packs.Attach(t.hub.LookAgain, serverNamed(t.hub))
		t.packs.AttachThreads(t.channels.Changed)
		t.packs.start(b)
	}
	f.sealLogins(ctx, t.hub, b.log)
	t.policy, err = b.openPolicy(f, t.hub)
	return t, err
}
