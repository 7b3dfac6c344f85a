package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/approval"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/platform/tlsfiles"
)

// Deadlines of the server as a process.
const (
	// startTimeout bounds opening the parts; the longest of it is importing the images of templates, once, and
	// adopting the sandboxes of a former server.
	startTimeout = 5 * time.Minute
	// HeaderTimeout is how long a client may take to send its request's head; idleTimeout how long a
	// connection without a request is kept. Bodies and answers are bounded by the handlers.
	HeaderTimeout = 10 * time.Second
	IdleTimeout   = 2 * time.Minute
)

// App is a server that was built and can be run.
type App struct {
	*builder

	tls       *tlsfiles.Server // nil: http
	listener  net.Listener
	peers     *peer.Peers
	approvals *approval.Approvals
	packs     *packSet // nil: the server takes none
	orch      *orchestrator.Orchestrator
	api       http.Handler

	traffic traffic
	halt    *time.Timer // ends the process when it does not stop; nil before it is told to
}

// builder is what each part is built with: the configuration and the log. It closes the parts at the end.
type builder struct {
	cfg config.Config
	log *slog.Logger
	closers
}

// New builds a server of its configuration: each part gets the parts before it. The caller calls Run once, and Close.
func New(ctx context.Context, cfg config.Config, log *slog.Logger) (*App, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the server gives every workspace a uid of its own and so must run as root")
	}
	if err := noCoreFiles(); err != nil {
		return nil, err
	}
	b := &builder{cfg: cfg, log: log}
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	p, err := b.server(ctx, startCtx)
	if err != nil {
		cancel()
		return nil, errors.Join(err, b.Close())
	}
	b.onClose(func() error { cancel(); return nil })
	return p, nil
}

// server builds all parts. What lives as long as the server gets ctx, what only starts has startCtx.
func (b *builder) server(ctx, startCtx context.Context) (*App, error) {
	tls, err := b.openTLS(startCtx)
	if err != nil {
		return nil, err
	}
	// It comes before what is made on the disk: a server whose address is taken leaves nothing behind.
	l, err := openListener(b.cfg, tls, b.log)
	if err != nil {
		return nil, err
	}
	b.onClose(func() error { return ignoreClosedListener(l.Close()) })
	f, err := b.openFoundation(startCtx, b.openVault)
	if err != nil {
		return nil, err
	}
	if f.tracer, err = b.openTracing(startCtx, f.data.peers); err != nil {
		return nil, err
	}
	work := b.newWork(f)
	drv, err := b.openDriver(startCtx)
	if err != nil {
		return nil, err
	}
	disk, err := openDisk(startCtx, b.cfg, f.data, drv, b.log)
	if err != nil {
		return nil, err
	}
	// It comes after the disk, which may bring the threads' folders with it.
	if err := f.store.CheckUIDs(startCtx); err != nil {
		return nil, err
	}
	m, err := b.openMaterials(startCtx, f, drv, disk)
	if err != nil {
		return nil, err
	}
	x, err := b.openExtensions(f, m.folders)
	if err != nil {
		return nil, err
	}
	if f.data.alone() {
		x.sweepHomes(startCtx, f.store, b.log)
	}
	t, err := b.openTools(startCtx, f, m.isolation, x)
	if err != nil {
		return nil, err
	}
	s, err := b.openSandboxes(startCtx, f, m, x, work, t, t.policy)
	if err != nil {
		return nil, err
	}
	p := &App{builder: b, tls: tls, listener: l, peers: f.data.peers, approvals: work.approvals, packs: t.packs, orch: s.orch}
	p.api, err = b.handler(ctx, tls, f, m, x, t, work, s)
	return p, err
}

// noCoreFiles switches off core files: the memory of this process, and of the MCP servers that it starts, has secrets.
// The highest limit stays: a runtime sets limits of its own in sandboxes, and could not raise it again.
func noCoreFiles() error {
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("core files: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Max: core.Max}); err != nil {
		return fmt.Errorf("core files: %w", err)
	}
	return nil
}

// Run serves until ctx ends, and then drains. It calls ready with the address when the server listens.
func (p *App) Run(ctx context.Context, ready func(addr string)) error {
	return p.listen(ctx, p.api, ready)
}

// Close closes the parts, last first.
func (p *App) Close() error {
	err := p.builder.Close()
	if p.halt != nil {
		p.halt.Stop()
	}
	return err
}
