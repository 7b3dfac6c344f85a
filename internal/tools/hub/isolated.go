package hub

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// isolated returns the description of the server for its sandbox.
func (c *conn) isolated(t *serverconfig.Target) transport.IsolatedServer {
	s := transport.IsolatedServer{
		Server: c.key.server, Owner: sandbox.Owner{Tenant: c.key.scope.Tenant, User: c.key.scope.User}, Home: dialer{c}.homeName(),
		Argv: append([]string{t.Command}, t.Args...), Env: t.Env, Egress: c.cfg.Sandbox.Egress,
	}
	for inside, host := range c.cfg.Sandbox.Mounts {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: host, Target: inside, ReadOnly: true})
	}
	slices.SortFunc(s.Mounts, func(a, b sandbox.Mount) int { return strings.Compare(a.Target, b.Target) })
	return s
}

func (c *conn) isolatedTransport(ctx context.Context, l *link, log *slog.Logger) (mcp.Transport, error) {
	if c.h.o.Isolation == nil {
		return nil, serverconfig.InvalidField("sandbox", "this server cannot start sandboxes for MCP servers")
	}
	t, err := c.h.expander.Expand(ctx, c.cfg, c.key.scope, transport.IsolatedHome)
	if err != nil {
		return nil, err
	}
	l.madeFor(t)
	return transport.NewStdio(transport.NewTraffic(c.h.o.MaxResult+transport.Slack, l.calls.Hear), log, func(ctx context.Context) (*transport.Process, error) {
		p, err := transport.StartIsolated(ctx, c.h.o.Isolation, c.isolated(t), &c.h.wg, log, t.Redact)
		l.process = p
		return p, err
	}), nil
}
