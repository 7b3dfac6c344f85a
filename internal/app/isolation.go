package app

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
	"github.com/skerry-sandbox/skerry/internal/tools/servers"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// toolServerTemplate is the template of MCP servers that run in sandboxes.
const toolServerTemplate = "mcp-server"

// isolation lets the hub start servers in sandboxes, each start and each refused connection on the
// record.
type isolation struct {
	sandboxes *servers.Sandboxes
	audit     *audit.Log
	limits    *limits.Gate
}

// openIsolation removes what a former server left, and is ready to start servers.
func (b *builder) openIsolation(ctx context.Context, f *foundation, m *materials) (*isolation, error) {
	tmpl, ok := m.templates[toolServerTemplate]
	if !ok {
		tmpl = m.templates[b.cfg.DefaultTemplate]
	}
	tmpl.Template.Image = tmpl.Image
	i := &isolation{audit: f.audit, limits: m.limits}
	homes := m.folders.Homes()
	var err error
	i.sandboxes, err = servers.New(ctx, servers.Options{
		Driver: m.driver, Template: tmpl.Template, Daemon: m.sandboxd, Install: f.data.install, Replica: f.data.peers.ID(), Alive: f.data.peers.Alive,
		RunDir: filepath.Join(b.cfg.Data, "mcp-run"), StartTime: b.cfg.StartTimeout, Log: b.log, Refused: i.refused,
		Home: func(ctx context.Context, s servers.Spec) (string, int, error) {
			home := workspace.Home{Owner: s.Owner, Name: s.Home, Server: s.Server, Thread: s.Thread, Plugin: s.Plugin}
			return homes.Open(ctx, home, tmpl.Limits.DiskBytes)
		},
	})
	return i, err
}

// Start implements transport.Isolation.
func (i *isolation) Start(ctx context.Context, s transport.IsolatedServer) (transport.IsolatedProcess, error) {
	rules, err := egress.ParseRules(s.Egress)
	if err != nil { // the administrator's mistake, not the caller's
		var known *sandbox.Error
		if errors.As(err, &known) {
			err = sandbox.Errorf(sandbox.Unavailable, "%s", known.Detail)
		}
		return nil, err
	}
	if s.Owner != (sandbox.Owner{}) { // its program could write, which a user with too many files may not
		if err := i.limits.Files(ctx, sandbox.Caller{Owner: s.Owner}); err != nil {
			return nil, err
		}
	}
	v, err := i.sandboxes.Start(ctx, servers.Spec{
		Server: s.Server, Owner: s.Owner, Thread: s.Thread, Plugin: s.Plugin, Home: s.Home, Argv: s.Argv, Env: s.Env, Egress: rules,
		Addresses: s.Addresses, Mounts: s.Mounts, Copy: s.Copy,
	})
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	rec := i.record(audit.ActionSandboxCreate, s.Owner, "mcp server "+s.Server, outcome)
	if _, e := i.audit.Append(context.WithoutCancel(ctx), rec); e != nil && err == nil {
		v.Stop()
		err = e
	}
	if err != nil {
		return nil, err
	}
	return isolated{v}, nil
}

func (i *isolation) refused(server string, o sandbox.Owner, target string) {
	rec := i.record(audit.ActionEgressRefused, o, "mcp server "+server, "denied")
	rec.Detail = target
	// The connection is refused whether or not it can be recorded; Append logs a failure itself.
	_, _ = i.audit.Append(context.Background(), rec)
}

func (i *isolation) record(action string, o sandbox.Owner, subject, outcome string) audit.Record {
	if o.Tenant == "" {
		o = LocalOwner // of all
	}
	return audit.Record{Tenant: o.Tenant, User: o.User, Action: action, Phase: audit.PhaseResult, Subject: subject, Outcome: outcome}
}

// isolated is a running server as the hub takes it.
type isolated struct{ *servers.Server }

// Stdin implements transport.IsolatedProcess.
func (s isolated) Stdin() transport.Stream { return halfClosing{s.Server.Stdio} }

// Stdout implements transport.IsolatedProcess.
func (s isolated) Stdout() transport.Stream { return s.Server.Stdio }

// Stderr implements transport.IsolatedProcess.
func (s isolated) Stderr() transport.Stream { return s.Server.Stderr }

// halfClosing ends what is written and leaves what is read.
type halfClosing struct{ *net.UnixConn }

// Close implements io.Closer.
func (c halfClosing) Close() error { return c.CloseWrite() }
