package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/plugins"
	"github.com/skerry-sandbox/skerry/internal/plugins/folder"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	bundled "github.com/skerry-sandbox/skerry/plugins"
)

// extensionSet is what users have switched on: skills and MCP servers by the files of extensions, and those of plugins.
type extensionSet struct {
	files   *extensions.Files
	plugins *plugins.Service
	changes *changes // of plugins
	homes   pluginHomes
	from    []netip.Prefix
	egress  []string
}

// openExtensions opens the files of extensions, and the plugins.
func (b *builder) openExtensions(f *foundation, folders *workspace.Folders) (*extensionSet, error) {
	x := &extensionSet{changes: &changes{}, egress: b.cfg.Plugins.Egress, homes: pluginHomes{folders.Homes(), f.data.path}}
	var err error
	if x.files, err = extensions.New(b.cfg.Extensions); err != nil {
		return nil, err
	}
	if x.from, err = b.cfg.Plugins.Prefixes(); err != nil {
		return nil, fmt.Errorf("plugins.addresses: %w", err)
	}
	if _, err := egress.ParseRules(b.cfg.Plugins.Egress); err != nil {
		return nil, fmt.Errorf("plugins.egress: %w", err)
	}
	if _, err := egress.ParseRules(b.cfg.Plugins.PackageHosts); err != nil {
		return nil, fmt.Errorf("plugins.package_hosts: %w", err)
	}
	own := filepath.Join(f.data.path, "plugins")
	everybody, err := folder.Open(folder.Options{Dir: b.cfg.Plugins.Path, FS: bundled.FS, Keep: filepath.Join(own, f.data.ofSlot("everybody")), Log: b.log})
	if err != nil {
		return nil, err
	}
	x.plugins, err = plugins.Open(plugins.Options{
		Dir: own, Everybody: everybody, WithoutServers: !b.cfg.Plugins.AutoMergeMCP, Stage: f.data.ofSlot("stage"), Extensions: x.files, Audit: f.audit, Log: b.log,
		RunCommands: b.cfg.Plugins.RunCommands, Trust: b.cfg.TrustInstalls, Addresses: x.from, Folders: b.cfg.Plugins.Folders,
		Changed: x.changes.notify, Removed: x.homes.remove, Sealer: f.sealer,
	})
	if err != nil {
		return nil, err
	}
	b.onClose(x.plugins.Close)
	f.secrets.AlsoRenew(x.plugins.Renew)
	if !f.data.alone() {
		return x, nil // a folder without an owner may be what another server installs
	}
	if err := x.plugins.Sweep(); err != nil {
		b.log.Warn("plugins: files of none stay behind", "error", err)
	}
	return x, nil
}

// servers are what the hub has of plugins.
func (x *extensionSet) servers() hub.UserServers {
	return hub.UserServers{Of: x.plugins.Servers, Addresses: x.from, Egress: x.egress}
}

// commands returns what a user's plugins add to prompts.
func (x *extensionSet) commands(o sandbox.Owner) ([]prompt.Command, error) {
	list, err := x.plugins.AllCommands(o)
	if err != nil {
		return nil, err
	}
	commands := make([]prompt.Command, 0, len(list))
	for _, c := range list {
		commands = append(commands, prompt.Command{Name: c.Name, Description: c.Description, ArgumentHint: c.ArgumentHint})
	}
	return commands, nil
}

// changes tells those who listen that the plugins of users have changed.
type changes struct {
	mu   sync.Mutex
	told []func()
}

// listen has f called after each change from now on.
func (c *changes) listen(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, f)
}

func (c *changes) notify() {
	c.mu.Lock()
	told := slices.Clone(c.told)
	c.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// pluginHomes are the home folders of plugins' MCP servers.
type pluginHomes struct {
	*workspace.Homes
	data string
}

// homesTime bounds the removal of what a plugin's servers kept.
const homesTime = 5 * time.Minute

// remove removes what a plugin's MCP servers have kept for their users.
func (h pluginHomes) remove(o sandbox.Owner, shared bool, servers []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), homesTime)
	defer cancel()
	users := []string{o.User}
	if shared {
		entries, err := os.ReadDir(filepath.Join(h.data, "tenants", o.Tenant, "users"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			users = append(users, e.Name())
		}
	}
	var errs []error
	for _, user := range users {
		owner := sandbox.Owner{Tenant: o.Tenant, User: user}
		for _, name := range servers {
			errs = append(errs, h.Remove(ctx, owner, hub.HomeName(name, owner)))
		}
	}
	return errors.Join(errs...)
}

// sweepHomes removes the homes of servers whose plugin or thread is gone: a server that ended may have had no
// time to. What cannot be looked up now stays.
func (x *extensionSet) sweepHomes(ctx context.Context, threads *store.Store, log *slog.Logger) {
	err := x.homes.Sweep(ctx, func(h workspace.Home) bool {
		switch {
		case h.Plugin:
			has, err := x.plugins.HasServer(h.Owner, h.Server)
			return err == nil && !has
		case h.Thread != "":
			_, err := threads.Thread(ctx, sandbox.Thread{Owner: h.Owner, ID: h.Thread})
			return errors.Is(err, sandbox.NotFound)
		}
		return false
	})
	if err != nil {
		log.Warn("home folders of MCP servers that are gone stay behind", "error", err)
	}
}

// pluginUse is the plugins with threads that their commands may reach.
type pluginUse struct {
	*plugins.Service
	orch *orchestrator.Orchestrator
}

// Invoke makes the text of a command for a thread.
func (u pluginUse) Invoke(ctx context.Context, c sandbox.Caller, thread, name, command, args string) (sandbox.PluginMessage, error) {
	return u.Service.Invoke(ctx, c, threadUse{u.orch}, thread, name, command, args)
}

// threadUse is what a command may reach of a thread.
type threadUse struct{ orch *orchestrator.Orchestrator }

// ReadThreadFile implements plugin.Threads.
func (u threadUse) ReadThreadFile(ctx context.Context, c sandbox.Caller, thread, path string, limit int64) (data []byte, more bool, err error) {
	err = u.orch.Files.ReadFiles(ctx, c, thread, func(f *paths.FS) error {
		file, err := f.Open(path)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // read-only
		data, err = io.ReadAll(io.LimitReader(file, limit+1))
		return err
	})
	if more = int64(len(data)) > limit; more {
		data = data[:limit]
	}
	return data, more, err
}

// RunInThread implements plugin.Threads.
func (u threadUse) RunInThread(ctx context.Context, c sandbox.Caller, thread string, cmd sandbox.Command) (sandbox.Result, error) {
	id, err := u.orch.Runs.RunCommand(ctx, c, thread, cmd)
	if err != nil {
		return sandbox.Result{}, err
	}
	return u.orch.Execs.Wait(ctx, c, thread, id)
}
