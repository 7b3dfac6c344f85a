package plugins

import (
	"log/slog"
	"path"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/plugins/folder"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// SourceServer is the kind of the source of a plugin that comes with the server: see Options.Everybody.
const SourceServer = "server"

// errOfServer is the answer to who wants to remove a plugin that comes with the server.
var errOfServer = sandbox.Errorf(sandbox.Forbidden, "the plugin comes with the server and is not removed here; switch it off: PUT /api/plugins/{name} {\"enabled\": false}")

// everybody are the plugins that all users of all tenants have.
type everybody struct {
	folder *folder.Folder // nil: none
	log    *slog.Logger

	mu   sync.Mutex
	list *folder.List
	read []*member // of list, by folder
}

// current returns what the folder has now, and its plugins as members, which callers copy before they change them.
func (e *everybody) current() (*folder.List, []*member) {
	if e.folder == nil {
		return nil, nil
	}
	list := e.folder.Current()
	e.mu.Lock()
	defer e.mu.Unlock()
	if list == e.list {
		return e.list, e.read
	}
	byName := map[string]*member{}
	e.list, e.read = list, nil
	for _, p := range list.Plugins {
		m := e.member(p)
		if first := byName[m.name]; first != nil {
			first.plugin.Findings = append(first.plugin.Findings, sandbox.Finding{
				Rule: "plugin-twice", Severity: sandbox.SeverityWarning, Message: "the folder " + path.Join(folder.Installed, p.Folder) + " has a plugin of the same name, which is ignored",
			})
			continue
		}
		byName[m.name] = m
		e.read = append(e.read, m)
	}
	return e.list, e.read
}

// member reads one plugin. A plugin that does not load is there, with the finding.
func (e *everybody) member(p folder.Plugin) *member {
	m := &member{name: p.Folder, shared: true, ofServer: true, record: record{
		Digest: p.Digest, Bytes: p.Bytes, InstalledAt: p.Found.UTC(),
		Source: sandbox.PluginSource{Kind: SourceServer, Path: path.Join(folder.Installed, p.Folder)},
	}}
	err := p.Err
	if err == nil {
		m.plugin, err = loadFolder(p.Dir, p.Folder, nil)
	}
	if err != nil {
		e.log.Error("plugin not loaded", "plugin", p.Folder, "error", err)
		m.plugin = broken(p.Folder, err)
		return m
	}
	m.name, m.dir = m.plugin.Name, p.Dir
	return m
}
