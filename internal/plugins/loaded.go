package plugins

import (
	"encoding/json"
	"log/slog"
	"os"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/plugins/tree"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// loadedPlugins are the plugins that this process has read from the store.
type loadedPlugins struct {
	store *tree.Store
	log   *slog.Logger

	mu    sync.Mutex
	byKey map[string]*loadedPlugin
}

type loadedPlugin struct {
	plugin *Plugin
	dir    string
}

// member reads an installed plugin. One whose files are gone or changed is there, with the finding.
func (l *loadedPlugins) member(name string, r record, shared bool) *member {
	m := &member{name: name, record: r, shared: shared}
	key := name + " " + r.Digest + " " + string(r.Entry)
	l.mu.Lock()
	found := l.byKey[key]
	l.mu.Unlock()
	if found == nil {
		var err error
		if found, err = l.load(name, r); err != nil {
			l.log.Error("plugin not loaded", "plugin", name, "error", err)
			m.plugin = broken(name, err)
			return m
		}
		l.mu.Lock()
		if len(l.byKey) >= maxOwners {
			clear(l.byKey)
		}
		l.byKey[key] = found
		l.mu.Unlock()
	}
	m.plugin, m.dir = found.plugin, found.dir
	return m
}

// broken stands for a plugin that does not load.
func broken(name string, err error) *Plugin {
	return &Plugin{Name: name, Format: FormatClaude, Findings: []sandbox.Finding{{Rule: "not-loaded", Severity: sandbox.SeverityError, Message: detail(err)}}}
}

func (l *loadedPlugins) load(name string, r record) (*loadedPlugin, error) {
	dir, err := l.store.Get(r.Digest)
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
