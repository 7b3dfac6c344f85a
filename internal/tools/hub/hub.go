package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// Options say how a Hub works. ConfigPath, Log and LookupEnv are needed; a limit of 0 takes its
// default.
type Options struct {
	// ConfigPath is extensions_config.json. It need not exist.
	ConfigPath string
	Log        *slog.Logger
	// LookupEnv returns the values that ${NAME} in the configuration stands for.
	LookupEnv func(name string) (string, bool)
	// Secrets returns the values that ${secret:NAME} stands for; nil: a server that names one is not usable.
	Secrets serverconfig.Secrets
	// Sealer encrypts the logins that are kept; nil: they are kept as they are.
	Sealer Sealer
	// Pins notices when tools change; nil: changes are not noticed. With Quarantine changed tools are not offered, unless the
	// configuration of their server says otherwise.
	Pins       ToolPins
	Quarantine bool
	// StateDir holds the home folders of stdio servers and, in a folder that no other user of the machine may enter, logins. They outlive a connection; with "" they are
	// made below the system's folder for temporary files and go when the hub is closed.
	StateDir string
	// Isolation starts the servers that have "sandbox" in their configuration; nil: they are refused.
	Isolation transport.Isolation
	// UserServers are users' own servers, from plugins; the zero value: nothing.
	UserServers UserServers
	// Version is told to MCP servers.
	Version string
	// Tracer makes the spans of requests to MCP servers, and names them in the requests' _meta; nil: none are made.
	Tracer *tracing.Tracer

	CallTimeout    time.Duration // of a call, where the server's configuration says nothing; 60 s
	ConnectTimeout time.Duration // of one attempt to connect and to list the tools; 30 s
	FirstWait      time.Duration // how long Tools waits for servers that connect for the first time; 8 s: a server that is silent on server/discover takes 5
	IdleTimeout    time.Duration // after which an unused connection is closed; 10 min
	DripTime       time.Duration // that one message of a stdio server may take while less than 64 KiB a second arrive: no other gets through meanwhile; 10 s
	MaxParallel    int           // calls at once for each connection; 16
	MaxResult      int           // bytes of a result; 16 MiB
	MaxConnections int           // of all servers and scopes; 200
}

func (o *Options) fill() {
	setDefault(&o.CallTimeout, 60*time.Second)
	setDefault(&o.ConnectTimeout, 30*time.Second)
	setDefault(&o.FirstWait, 8*time.Second)
	setDefault(&o.IdleTimeout, 10*time.Minute)
	setDefault(&o.DripTime, 10*time.Second)
	setDefault(&o.MaxParallel, 16)
	setDefault(&o.MaxResult, 16<<20)
	setDefault(&o.MaxConnections, 200)
	setDefault(&o.Version, "devel")
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Sealer encrypts what is kept in files. Only with the same purpose a text is opened again.
type Sealer = login.Sealer

// tickEvery is how often the configuration file is looked at, failed servers are tried again, and idle
// connections are closed.
const tickEvery = 500 * time.Millisecond

// Hub is the connections to MCP servers, and what threads and operators do with them. All methods of its parts may be
// called at the same time.
type Hub struct {
	Catalog  *Catalog
	Upstream *Upstream
	Servers  *Servers
	Logins   *Logins

	homes      homes
	vault      *login.Vault
	background *background
	changes    *changes
	pool       *pool
	configs    *configurations
}

// Open makes a hub. It connects to nothing yet. A configuration that cannot be read is not an error:
// the hub then has no servers, and ConfigError says why. An error is about the hub's own folders.
func Open(o Options) (*Hub, error) {
	if o.Log == nil || o.LookupEnv == nil || o.ConfigPath == "" {
		return nil, errors.New("mcphub: ConfigPath, Log and LookupEnv are needed")
	}
	o.fill()
	path, err := filepath.Abs(o.ConfigPath)
	if err != nil {
		return nil, fmt.Errorf("mcphub: %w", err)
	}
	files, err := extensions.New(path)
	if err != nil {
		return nil, fmt.Errorf("mcphub: %w", err)
	}
	h := &Hub{homes: homes{dir: o.StateDir}, background: newBackground(), changes: newChanges()}
	if err := h.homes.open(); err != nil {
		return nil, fmt.Errorf("mcphub: %w", err)
	}
	h.vault = login.OpenVault(filepath.Join(h.homes.dir, "logins"), o.Sealer)
	d := &dialer{
		o: &o, expander: &serverconfig.Expander{LookupEnv: o.LookupEnv, Secrets: o.Secrets, Sealer: o.Sealer}, vault: h.vault,
		homes: h.homes.dir, running: &h.background.wg, pins: &pins{o.Pins, o.Quarantine, o.Log}, patience: discoverTimeout,
	}
	h.pool = &pool{o: &o, background: h.background, changes: h.changes, dialer: d, conns: map[connKey]*conn{}}
	h.configs = &configurations{file: serverconfig.NewFile(path, files, o.Log), users: o.UserServers, pool: h.pool, changes: h.changes, log: o.Log}
	h.Catalog = &Catalog{o: &o, configs: h.configs, pool: h.pool, changes: h.changes, views: map[serverconfig.Scope]*view{}}
	h.Upstream = &Upstream{o: &o, catalog: h.Catalog, background: h.background, changes: h.changes}
	h.Servers = &Servers{configs: h.configs, pool: h.pool, catalog: h.Catalog, vault: h.vault, installs: make(places, maxInstalls)}
	h.Logins = &Logins{configs: h.configs, pool: h.pool, dialer: d}
	h.configs.file.Check(time.Now())
	h.background.spawn(h.tick)
	return h, nil
}

// RenewLogins encrypts logins that are not encrypted, or are so for a key that stale knows. It leaves a
// login that no key opens where it is, and counts it.
func (h *Hub) RenewLogins(ctx context.Context, stale func(purpose string, sealed []byte) bool) (changed, unreadable int, err error) {
	return h.vault.Renew(ctx, stale)
}

// Close ends all connections and the processes behind them. Calls in flight fail.
func (h *Hub) Close() error {
	if !h.pool.close() {
		return nil
	}
	h.Logins.pending.expire(time.Time{})
	return h.homes.close()
}

// Version moves on whenever the tools of any thread may have changed. It sees a change of the
// configuration file at once.
func (h *Hub) Version() uint64 {
	h.configs.current()
	return h.changes.version.Load()
}

// Changed returns a channel that is closed at the next change of Version.
func (h *Hub) Changed() <-chan struct{} {
	return h.changes.next()
}

// Announce moves Version on: who may use which tools may have changed.
func (h *Hub) Announce() { h.changes.bump(true) }

// ConfigError says why the configuration file is not what the hub works with, or nil. The text names
// the place within the file.
func (h *Hub) ConfigError() error {
	h.configs.current()
	return h.configs.file.Problem()
}

// tick does what must happen without a request.
func (h *Hub) tick() {
	checked := time.Now()
	for now := range every.Tick(h.background.ctx, tickEvery) {
		h.configs.current()
		h.configs.refresh(now)
		h.pool.maintain(now)
		h.Logins.pending.expire(now)
		if now.Sub(checked) > recheckEvery {
			checked = now
			h.pool.recheck("")
		}
	}
}

// LookAgain looks at the servers of all users that are known here: what has changed is in force, and told, when it
// returns.
func (h *Hub) LookAgain() { h.configs.again(time.Time{}) }

// Recheck compares the tools of all connections to a server again.
func (h *Hub) Recheck(server string) { h.pool.recheck(server) }

// SecretsChanged looks at all connections: a connection that would be made with other values now ends after its calls,
// and is made anew when it is needed.
func (h *Hub) SecretsChanged() { h.pool.secretsChanged() }

// homes are the home folders of stdio servers.
type homes struct {
	dir  string
	temp bool
}

func (s *homes) open() error {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "skerry-mcp-")
		if err != nil {
			return err
		}
		s.dir, s.temp = dir, true
	} else if err := os.MkdirAll(s.dir, 0o711); err != nil {
		return err
	}
	// Servers with uids of their own pass through it and cannot list it. The umask may be narrower.
	return os.Chmod(s.dir, 0o711)
}

func (s *homes) close() error {
	if !s.temp {
		return nil
	}
	return os.RemoveAll(s.dir)
}
