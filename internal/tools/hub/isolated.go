package hub

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/platform/networks"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// isolated returns the description of the server for its sandbox.
func (c *dial) isolated(t *serverconfig.Target) transport.IsolatedServer {
	s := transport.IsolatedServer{
		Server: c.key.server, Owner: sandbox.Owner{Tenant: c.key.scope.Tenant, User: c.key.scope.User}, Home: homeName(c.key.server, c.key.scope),
		Thread: c.key.scope.Thread, Plugin: c.cfg.User != nil,
		Argv: append([]string{t.Command}, t.Args...), Env: t.Env, Egress: c.cfg.Sandbox.Egress,
	}
	if u := c.cfg.User; u != nil {
		s.Addresses = c.o.UserServers.Addresses
		if u.Root != "" {
			s.Env = append(pluginFolders(), s.Env...)
			s.Copy = &sandbox.FolderCopy{From: sandbox.PluginFiles, To: sandbox.PluginRoot, Key: u.Key}
		}
	} else {
		s.Addresses, _ = networks.Parse(c.cfg.Sandbox.Addresses) //nolint:errcheck // it was checked when it was read
	}
	for inside, host := range c.cfg.Sandbox.Mounts {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: host, Target: inside, ReadOnly: true})
	}
	slices.SortFunc(s.Mounts, func(a, b sandbox.Mount) int { return strings.Compare(a.Target, b.Target) })
	return s
}

// pluginFolders are the variables by which a program of a plugin finds its folders; what the plugin sets itself counts.
func pluginFolders() []string {
	var list []string
	folders := sandbox.PluginFolders()
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		list = append(list, name+"="+folders[name])
	}
	return list
}

func (c *dial) isolatedTransport(ctx context.Context, l *link, log *slog.Logger) (mcp.Transport, error) {
	if c.o.Isolation == nil {
		return nil, serverconfig.InvalidField("sandbox", "this server cannot start sandboxes for MCP servers")
	}
	t, err := c.target(ctx)
	if err != nil {
		return nil, err
	}
	l.madeFor(t)
	return transport.NewStdio(transport.NewTraffic(c.o.MaxResult+transport.Slack, l.calls.Hear), log, func(ctx context.Context) (*transport.Process, error) {
		p, err := transport.StartIsolated(ctx, c.o.Isolation, c.isolated(t), c.running, log, t.Redact)
		l.process = p
		return p, err
	}), nil
}
