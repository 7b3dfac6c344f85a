package app

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/channels"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/elsewhere"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/identity"
)

// packSet is the tool packs, and the keys that may provide them.
type packSet struct {
	*packs.Registry
	others *elsewhere.Packs // nil: no server can share the state
	keys   *identity.Authority
	record func(ctx context.Context, c sandbox.Caller, subject string, do func() error) error
}

// openPacks makes the registry of tool packs; nil: the server takes none.
func openPacks(b *builder, f *foundation) *packSet {
	c := b.cfg.Packs
	if !c.Enabled {
		return nil
	}
	keys := identity.New(cmp.Or(c.AuthorizedPacks, filepath.Join(b.cfg.Data, "authorized_packs")), f.store, b.log)
	o := packs.Options{
		Keys: keys, Channels: channels.Keys{Records: f.store, Alive: f.data.peers.Alive}, Log: b.log, ServerID: f.data.install, Version: buildinfo.Version(), Grace: c.Grace, MaxPacks: c.Max,
		Record: packRecorder{f.audit, b.cfg.OperatorTenant, b.log.Error}.record,
	}
	var others *elsewhere.Packs
	if !f.store.Embedded() {
		others = elsewhere.New(f.store, f.data.peers, b.log)
		o.Others = others
		f.data.peers.Handle(elsewhere.Path, others.Handler())
	}
	r := packs.New(o)
	b.onClose(r.Close)
	return &packSet{Registry: r, others: others, keys: keys, record: func(ctx context.Context, c sandbox.Caller, subject string, do func() error) error {
		rec := audit.Record{Tenant: c.Tenant, User: c.User, Action: audit.ActionPackKey, Subject: subject}.By(c)
		return f.audit.Do(ctx, rec, func(*audit.Record) error { return do() })
	}}
}

// start has the packs of other servers known here, once all who want to know of them are attached.
func (p *packSet) start(b *builder) {
	if p.others != nil {
		p.others.Start(p.Registry)
		b.onClose(p.others.Close)
	}
}

// leave sends packs to the other servers, when there are some that go on.
func (p *packSet) leave(goesOn bool) {
	if p != nil && p.others != nil && goesOn {
		packs.NewElsewhere(p.Registry).Leave()
	}
}

// quiet waits for the calls of other servers, until ctx ends.
func (p *packSet) quiet(ctx context.Context) {
	if p != nil && p.others != nil {
		packs.NewElsewhere(p.Registry).Quiet(ctx)
	}
}

// ListKeys lists the SSH keys that may provide packs.
func (p *packSet) ListKeys(ctx context.Context) ([]sandbox.PackKey, error) {
	return p.keys.ListKeys(ctx)
}

// AddKey adds one, and records it.
func (p *packSet) AddKey(ctx context.Context, c sandbox.Caller, k sandbox.PackKey) (made sandbox.PackKey, err error) {
	err = p.record(ctx, c, "add "+k.Name, func() (err error) {
		made, err = p.keys.AddKey(ctx, c, k)
		return err
	})
	return made, err
}

// DeleteKey takes one away, and records it.
func (p *packSet) DeleteKey(ctx context.Context, c sandbox.Caller, id string) error {
	return p.record(ctx, c, "delete "+id, func() error { return p.keys.DeleteKey(ctx, id) })
}

// serverNamed returns which MCP server of the configuration would be printed as a pack; "": none.
func serverNamed(h *hub.Hub) func(id string) string {
	return func(id string) string {
		if name := h.Servers.Named(id); name != "" {
			return fmt.Sprintf("the MCP server %q", name)
		}
		return ""
	}
}

// packRecorder records what happens to packs.
type packRecorder struct {
	audit    *audit.Log
	operator string // the tenant that has the records of what belongs to none
	failed   func(msg string, args ...any)
}

func (p packRecorder) record(ctx context.Context, e packs.Event) {
	r := audit.Record{Tenant: e.Tenant, User: e.Thread.User, Thread: e.Thread.ID, Action: audit.ActionPack, Phase: audit.PhaseResult, Subject: e.Pack, Outcome: string(e.What), Source: e.Source, Detail: e.Detail}
	if r.Tenant == "" {
		r.Tenant = p.operator
	}
	if e.Identity != "" {
		r.Detail = fmt.Sprintf("%s: %s", e.Identity, e.Detail)
	}
	if _, err := p.audit.Append(ctx, r); err != nil {
		p.failed("what happened to a pack was not recorded", "pack", e.Pack, "what", e.What, "error", err)
	}
}

// serverSources are the servers of users: those of plugins, and packs.
type serverSources struct {
	plugins func(sandbox.Owner) (*sandbox.UserServers, error)
	packs   *packs.Registry

	mu     sync.Mutex
	joined map[sandbox.Owner]joinedServers
}

// joinedServers is a list made of two. As long as both are the same, it is.
type joinedServers struct{ plugins, packs, both *sandbox.UserServers }

// maxJoined bounds the users whose lists are kept.
const maxJoined = 10_000

// withPacks adds packs to the servers of plugins.
func withPacks(s hub.UserServers, r *packSet) hub.UserServers {
	if r != nil {
		s.Of = (&serverSources{plugins: s.Of, packs: r.Registry, joined: map[sandbox.Owner]joinedServers{}}).of
		s.Taken = r.Taken
	}
	return s
}

// of returns the servers of a user.
func (s *serverSources) of(o sandbox.Owner) (*sandbox.UserServers, error) {
	own, err := s.plugins(o)
	if err != nil {
		return nil, err
	}
	shared := s.packs.Servers(o.Tenant)
	switch {
	case len(shared.List) == 0:
		return own, nil
	case own == nil || len(own.List) == 0:
		return shared, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.joined[o]
	if j.both == nil || j.plugins != own || j.packs != shared {
		if len(s.joined) >= maxJoined {
			clear(s.joined)
		}
		j = joinedServers{own, shared, &sandbox.UserServers{List: slices.Concat(own.List, shared.List)}}
		s.joined[o] = j
	}
	return j.both, nil
}
