package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// dialer connects to servers.
type dialer struct {
	o        *Options
	expander *serverconfig.Expander
	vault    *login.Vault
	homes    string          // the folder of the homes of stdio servers
	running  *sync.WaitGroup // counts the goroutines of programs
	pins     *pins
	patience time.Duration // discoverTimeout, but in tests
}

// dial connects to one server for one scope, and lists its tools.
type dial struct {
	*dialer
	key     connKey
	cfg     *serverconfig.Server
	current func() *serverconfig.Server // the configuration in force: it may differ in its terms
}

// discoverTimeout bounds the question by which the SDK finds out whether a server speaks the stateless
// protocol (2026-07-28). Servers before it answer with an error, or, some of them, not at all.
const discoverTimeout = 5 * time.Second

// link is a live connection.
type link struct {
	session *mcp.ClientSession
	remote  *transport.Remote  // of an HTTP server
	process *transport.Process // of a stdio server
	redact  *serverconfig.Redactor
	made    [sha256.Size]byte // of the target that it was connected to
	born    time.Time
	ctx     context.Context // ends when the link is closed
	cancel  context.CancelFunc
	dead    chan struct{}                          // closed when the connection no longer exists
	changed chan struct{}                          // the server says that its tools changed
	others  map[sandbox.UpstreamKind]chan struct{} // and what else it offers
	calls   *transport.Listeners
	log     *slog.Logger
	logging sync.Once // the server is asked for its log messages
	once    sync.Once
	drips   atomic.Bool // it was ended because one message stood in the way of all others
	updates updates     // of resources that are watched
}

// madeFor notes what the link is made with.
func (l *link) madeFor(t *serverconfig.Target) {
	l.redact, l.made = t.Redact, t.Sum()
	l.calls.Hide(t.Redact)
}

// close ends the link; calls in it fail. It returns when what was behind it is gone.
func (l *link) close() {
	l.once.Do(func() {
		l.cancel()
		if l.session != nil {
			_ = l.session.Close() // the other end may be gone already
			<-l.dead
		}
		if l.process != nil {
			_ = l.process.Close()
			<-l.process.Exited
		}
		if l.remote != nil {
			l.remote.Close()
		}
	})
}

// lastWords is what a process wrote to standard error at the end, for the log.
func (l *link) lastWords() string {
	if l.process == nil {
		return ""
	}
	return l.process.LastWords()
}

// errHurried says that a server speaks the stateless protocol and had not answered in time when it was asked.
var errHurried = errors.New("the server was asked for the older protocol before it had answered")

// connect starts or reaches the server, greets it and lists its tools. What it returns is closed by the
// caller also when there is an error. A program that starts slowly may answer server/discover late, and takes nothing of the
// older protocol then: it is started again, and its answer is waited for as long as the attempt lasts.
func (c *dial) connect(ctx context.Context) (*link, *toolList, error) {
	l, tools, err := c.greet(ctx, c.patience)
	if errors.Is(err, errHurried) {
		l.close()
		return c.greet(ctx, installTime)
	}
	return l, tools, err
}

// greet is one try of connect. patience bounds the wait for an answer to server/discover.
func (c *dial) greet(ctx context.Context, patience time.Duration) (*link, *toolList, error) {
	l := &link{born: time.Now(), dead: make(chan struct{}), changed: make(chan struct{}, 1), others: map[sandbox.UpstreamKind]chan struct{}{
		sandbox.UpstreamPrompts: make(chan struct{}, 1), sandbox.UpstreamResources: make(chan struct{}, 1),
	}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.log = c.o.Log.With("server", c.key.server)
	l.calls = transport.NewListeners(l.log, c.key.scope == (serverconfig.Scope{}))
	wire, err := c.transport(ctx, l)
	if err != nil {
		return l, nil, &sandbox.Error{Kind: sandbox.Unavailable, Detail: configError(c.key.server, err).Error(), Err: errors.Unwrap(err)}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "skerry", Title: "Skerry", Version: c.o.Version}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{}, // no roots: a sandbox's folders mean nothing to a server
		Logger:       slog.New(slog.DiscardHandler),
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			l.updates.changed(r.Params.URI)
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { notify(l.changed) },
		PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) {
			notify(l.others[sandbox.UpstreamPrompts])
		},
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {
			notify(l.others[sandbox.UpstreamResources])
		},
	})
	client.AddSendingMiddleware(boundDiscover(patience), ownTTL)
	// The name is not one of the protocol itself: no error can come of it.
	_ = mcp.AddSendingCustomMethod[*skillsListParams, *skillsListResult](client, skillsList)
	// The old SSE transport keeps the context of its connection: it is the link's, not the attempt's.
	defer context.AfterFunc(ctx, l.cancel)()
	seenCtx, seen := transport.WithCapture(l.ctx)
	defer seen.Done()
	session, err := client.Connect(seenCtx, wire, nil)
	if rpc := (*jsonrpc.Error)(nil); errors.As(err, &rpc) && rpc.Code == mcp.CodeUnsupportedProtocolVersion && patience < installTime {
		return l, nil, errHurried
	}
	if err != nil {
		return l, nil, c.connectError(ctx, l, seen.Look(), err)
	}
	l.session = session
	go func() {
		_ = session.Wait() // why it ended is seen by those who use it
		close(l.dead)
	}()
	tools, err := c.list(ctx, l)
	if err != nil {
		return l, nil, c.connectError(ctx, l, seen.Look(), err)
	}
	return l, tools, nil
}

// notify tells of a change; a change that was not seen yet says it all.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func boundDiscover(patience time.Duration) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "server/discover" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, patience)
				defer cancel()
			}
			return next(ctx, method, req)
		}
	}
}

// ownTTL takes the time to live of a list of tools for the hub and leaves none to the SDK. The SDK's cache
// would answer in the place of the server when the hub asks again, and not in the server's words.
func ownTTL(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if list, ok := res.(*mcp.ListToolsResult); ok && err == nil && list != nil {
			if c := transport.CaptureOf(ctx); c != nil {
				c.SetTTL(time.Duration(min(max(list.TTLMs, 0), maxTTLMillis)) * time.Millisecond)
			}
			list.TTLMs = 0
		}
		return res, err
	}
}

func (c *dial) transport(ctx context.Context, l *link) (mcp.Transport, error) {
	if u := c.cfg.User; u != nil && u.Pack != nil {
		return transport.NewPack(u.Pack, transport.NewTraffic(c.o.MaxResult+transport.Slack, l.calls.Hear)), nil
	}
	if c.cfg.Type != serverconfig.TransportStdio {
		t, err := c.target(ctx)
		if err != nil {
			return nil, err
		}
		l.madeFor(t)
		var wire mcp.Transport
		wire, l.remote, err = transport.NewRemote(c.cfg, t, transport.NewTraffic(c.o.MaxResult+transport.Slack, l.calls.Hear))
		if err == nil {
			if c.cfg.User != nil {
				l.remote.Confine(c.o.UserServers.Addresses)
			}
			var client *login.Client
			client, err = c.loginClient(c.cfg, t, c.key.scope)
			l.remote.SignWith(client)
		}
		return wire, err
	}
	log := c.o.Log.With("server", c.key.server)
	if c.cfg.User != nil && !c.cfg.Sandbox.On {
		return nil, serverconfig.InvalidField("sandbox", "a program of a plugin runs in a sandbox")
	}
	if c.cfg.Sandbox.On {
		return c.isolatedTransport(ctx, l, log)
	}
	t, err := c.target(ctx)
	if err != nil {
		return nil, err
	}
	l.madeFor(t)
	cmd, err := transport.NewCommand(c.cfg, t, c.home(), c.o.LookupEnv)
	if err != nil {
		return nil, err
	}
	if cmd.IsRoot() {
		log.Warn("MCP server: runs as root, as the configuration says")
	}
	return transport.NewStdio(transport.NewTraffic(c.o.MaxResult+transport.Slack, l.calls.Hear), log, func(context.Context) (*transport.Process, error) {
		p, err := cmd.Start(c.running, log, t.Redact)
		l.process = p
		return p, err
	}), nil
}

// target is the configuration with everything put in.
func (c *dial) target(ctx context.Context) (*serverconfig.Target, error) {
	return c.expander.Expand(ctx, c.cfg, c.key.scope, c.home())
}

// home is the home folder of a program, "" for another server. It stays the same from one process to the next.
func (c *dial) home() string {
	switch {
	case c.cfg.Type != serverconfig.TransportStdio:
		return ""
	case c.cfg.Sandbox.On:
		return transport.IsolatedHome
	}
	return filepath.Join(c.homes, homeName(c.key.server, c.key.scope))
}

func homeName(server string, s serverconfig.Scope) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", server, s.Tenant, s.User, s.Thread))
	return hex.EncodeToString(sum[:12])
}

// HomeName names the home folder that a server of a user's plugin has.
func HomeName(server string, o sandbox.Owner) string {
	return homeName(server, serverconfig.Scope{Tenant: o.Tenant, User: o.User})
}

// connectError says why there is no connection.
func (c *dial) connectError(ctx context.Context, l *link, s transport.Seen, err error) error {
	name := c.key.server
	if p := l.process; p != nil {
		_ = p.Close() // for its last words
		<-p.Exited
		how, words := p.Ending()
		c.o.Log.Debug("MCP server: last words", "server", name, "how", how, "says", words)
	}
	var known *sandbox.Error
	switch {
	case s.Login != nil:
		return withoutSecrets(l, s.Login)
	case errors.As(err, &known):
		return sandbox.Wrap(known.Kind, err, "the MCP server %q cannot be started: %s", name, known.Detail)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return sandbox.Wrap(sandbox.Unavailable, err, "the MCP server %q did not answer within %s", name, c.o.ConnectTimeout)
	case ctx.Err() != nil:
		return errStopping
	case s.Status != 0:
		return sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q refuses: MCP Error (%d): %s", name, s.Status, l.redact.Replace(s.Message))
	case l.remote != nil:
		if text, ok := rpcErrorText(err); ok {
			return sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q refuses: %s", name, l.redact.Replace(text))
		}
		return sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q cannot be reached: %s", name, transport.NetworkError(err))
	}
	if text, ok := rpcErrorText(err); ok {
		return sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q refuses: %s", name, l.redact.Replace(text))
	}
	// Nobody has called it yet: what it says is about itself.
	return sandbox.Wrap(sandbox.Unavailable, redacted(l, err), "the MCP server %q ended before it answered%s", name, l.why(true))
}

// maxWords is how much of a server's last words an error passes on.
const maxWords = 600

// why says how the process of a server ended, and with words what it wrote to standard error at last. What a server
// that serves several users wrote may be about another one's calls: it is for the log alone.
func (l *link) why(words bool) string {
	if l.process == nil {
		return ""
	}
	text, said := l.process.Ending()
	if text != "" {
		text = ": " + text
	}
	if said = strings.Join(strings.Fields(said), " "); !words || said == "" {
		return text
	}
	if cut := len(said) - maxWords; cut > 0 {
		said = "…" + strings.ToValidUTF8(said[cut:], "")
	}
	return text + "; its standard error ends in: " + said
}

// redacted is err for the log, without the secrets of the configuration.
func redacted(l *link, err error) error {
	if err == nil || l.redact == nil {
		return err
	}
	return errors.New(l.redact.Replace(err.Error()))
}

// loginClient returns what gets tokens for a scope at a server, nil when its configuration leaves no place
// for them.
func (d *dialer) loginClient(s *serverconfig.Server, t *serverconfig.Target, scope serverconfig.Scope) (*login.Client, error) {
	if t.OAuth.Off {
		return nil, nil
	}
	for name := range t.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return nil, nil
		}
	}
	return login.New(login.Options{
		Server: s.Name, URL: t.URL, Settings: t.OAuth, Declared: s.OAuth != nil, Vault: d.vault, Hide: t.Redact.Hide,
		Owner: sandbox.Owner{Tenant: scope.Tenant, User: scope.User}, Confined: s.User != nil, Within: d.o.UserServers.Addresses,
	})
}
