package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/plugins"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// openPlugins opens the plugins, which the hub and the library of skills ask.
func (p *App) openPlugins(context.Context) (err error) {
	if p.extensions, err = extensions.New(p.cfg.Extensions); err != nil {
		return err
	}
	addresses, err := p.cfg.Plugins.Prefixes()
	if err != nil {
		return fmt.Errorf("plugins.addresses: %w", err)
	}
	if _, err := egress.ParseRules(p.cfg.Plugins.Egress); err != nil {
		return fmt.Errorf("plugins.egress: %w", err)
	}
	p.plugins, err = plugins.Open(plugins.Options{
		Dir: filepath.Join(p.cfg.Data, "plugins"), Stage: p.ofSlot("stage"), Extensions: p.extensions, Audit: p.audit, Log: p.log,
		RunCommands: p.cfg.Plugins.RunCommands, Trust: p.cfg.TrustInstalls, Addresses: addresses, Folders: p.cfg.Plugins.Folders,
		Changed: p.pluginsChanged, Removed: p.pluginRemoved, Sealer: p.sealer,
	})
	if err != nil {
		return err
	}
	p.onClose(p.plugins.Close)
	p.secrets.AlsoRenew(p.plugins.Renew)
	if !p.onlyServer() {
		return nil // a folder without an owner may be what another server installs
	}
	if err := p.plugins.Sweep(); err != nil {
		p.log.Warn("plugins: files of none stay behind", "error", err)
	}
	return nil
}

// userServers are what the hub has of plugins.
func (p *App) userServers() hub.UserServers {
	addresses, _ := p.cfg.Plugins.Prefixes() // openPlugins has looked at them
	return hub.UserServers{Of: p.plugins.Servers, Addresses: addresses, Egress: p.cfg.Plugins.Egress}
}

// pluginCommands returns what a user's plugins add to prompts.
func (p *App) pluginCommands(o sandbox.Owner) ([]prompt.Command, error) {
	list, err := p.plugins.AllCommands(o)
	if err != nil {
		return nil, err
	}
	commands := make([]prompt.Command, 0, len(list))
	for _, c := range list {
		commands = append(commands, prompt.Command{Name: c.Name, Description: c.Description, ArgumentHint: c.ArgumentHint})
	}
	return commands, nil
}

// pluginsChanged applies a change of plugins to tools and to the folders of sandboxes.
func (p *App) pluginsChanged() {
	if p.hub != nil {
		p.hub.LookAgain()
	}
	if p.skills != nil {
		p.skills.Notify()
	}
}

// pluginRemoved removes what a plugin's MCP servers have kept for their users.
func (p *App) pluginRemoved(o sandbox.Owner, shared bool, servers []string) error {
	users := []string{o.User}
	if shared {
		entries, err := os.ReadDir(filepath.Join(p.cfg.Data, "tenants", o.Tenant, "users"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			users = append(users, e.Name())
		}
	}
	var errs []error
	for _, user := range users {
		for _, name := range servers {
			home := filepath.Join(p.cfg.Data, "mcp-homes", hub.HomeName(name, sandbox.Owner{Tenant: o.Tenant, User: user}))
			errs = append(errs, os.RemoveAll(home))
		}
	}
	return errors.Join(errs...)
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
