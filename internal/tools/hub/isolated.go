package hub

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// Isolation starts stdio servers in sandboxes of their own. Start returns when the program runs, or has
// failed to, which its Stderr says. Errors carry a sandbox.Kind.
type Isolation interface {
	Start(ctx context.Context, s IsolatedServer) (IsolatedProcess, error)
}

// IsolatedServer is what to start. All text is expanded.
type IsolatedServer struct {
	Server string        // its name in the configuration
	Owner  sandbox.Owner // empty for a server that all share
	Home   string        // name of its home folder: the same name is the same folder
	Argv   []string
	Env    []string // "NAME=value"
	Egress []string // hosts that it may reach: see package egress
	Mounts []sandbox.Mount
}

// IsolatedProcess is a running server. Stdin ends with Stdin.Close, everything with Stop, which returns
// when it is gone.
type IsolatedProcess interface {
	Stdin() Stream
	Stdout() Stream
	Stderr() Stream
	Stop()
}

// Stream is one of the standard streams.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// isolatedHome is the home folder of a server inside its sandbox.
const isolatedHome = "/srv/home"

// isolated returns the description of the server for its sandbox.
func (c *conn) isolated(t *serverconfig.Target) IsolatedServer {
	s := IsolatedServer{
		Server: c.key.server, Owner: sandbox.Owner{Tenant: c.key.scope.Tenant, User: c.key.scope.User}, Home: dialer{c}.homeName(),
		Argv: append([]string{t.Command}, t.Args...), Env: t.Env, Egress: c.cfg.Sandbox.Egress,
	}
	for inside, host := range c.cfg.Sandbox.Mounts {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: host, Target: inside, ReadOnly: true})
	}
	slices.SortFunc(s.Mounts, func(a, b sandbox.Mount) int { return strings.Compare(a.Target, b.Target) })
	return s
}

// startIsolated starts the server in its sandbox. The goroutines that belong to it end with it; wg
// counts them.
func startIsolated(ctx context.Context, i Isolation, s IsolatedServer, wg *sync.WaitGroup, log *slog.Logger, redact *serverconfig.Redactor) (*process, error) {
	v, err := i.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	p := &process{stdin: v.Stdin(), stdout: v.Stdout(), stderr: v.Stderr(), log: log, exited: make(chan struct{}), tail: &tail{redact: redact}}
	p.line.r = p.stdout
	stop := make(chan struct{})
	var once sync.Once
	p.signal = func(unix.Signal) { once.Do(func() { close(stop) }) }
	silent := make(chan struct{})
	wg.Go(func() {
		defer close(silent) // the program has ended, and all that held its standard error
		p.readErrors()
	})
	wg.Go(func() {
		select {
		case <-stop:
		case <-silent:
		}
		v.Stop()
		<-silent
		p.end = "it ended"
		close(p.exited)
	})
	return p, nil
}

func (c *conn) isolatedTransport(ctx context.Context, l *link, log *slog.Logger) (mcp.Transport, error) {
	if c.h.o.Isolation == nil {
		return nil, serverconfig.InvalidField("sandbox", "this server cannot start sandboxes for MCP servers")
	}
	t, err := c.h.expander.Expand(ctx, c.cfg, c.key.scope, isolatedHome)
	if err != nil {
		return nil, err
	}
	l.redact, l.calls.redact, l.made = t.Redact, t.Redact, t.Sum()
	return &stdioTransport{traffic: newTraffic(c.h.o.MaxResult+slack, l.calls.hear), log: log, start: func(ctx context.Context) (*process, error) {
		p, err := startIsolated(ctx, c.h.o.Isolation, c.isolated(t), &c.h.wg, log, t.Redact)
		l.process = p
		return p, err
	}}, nil
}
