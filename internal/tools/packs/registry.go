package packs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
)

// Options say how a Registry works. A limit of 0 takes its default.
type Options struct {
	Log *slog.Logger
	// ServerID is part of what packs sign; Version is told to them.
	ServerID, Version string
	// Keys checks SSH keys and client certificates; nil: only bearer keys count.
	Keys Keys
	// Channels checks the keys of skills of threads; nil: there are none.
	Channels Channels
	// Others are the other servers; nil: there are none.
	Others Others
	// Record is told of each connection, refusal and end. May be nil.
	Record func(ctx context.Context, e Event)

	Grace     time.Duration // for which the tools of a pack that went stay listed; 60 s
	Heartbeat time.Duration // of both sides; 10 s
	Recheck   time.Duration // of the credential of a session; 2 s
	MaxPacks  int           // that are listed; 500
	MaxResult int           // bytes of a result; 16 MiB
	// MaxManifests bounds the bytes of what all packs of this server offer; 128 MiB. Those of one tenant have a quarter of it.
	MaxManifests int
}

func (o *Options) fill() {
	if o.Others == nil {
		o.Others = alone{}
	}
	o.Grace = cmp.Or(o.Grace, time.Minute)
	o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second)
	o.Recheck = cmp.Or(o.Recheck, 2*time.Second)
	o.MaxPacks = cmp.Or(o.MaxPacks, 500)
	o.MaxResult = cmp.Or(o.MaxResult, 16<<20)
	o.MaxManifests = cmp.Or(o.MaxManifests, 128<<20)
}

// Event is something that the audit log has of packs.
type Event struct {
	Pack     string
	Tenant   string
	Thread   sandbox.Thread // of whose skill the pack is; zero: of none
	Identity string         // the credential; "" when none was proved
	Source   string
	What     Happening
	Detail   string
}

// Happening is what an Event is about.
type Happening string

// What happens to packs.
const (
	Connected Happening = "connected"
	Reloaded  Happening = "reloaded"
	Refused   Happening = "refused"
	Ended     Happening = "ended"
)

// Registry is the packs that are connected, here or to another server, or went a short while ago. Its methods may be called at the same time.
type Registry struct {
	o        Options
	slow     *slow
	opening  *opening
	refusals *refusals

	mu      sync.Mutex
	packs   map[packKey]*Pack
	lists   map[string]*sandbox.UserServers // by tenant; made when they are asked for
	last    uint64
	leaving bool // no new stream is taken
	changed func()
	others  func(id string) string
	// channelChanged is told of threads whose skills have other tools now.
	channelChanged func(sandbox.Thread)
}

// packKey names a pack. Packs of different tenants may have the same id, and so may those of skills of threads.
type packKey struct {
	tenant, id string
	// thread is the only one that has the pack; zero: all users of the tenant have it.
	thread sandbox.Thread
	// channel is the random id of the attached skill whose handlers the pack has; "" without a thread.
	channel string
}

// ofSkill reports whether the pack has the handlers of a skill of one thread.
func (k packKey) ofSkill() bool { return k.channel != "" }

// New returns a registry without packs.
func New(o Options) *Registry {
	o.fill()
	return &Registry{o: o, slow: newSlow(), opening: newOpening(), refusals: newRefusals(), packs: map[packKey]*Pack{}, lists: map[string]*sandbox.UserServers{}}
}

// Attach has changed called after each change of what packs offer. taken returns which server that is no pack has a name;
// "": none has. Attach is called once, before packs connect.
func (r *Registry) Attach(changed func(), taken func(id string) string) {
	r.changed, r.others = changed, taken
}

// AttachThreads has changed called after each change of what a skill of a thread offers. It is called once, before packs
// connect.
func (r *Registry) AttachThreads(changed func(sandbox.Thread)) { r.channelChanged = changed }

// Servers returns the packs that the users of a tenant have. As long as nothing changes it is the same pointer.
func (r *Registry) Servers(tenant string) *sandbox.UserServers {
	r.mu.Lock()
	defer r.mu.Unlock()
	if list := r.lists[tenant]; list != nil {
		return list
	}
	list := &sandbox.UserServers{}
	for key, p := range r.packs {
		if !key.ofSkill() && (key.tenant == "" || key.tenant == tenant) {
			list.List = append(list.List, sandbox.UserServer{Name: key.id, Config: p.Manifest().Config, Pack: p, Key: p.number, Tenant: key.tenant})
		}
	}
	slices.SortFunc(list.List, func(a, b sandbox.UserServer) int { return strings.Compare(a.Name, b.Name) })
	if len(r.lists) >= maxTenants {
		clear(r.lists)
	}
	r.lists[tenant] = list
	return list
}

// maxTenants bounds the tenants whose lists are kept.
const maxTenants = 10_000

// stale drops the lists that a pack is in, and returns what tells the listener. The caller holds r.mu, and calls it
// without.
func (r *Registry) stale(key packKey) (notify func()) {
	if key.ofSkill() {
		if r.channelChanged == nil {
			return func() {}
		}
		return func() { r.channelChanged(key.thread) }
	}
	clear(r.lists)
	if r.changed == nil {
		return func() {}
	}
	return r.changed
}

// Channel returns the pack with the handlers of a skill of a thread; nil: it is connected to no server.
func (r *Registry) Channel(t sandbox.Thread, skill, channel string) *Pack {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.packs[packKey{t.Tenant, skill, t, channel}]
}

// register makes a session the one of its pack. An error says who has the name.
func (r *Registry) register(ctx context.Context, s *session, m *manifest.Manifest) (*Pack, error) {
	key := packKey{s.grant.Tenant, m.ID, s.grant.Thread, s.grant.Channel}
	if err := r.errTaken(key); err != nil {
		return nil, err
	}
	if err := r.o.Others.Claim(ctx, streamOf(s, m, time.Now())); err != nil {
		return nil, err
	}
	notify := func() {}
	defer func() { notify() }()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving {
		return nil, errServerStops
	}
	p := r.packs[key]
	if err := r.free(key); err != nil {
		return nil, err
	}
	if p == nil || p.isFar() {
		if err := r.room(key); err != nil {
			return nil, err
		}
	}
	if err := r.roomFor(key, m); err != nil {
		return nil, err
	}
	if p == nil {
		p = r.newPack(key)
	}
	other, err := p.take(s, m)
	if err != nil {
		return nil, err
	}
	fresh := r.packs[key] == nil
	r.packs[key] = p
	if fresh || other {
		notify = r.stale(key)
	}
	return p, nil
}

// newPack makes a pack that has not been there before. The caller holds r.mu.
func (r *Registry) newPack(key packKey) *Pack {
	r.last++
	return &Pack{registry: r, key: key, number: strconv.FormatUint(r.last, 10), changed: make(chan struct{})}
}

// room refuses one more pack when there are too many. Those of other servers do not count. The caller holds r.mu.
func (r *Registry) room(key packKey) error {
	all, ofSkills, ofTenant := 0, 0, 0
	for k, p := range r.packs {
		switch {
		case p.isFar():
		case !k.ofSkill():
			all++
		case k.tenant == key.tenant:
			ofTenant++
			fallthrough
		default:
			ofSkills++
		}
	}
	switch most := r.o.MaxPacks; {
	case !key.ofSkill() && all >= most:
		return sandbox.Errorf(sandbox.CapacityExceeded, "the server has %d packs, which is its limit", most)
	case key.ofSkill() && ofTenant >= most*skillsOfTenant:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the tenant has %d skills with a channel on this server, which is its limit", ofTenant)
	case key.ofSkill() && ofSkills >= most*skillsOfAll:
		return sandbox.Errorf(sandbox.CapacityExceeded, "the server has %d skills with a channel, which is its limit", ofSkills)
	}
	return nil
}

// tenantsPart is the part of Options.MaxManifests that one tenant has.
const tenantsPart = 4

// roomFor refuses a manifest when those that there are take too much memory. Those of other servers do not count. The caller
// holds r.mu.
func (r *Registry) roomFor(key packKey, m *manifest.Manifest) error {
	all, tenants := m.Bytes(), m.Bytes()
	for k, p := range r.packs {
		if k == key || p.isFar() {
			continue
		}
		n := p.Manifest().Bytes()
		if all += n; k.tenant == key.tenant {
			tenants += n
		}
	}
	switch most := r.o.MaxManifests; {
	case key.tenant != "" && tenants > most/tenantsPart:
		return sandbox.Errorf(sandbox.QuotaExceeded, "what the packs of the tenant offer has %d bytes on this server; at most %d", tenants, most/tenantsPart)
	case all > most:
		return sandbox.Errorf(sandbox.CapacityExceeded, "what all packs offer has %d bytes on this server; at most %d", all, most)
	}
	return nil
}

// The channels of skills are counted apart from packs, because each thread may have some: so many times Options.MaxPacks.
const (
	skillsOfTenant = 4
	skillsOfAll    = 8
)

// taken returns which server has the name of a pack; "": none.
func (r *Registry) taken(key packKey) string {
	if r.others == nil || key.ofSkill() {
		return ""
	}
	return r.others(key.id)
}

// errTaken refuses a name that a server which is no pack has.
func (r *Registry) errTaken(key packKey) error {
	if owner := r.taken(key); owner != "" {
		return sandbox.Errorf(sandbox.Conflict, "the name %q is taken by %s", key.id, owner)
	}
	return nil
}

// again says why the session of a pack may not go on: a server of the configuration has its name now, or its credential
// is not good any more.
func (r *Registry) again(ctx context.Context, key packKey, g Grant) error {
	if err := r.errTaken(key); err != nil || g.Again == nil {
		return err
	}
	if err := g.Again(ctx); err != nil {
		return sandbox.Errorf(sandbox.Forbidden, "its credential is not good any more: %s", detailOf(err))
	}
	return nil
}

// Taken says which pack would be printed as an MCP server of that name; "": none.
func (r *Registry) Taken(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.packs {
		if !k.ofSkill() && sandbox.PrintedServer(k.id) == sandbox.PrintedServer(name) {
			return fmt.Sprintf("the pack %q of %s", k.id, audience(k.tenant))
		}
	}
	return ""
}

// free refuses a name that another pack has. The caller holds r.mu.
func (r *Registry) free(key packKey) error {
	for k := range r.packs {
		if !k.ofSkill() && !key.ofSkill() && k.id == key.id && k.tenant != key.tenant && (k.tenant == "" || key.tenant == "") {
			return sandbox.Errorf(sandbox.Conflict, "the name %q is taken by a pack of %s", key.id, audience(k.tenant))
		}
	}
	return nil
}

func audience(tenant string) string {
	if tenant == "" {
		return "all tenants"
	}
	return "one tenant"
}

// reload puts another manifest in force. An error says that there is no room for it; the one of before stays.
func (r *Registry) reload(p *Pack, m *manifest.Manifest) error {
	notify := func() {}
	defer func() { notify() }()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.roomFor(p.key, m); err != nil {
		return err
	}
	if p.put(m) {
		notify = r.stale(p.key)
	}
	r.o.Others.Changed()
	return nil
}

// forget takes a pack out that did not come back.
func (r *Registry) forget(p *Pack) {
	notify := func() {}
	defer func() { notify() }()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.packs[p.key] == p && p.away() {
		delete(r.packs, p.key)
		notify = r.stale(p.key)
		r.o.Log.Info("pack: its tools are not listed any more", "pack", p.key.id, "tenant", p.key.tenant)
	}
}

// all returns the packs of now.
func (r *Registry) all() []*Pack {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.packs))
}

// List returns the packs that a caller administers, by name. Those of skills of threads are not among them.
func (r *Registry) List(c sandbox.Caller) []sandbox.PackInfo {
	list := []sandbox.PackInfo{}
	for _, p := range r.all() {
		if p.key.ofSkill() || p.key.tenant != "" && p.key.tenant != c.Tenant && !c.Operator {
			continue
		}
		info := p.info()
		info.Tools = nil
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b sandbox.PackInfo) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Tenant, b.Tenant))
	})
	return list
}

// Get returns one pack with its tools: that of the caller's tenant, else one of all tenants.
func (r *Registry) Get(c sandbox.Caller, id string) (sandbox.PackInfo, error) {
	r.mu.Lock()
	p := r.packs[packKey{tenant: c.Tenant, id: id}]
	if p == nil {
		p = r.packs[packKey{id: id}]
	}
	r.mu.Unlock()
	if p == nil {
		return sandbox.PackInfo{}, sandbox.Errorf(sandbox.NotFound, "there is no pack %.80q", id)
	}
	return p.info(), nil
}

// Close ends all sessions. Packs may connect again only to another server.
func (r *Registry) Close() error {
	for _, p := range r.all() {
		p.close()
	}
	return nil
}

func (r *Registry) record(ctx context.Context, e Event) {
	if r.o.Record != nil {
		r.o.Record(context.WithoutCancel(ctx), e)
	}
}
