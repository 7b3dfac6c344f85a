package examination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/docker"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/platform/redact"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// examination is one run of `skerry doctor`. It opens the parts of a server, by the same code, on its own
// data folder. So it does not disturb a running server or change its state.
type examination struct {
	cfg          config.Config
	loaded       error  // of reading the configuration
	address, key string // of a server to ask
	asked        bool   // --server names a server to ask

	signingKey    signing.Key // of the environment
	signingKeyErr error

	mcpWait time.Duration // what one MCP server may take; 0 = mcpWait

	problems error  // of the configuration's values
	parent   string // the folder that scratch is in
	scratch  string
	notes    *noteLog
	log      *slog.Logger
	hub      *hub.Hub
	hubErr   error
	drivers  map[string]*later[driver.Driver]
	server   *later[*app.Scratch]
	tried    *later[struct{}] // each template
	closers  []func() error   // guarded by closing
	closing  sync.Mutex
}

// later is a value that one check finds and others wait for.
type later[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newLater[T any]() *later[T] { return &later[T]{done: make(chan struct{})} }

// set returns the value, once.
func (l *later[T]) set(v T, err error) {
	l.value, l.err = v, err
	close(l.done)
}

func (l *later[T]) get(ctx context.Context) (T, error) {
	select {
	case <-l.done:
		return l.value, l.err
	case <-ctx.Done():
		var none T
		return none, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "it was not there in time")
	}
}

// usable checks the configuration and reports whether there is one to look at.
func (e *examination) usable() bool {
	if e.loaded != nil {
		return false
	}
	e.problems = e.cfg.Check()
	return e.problems == nil
}

const scratchPrefix = "skerry-doctor-"

// open makes the folder to work in and the parts that wait for nothing. done takes all away.
func (e *examination) open(context.Context) (done func(), err error) {
	e.notes = &noteLog{}
	e.log = slog.New(e.notes)
	e.drivers = map[string]*later[driver.Driver]{"docker": newLater[driver.Driver](), "oci": newLater[driver.Driver](), "containerd": newLater[driver.Driver](), "kubernetes": newLater[driver.Driver](), "remote": newLater[driver.Driver]()}
	e.server, e.tried = newLater[*app.Scratch](), newLater[struct{}]()
	// In the data folder when it can be: a container engine may see that one only.
	for _, parent := range []string{e.cfg.Data, os.TempDir()} {
		if e.scratch, err = os.MkdirTemp(parent, scratchPrefix); err == nil {
			e.parent = parent
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("doctor has no folder to work in: %w", err)
	}
	if err := os.Chmod(e.scratch, 0o711); err != nil { //nolint:gosec // sandboxes pass through it, as through a data folder
		return nil, errors.Join(err, os.RemoveAll(e.scratch))
	}
	if e.mcpWait == 0 {
		e.mcpWait = mcpWait
	}
	e.hub, e.hubErr = hub.Open(hub.Options{
		ConfigPath: e.cfg.Extensions, StateDir: e.mcpState(), Sealer: knownSealer(e.cfg), Version: buildinfo.Version(), Log: e.log, LookupEnv: os.LookupEnv,
		Isolation: laterIsolation{e.server}, FirstWait: e.mcpWait, ConnectTimeout: e.mcpWait,
	})
	return e.close, nil
}

// mcpState is the folder with the logins and homes of MCP servers: the server's own, when there is one.
func (e *examination) mcpState() string {
	own := filepath.Join(e.cfg.Data, "mcp")
	if info, err := os.Stat(own); err == nil && info.IsDir() && unix.Access(own, unix.W_OK) == nil {
		return own
	}
	return filepath.Join(e.scratch, "mcp")
}

func (e *examination) onClose(f func() error) {
	e.closing.Lock()
	defer e.closing.Unlock()
	e.closers = append(e.closers, f)
}

// closeTimeout bounds clearing away: ending sandboxes and MCP servers takes a second as a rule.
const closeTimeout = time.Minute

func (e *examination) close() {
	ended := make(chan struct{})
	go func() { // ends with the process when something hangs for ever
		defer close(ended)
		e.closing.Lock()
		defer e.closing.Unlock()
		if e.hub != nil { // first: its servers may run in sandboxes of the rest
			_ = e.hub.Close()
		}
		for i := len(e.closers) - 1; i >= 0; i-- {
			if err := e.closers[i](); err != nil {
				e.log.Warn("doctor: not closed", "error", err)
			}
		}
		_ = os.RemoveAll(e.scratch)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}

// hideSecrets takes the secrets of the configuration out of everything that is printed. MCP servers' own are
// hidden by the hub.
func (e *examination) hideSecrets(out *doctorOutput) {
	values := []string{e.cfg.S3.AccessKey, e.cfg.S3.SecretKey, e.cfg.S3.SessionToken, e.cfg.Audit.WebhookSecret, os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN"), e.key}
	if u, err := url.Parse(e.cfg.Redis); err == nil {
		password, _ := u.User.Password()
		values = append(values, password, u.Query().Get("password")) // of Sentinels and of Redis
	}
	if s, err := redact.New(values...); err == nil {
		out.hide = s.String
		return
	}
	out.hide = func(text string) string { // too many bytes of secrets for redact
		for _, v := range values {
			if v != "" {
				text = strings.ReplaceAll(text, v, "***")
			}
		}
		return text
	}
}

// config is the configuration of a server that works in a folder. Its state is in that folder, too.
func (e *examination) config(data, driverName string) config.Config {
	cfg := e.cfg
	cfg.Data, cfg.Driver, cfg.Redis, cfg.Workspaces.Store = data, driverName, "", ""
	if driverName == "kubernetes" && cfg.Authority.Cert == "" {
		// The pods of a warm pool have certificates of the authority that is in the data folder.
		dir := filepath.Join(e.cfg.Data, "authority")
		cert := filepath.Join(dir, pki.CertFile)
		if _, err := os.Stat(cert); err == nil {
			cfg.Authority.Cert, cfg.Authority.Key = cert, filepath.Join(dir, pki.KeyFile)
		}
	}
	return cfg
}

// openDriver opens one driver, and probes its runtimes when it might be used: a probe leaves its image with an
// engine, unless the server uses another one.
func (e *examination) openDriver(ctx context.Context, name string) (driver.Driver, error) {
	if name == "oci" || name == e.cfg.Driver || name == "docker" && e.cfg.Driver == "auto" {
		d, closing, err := app.OpenOnlyDriver(ctx, e.config(e.scratch, name), e.log)
		if err != nil {
			return nil, err
		}
		e.onClose(closing)
		return d, nil
	}
	var d driver.Driver
	var err error
	root := filepath.Join(e.scratch, name)
	if name == "docker" {
		d, err = docker.New(docker.Options{Host: "unix://" + e.cfg.Docker.Address, Root: root, Log: e.log})
	} else {
		d, err = containerd.New(containerd.Options{Address: e.cfg.Containerd.Address, Namespace: e.cfg.Containerd.Namespace, Root: root, Log: e.log})
	}
	if err != nil {
		return nil, err
	}
	e.onClose(d.Close)
	return d, nil
}

// chosen returns the driver that a server would take, and its name.
func (e *examination) chosen(ctx context.Context) (string, driver.Driver, error) {
	name := e.cfg.Driver
	if name == "auto" {
		name = "docker"
		if _, err := e.drivers[name].get(ctx); err != nil {
			name = "oci"
		}
	}
	d, err := e.drivers[name].get(ctx)
	return name, d, err
}

// openServer opens everything of a server but what listens.
func (e *examination) openServer(ctx context.Context) (*app.Scratch, error) {
	name, d, err := e.chosen(ctx)
	if err != nil {
		return nil, err
	}
	if e.hubErr != nil {
		return nil, fmt.Errorf("no MCP server can be started: %w", e.hubErr)
	}
	e.sweep(ctx, name)
	p, err := app.OpenScratch(ctx, e.config(e.scratch, name), e.log, d, e.hub)
	if err != nil {
		return nil, err
	}
	e.onClose(p.Close)
	return p, nil
}

// openLibrary opens as much as the files of skills need, when no sandbox can be started.
func (e *examination) openLibrary(ctx context.Context) (*app.SkillLibrary, error) {
	p, err := app.OpenSkillLibrary(ctx, e.config(filepath.Join(e.scratch, "library"), e.cfg.Driver), e.log)
	if err != nil {
		return nil, err
	}
	e.onClose(p.Close)
	return p, nil
}

// sweep removes what a doctor left that was killed.
func (e *examination) sweep(ctx context.Context, driverName string) {
	old, err := filepath.Glob(filepath.Join(e.parent, scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range old {
		info, err := os.Lstat(dir)
		if err != nil || dir == e.scratch || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue // not a doctor's of ours
		}
		if err := app.RemoveScratch(ctx, e.config(dir, driverName), e.log); err != nil {
			e.log.Debug("doctor: a folder of an earlier one is left", "error", err)
		}
	}
}

// laterIsolation starts MCP servers in sandboxes as soon as doctor's own server is there.
type laterIsolation struct{ server *later[*app.Scratch] }

// Start implements transport.Isolation.
func (l laterIsolation) Start(ctx context.Context, s transport.IsolatedServer) (transport.IsolatedProcess, error) {
	p, err := l.server.get(ctx)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "sandboxes do not start here; see the line of the templates")
	}
	return p.StartIsolated(ctx, s)
}

// noteLog keeps the warnings of the parts for the checks that show them: details alone, without causes.
type noteLog struct {
	mu    sync.Mutex
	notes []note
}

type note struct {
	message string
	attrs   string
}

// maxNotes bounds what is kept.
const maxNotes = 500

// Enabled implements slog.Handler.
func (n *noteLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (n *noteLog) Handle(_ context.Context, rec slog.Record) error {
	var words []string
	rec.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			words = append(words, sandbox.TextOf(err))
		} else {
			words = append(words, a.Key+" "+a.Value.String())
		}
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.notes) < maxNotes {
		n.notes = append(n.notes, note{rec.Message, strings.Join(words, ", ")})
	}
	return nil
}

// WithAttrs implements slog.Handler. What it would add is not shown.
func (n *noteLog) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements slog.Handler.
func (n *noteLog) WithGroup(string) slog.Handler { return n }

// about returns the notes whose message has one of these beginnings.
func (n *noteLog) about(beginnings ...string) []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []note
	for _, one := range n.notes {
		for _, b := range beginnings {
			if strings.HasPrefix(one.message, b) {
				found = append(found, one)
			}
		}
	}
	return found
}

// knownSealer are the keys of a server, when there are any: nothing is made.
func knownSealer(cfg config.Config) hub.Sealer {
	if _, err := os.Stat(cfg.SecretsKeyFile()); err != nil {
		return nil
	}
	keys, err := secrets.OpenKeys(cfg.SecretsKeyFile(), cfg.Data)
	if err != nil {
		return nil
	}
	return keys
}
