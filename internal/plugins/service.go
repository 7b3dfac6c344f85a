package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/plugins/folder"
	"github.com/skerry-sandbox/skerry/internal/plugins/tree"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
)

// Sealer encrypts values. Only with the same purpose one is opened again.
type Sealer interface {
	Seal(purpose string, plain []byte) ([]byte, error)
	Open(purpose string, sealed []byte) ([]byte, error)
	// Stale reports whether a text is sealed for an older key than the newest.
	Stale(purpose string, sealed []byte) bool
}

// Options say how a Service works. Dir, Extensions, Audit and Log are needed.
type Options struct {
	Dir string // folder of everything that is kept, on the file system of the skills' folder; made when missing
	// Stage is the name of the folder in Dir where installs are put together, for each process its own; "" = "stage".
	Stage      string
	Extensions *extensions.Files
	Audit      audit.Appender
	Log        *slog.Logger
	// Sealer encrypts users' values of options that plugins declare as sensitive; nil: they are kept as they are.
	Sealer Sealer
	// RunCommands lets !`command` of installed plugins run, in the thread's sandbox.
	RunCommands bool
	// Trust lets scripts of plugins' skills run without an approval.
	Trust bool
	// Addresses may be fetched from and connected to besides the public internet.
	Addresses []netip.Prefix
	// Folders of this host may be installed from, as they are and by file:// with git.
	Folders []string
	// Everybody has the plugins of all users of all tenants; nil: none.
	Everybody *folder.Folder
	// WithoutServers leaves the MCP servers of all plugins out of tool sets.
	WithoutServers bool
	// Removed reports a removed plugin, and its MCP servers by their registered names. So the state that
	// these have kept for their users goes, too: the owner's, or with shared that of all users of the
	// tenant. nil: none.
	Removed func(o sandbox.Owner, shared bool, servers []string) error
	// Changed is called after each change, when it is in force; nil: no call. It must not block.
	Changed func()
}

// Service knows the plugins of all users. All methods may be called at the same time.
type Service struct {
	o         Options
	everybody *everybody
	fetch     *fetcher
	states    *stateFiles
	values    optionValues
	loaded    *loadedPlugins
	installer *installer

	mu   sync.Mutex
	sets map[sandbox.Owner]*Set
}

// Open opens the folder, and deletes what installs that did not end have left in it.
func Open(o Options) (*Service, error) {
	if o.Dir == "" || o.Extensions == nil || o.Audit == nil || o.Log == nil {
		return nil, errors.New("plugins: an option is missing")
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	stage := filepath.Join(o.Dir, cmp.Or(o.Stage, "stage"))
	if err := os.RemoveAll(stage); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	if err := os.Mkdir(stage, 0o700); err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	st, err := tree.Open(filepath.Join(o.Dir, "store"))
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	s := &Service{
		o: o, everybody: &everybody{folder: o.Everybody, log: o.Log}, fetch: &fetcher{download.New(o.Addresses), o.Folders, stage}, sets: map[sandbox.Owner]*Set{},
		states: &stateFiles{dir: o.Dir, byPath: map[string]*stateFile{}},
		values: optionValues{extensions: o.Extensions, sealer: o.Sealer, log: o.Log},
		loaded: &loadedPlugins{store: st, log: o.Log, byKey: map[string]*loadedPlugin{}},
	}
	s.installer = &installer{extensions: o.Extensions, log: o.Log, fetch: s.fetch, store: st, states: s.states, slots: make(chan struct{}, maxInstalls)}
	return s, nil
}

// Close ends connections that are kept. Nothing is called afterwards.
func (s *Service) Close() error { return s.fetch.web.Close() }

// Set is the plugins of one user at one moment. It does not change.
type Set struct {
	everybody   *folder.List
	shared, own *state
	switches    *extensions.State
	list        []*member // by name
	mounts      *skills.Plugins
	servers     *sandbox.UserServers
	states      map[string]sandbox.PluginServer // by registered name
	named       map[string]string               // the user's own values for ${NAME} of any plugin
}

// member is one plugin of a user.
type member struct {
	name     string
	record   record
	shared   bool // all users of the tenant have it
	ofServer bool // all users of all tenants have it, and none can remove it
	enabled  bool
	plugin   *Plugin // never nil
	dir      string  // "" when it is broken
	values   map[string]any
}

// Set returns a user's plugins as they are now: the same pointer as long as nothing changes. The zero Owner has those
// of a user who installed nothing and switched nothing.
func (s *Service) Set(o sandbox.Owner) (*Set, error) {
	next := &Set{}
	var err error
	if next.shared, next.own, err = s.states.current(o); err != nil {
		return nil, err
	}
	var servers []*member
	next.everybody, servers = s.everybody.current()
	if next.switches, err = s.o.Extensions.State(o); err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := s.sets[o]
	s.mu.Unlock()
	if known != nil && known.everybody == next.everybody && known.shared == next.shared && known.own == next.own && known.switches == next.switches {
		return known, nil
	}
	if err := s.fill(o, next, servers); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sets) >= maxOwners {
		clear(s.sets)
	}
	s.sets[o] = next
	return next, nil
}

// fill puts the plugins of all sources together: of one name the user's own wins over those of the tenant, and these
// over the ones that come with the server.
func (s *Service) fill(o sandbox.Owner, set *Set, ofServer []*member) error {
	values, err := s.values.of(o)
	if err != nil {
		return err
	}
	for _, m := range ofServer {
		_, own := set.own.Plugins[m.name]
		if _, shared := set.shared.Plugins[m.name]; !own && !shared {
			mine := *m
			set.list = append(set.list, &mine)
		}
	}
	for name, r := range set.shared.Plugins {
		if _, shadowed := set.own.Plugins[name]; !shadowed {
			set.list = append(set.list, s.loaded.member(name, r, true))
		}
	}
	for name, r := range set.own.Plugins {
		set.list = append(set.list, s.loaded.member(name, r, false))
	}
	slices.SortFunc(set.list, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	set.mounts = &skills.Plugins{}
	for _, m := range set.list {
		on, said := set.switches.Plugin(m.name)
		m.enabled = m.dir != "" && (on && said || !said && !m.plugin.Disabled)
		m.values = values.of[m.name]
		if !m.enabled {
			continue
		}
		p := skills.Plugin{Name: m.name, Dir: m.dir, Key: m.record.Digest, Trusted: s.o.Trust || m.ofServer}
		for _, sk := range m.plugin.Skills {
			p.Skills = append(p.Skills, sk.Folder)
		}
		set.mounts.List = append(set.mounts.List, p)
	}
	raw, err := s.o.Extensions.Raw(sandbox.Owner{}, "mcpServers")
	if err != nil {
		return err
	}
	set.named = values.named
	set.servers, set.states = mergeServers(set.list, values.named, globalServers(raw), s.o.WithoutServers)
	return nil
}

// Mounts returns the enabled plugins of a user for the library of skills.
func (s *Service) Mounts(o sandbox.Owner) (*skills.Plugins, error) {
	set, err := s.Set(o)
	if err != nil {
		return nil, err
	}
	return set.mounts, nil
}

// Servers returns the MCP servers of a user's enabled plugins for the hub.
func (s *Service) Servers(o sandbox.Owner) (*sandbox.UserServers, error) {
	set, err := s.Set(o)
	if err != nil {
		return nil, err
	}
	return set.servers, nil
}

// find returns a plugin of a user, enabled or not. NotFound when there is none.
func (set *Set) find(name string) (*member, error) {
	for _, m := range set.list {
		if m.name == name {
			return m, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no plugin %.80q", name)
}

// HasServer reports whether a plugin of the user, enabled or not, has an MCP server of that registered name.
// A plugin whose files cannot be read may have any.
func (s *Service) HasServer(o sandbox.Owner, registered string) (bool, error) {
	set, err := s.Set(o)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(set.list, func(m *member) bool {
		if m.dir == "" {
			return strings.HasPrefix(registered, Registered(m.name, ""))
		}
		return slices.ContainsFunc(m.plugin.Servers, func(srv Server) bool { return Registered(m.name, srv.Name) == registered })
	}), nil
}

// view returns a plugin as its user sees it.
func (set *Set) view(m *member) sandbox.Plugin {
	v := m.plugin.View()
	v.Enabled, v.Shared, v.Digest, v.Source, v.InstalledAt = m.enabled, m.shared, m.record.Digest, m.record.Source, m.record.InstalledAt
	for i, srv := range v.Servers {
		if st, ok := set.states[srv.Registered]; ok {
			v.Servers[i] = st
		}
	}
	for i, o := range v.Options {
		value, given := m.values[o.Key]
		v.Options[i].Set = given || o.Variable && set.named[o.Key] != ""
		if given {
			v.Options[i].Value = value
			if o.Sensitive {
				v.Options[i].Value = hiddenValue
			}
		}
	}
	return v
}

// List returns a user's plugins by name.
func (s *Service) List(_ context.Context, c sandbox.Caller) ([]sandbox.Plugin, error) {
	set, err := s.Set(c.Owner)
	if err != nil {
		return nil, err
	}
	list := []sandbox.Plugin{}
	for _, m := range set.list {
		list = append(list, set.view(m))
	}
	return list, nil
}

// Get returns one plugin of a user. NotFound.
func (s *Service) Get(_ context.Context, c sandbox.Caller, name string) (sandbox.Plugin, error) {
	set, err := s.Set(c.Owner)
	if err != nil {
		return sandbox.Plugin{}, err
	}
	m, err := set.find(name)
	if err != nil {
		return sandbox.Plugin{}, err
	}
	return set.view(m), nil
}

// recorded calls do between the record of the attempt and that of its result.
func (s *Service) recorded(ctx context.Context, c sandbox.Caller, action, subject, thread string, do func(*audit.Record) error) error {
	return audit.Do(ctx, s.o.Audit, audit.Record{Tenant: c.Tenant, User: c.User, Thread: thread, Action: action, Subject: subject}.By(c), do)
}
