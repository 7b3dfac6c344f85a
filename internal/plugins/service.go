package plugins

import (
	"cmp"
	"context"
	"encoding/json"
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
	// Removed is told of a plugin that was removed, and of its MCP servers by their registered names, so that what these have
	// kept for their users goes, too: the owner's, or with shared that of all users of the tenant. nil: none.
	Removed func(o sandbox.Owner, shared bool, servers []string) error
	// Changed is called after each change, when it is in force; nil: no call. It must not block.
	Changed func()
}

// Service knows the plugins of all users. All methods may be called at the same time.
type Service struct {
	o     Options
	store *store
	fetch *fetcher
	slots chan struct{} // installs at once: each may take much memory

	// changing is held for reading from when files are put into the store until a list names them, and for writing
	// while files that no list names are removed.
	changing sync.RWMutex

	mu     sync.Mutex
	states map[string]*stateFile
	sets   map[sandbox.Owner]*Set
	loaded map[string]*loadedPlugin
}

const maxInstalls = 2

// Open opens the folder, and deletes what installs that did not end have left in it.
func Open(o Options) (*Service, error) {
	if o.Dir == "" || o.Extensions == nil || o.Audit == nil || o.Log == nil {
		return nil, errors.New("plugins: an option is missing")
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
	st, err := openStore(filepath.Join(o.Dir, "store"))
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	return &Service{
		o: o, store: st, fetch: newFetcher(o.Addresses, o.Folders, stage), slots: make(chan struct{}, maxInstalls),
		states: map[string]*stateFile{}, sets: map[sandbox.Owner]*Set{}, loaded: map[string]*loadedPlugin{},
	}, nil
}

// Close ends connections that are kept. Nothing is called afterwards.
func (s *Service) Close() error {
	s.fetch.client.CloseIdleConnections()
	return nil
}

// Set is the plugins of one user at one moment. It does not change.
type Set struct {
	shared, own *state
	switches    *extensions.State
	list        []*member // by name
	mounts      *skills.Plugins
	servers     *sandbox.UserServers
	states      map[string]sandbox.PluginServer // by registered name
}

// member is one plugin of a user.
type member struct {
	name    string
	record  record
	shared  bool
	enabled bool
	plugin  *Plugin // never nil
	dir     string  // "" when it is broken
	values  map[string]any
}

type loadedPlugin struct {
	plugin *Plugin
	dir    string
}

// Set returns a user's plugins as they are now: the same pointer as long as nothing changes.
func (s *Service) Set(o sandbox.Owner) (*Set, error) {
	sharedFile, ownFile, err := states{s}.files(o)
	if err != nil {
		return nil, err
	}
	next := &Set{}
	if next.shared, err = sharedFile.current(); err != nil {
		return nil, err
	}
	if next.own, err = ownFile.current(); err != nil {
		return nil, err
	}
	if next.switches, err = s.o.Extensions.State(o); err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := s.sets[o]
	s.mu.Unlock()
	if known != nil && known.shared == next.shared && known.own == next.own && known.switches == next.switches {
		return known, nil
	}
	if err := s.fill(o, next); err != nil {
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

func (s *Service) fill(o sandbox.Owner, set *Set) error {
	values, err := optionValues{s}.userValues(o)
	if err != nil {
		return err
	}
	for name, r := range set.shared.Plugins {
		if _, shadowed := set.own.Plugins[name]; !shadowed {
			set.list = append(set.list, s.member(name, r, true))
		}
	}
	for name, r := range set.own.Plugins {
		set.list = append(set.list, s.member(name, r, false))
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
		p := skills.Plugin{Name: m.name, Dir: m.dir, Key: m.record.Digest, Trusted: s.o.Trust}
		for _, sk := range m.plugin.Skills {
			p.Skills = append(p.Skills, sk.Folder)
		}
		set.mounts.List = append(set.mounts.List, p)
	}
	raw, err := s.o.Extensions.Raw(sandbox.Owner{}, "mcpServers")
	if err != nil {
		return err
	}
	set.servers, set.states = mergeServers(set.list, values.named, globalServers(raw))
	return nil
}

// member reads an installed plugin. One whose files are gone or changed is there, with the finding.
func (s *Service) member(name string, r record, shared bool) *member {
	m := &member{name: name, record: r, shared: shared}
	key := name + " " + r.Digest + " " + string(r.Entry)
	s.mu.Lock()
	l := s.loaded[key]
	s.mu.Unlock()
	if l == nil {
		var err error
		if l, err = s.load(name, r); err != nil {
			s.o.Log.Error("plugin not loaded", "plugin", name, "error", err)
			broken := &Plugin{Name: name, Format: FormatClaude, Findings: []sandbox.Finding{{Rule: "not-loaded", Severity: sandbox.SeverityError, Message: detail(err)}}}
			m.plugin = broken
			return m
		}
		s.mu.Lock()
		if len(s.loaded) >= maxOwners {
			clear(s.loaded)
		}
		s.loaded[key] = l
		s.mu.Unlock()
	}
	m.plugin, m.dir = l.plugin, l.dir
	return m
}

func (s *Service) load(name string, r record) (*loadedPlugin, error) {
	dir, err := s.store.get(r.Digest)
	if err != nil {
		return nil, err
	}
	p, err := loadFolder(dir, name, r.Entry)
	if err == nil && p.Name != name {
		err = sandbox.Errorf(sandbox.Internal, "the plugin has another name than it was installed with")
	}
	return &loadedPlugin{plugin: p, dir: dir}, err
}

// loadFolder reads a plugin with what a marketplace says of it.
func loadFolder(dir, name string, entry json.RawMessage) (*Plugin, error) {
	var e *Entry
	if len(entry) > 0 {
		f, err := object(entry)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Internal, "what the marketplace said is damaged")
		}
		made := newEntry(f, "")
		e = &made
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the plugin's files cannot be read")
	}
	defer root.Close() //nolint:errcheck // it was read
	return Load(root, name, e)
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
		value, set := m.values[o.Key]
		v.Options[i].Set = set
		if set {
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

// changed tells those who look at plugins.
func (s *Service) changed() {
	if s.o.Changed != nil {
		s.o.Changed()
	}
}

// recorded calls do between the record of the attempt and that of its result.
func (s *Service) recorded(ctx context.Context, c sandbox.Caller, action, subject, thread string, do func(*audit.Record) error) error {
	return audit.Do(ctx, s.o.Audit, audit.Record{Tenant: c.Tenant, User: c.User, Thread: thread, Action: action, Subject: subject}.By(c), do)
}
