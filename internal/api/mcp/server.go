package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// The first protocol version without sessions, and headers of the protocol.
const (
	statelessVersion = "2026-07-28"
	versionHeader    = "MCP-Protocol-Version"
	sessionHeader    = "Mcp-Session-Id"
)

// Host is the HTTP server that /mcp is a part of.
type Host interface {
	// Enter returns the context of one request of a client, as the other methods and the log want it.
	Enter(ctx context.Context, c sandbox.Caller, thread string) context.Context
	// Describe returns what a client learns of an error, and logs what is our own fault.
	Describe(ctx context.Context, err error) (code, detail string)
	// WriteError answers a request with an error.
	WriteError(w http.ResponseWriter, r *http.Request, err error)
}

// Options are the use cases, and the server around.
type Options struct {
	service.Service
	Host    Host
	Tracer  *tracing.Tracer // nil: no spans
	MaxBody int64           // bytes of a request
	// CheckBody refuses the JSON of a request that would take too much memory.
	CheckBody func(text []byte) error
	// Follow counts a request that listens until leave is called, or refuses it.
	Follow  func(o sandbox.Owner) (leave func(), err error)
	Version string
	Log     *slog.Logger
}

// Server serves the use cases as an MCP server, in both eras of the protocol. Every request is
// authenticated by itself and bound to the thread that it names. Since 2026-07-28 there are no sessions;
// one of the era before belongs to the key and the thread that began it, and is nothing to others.
type Server struct {
	o         Options
	schemas   *sdk.SchemaCache
	stateless *sdk.StreamableHTTPHandler
	sessions  sessions
}

// New makes a Server.
func New(o Options) *Server {
	m := &Server{o: o, schemas: sdk.NewSchemaCache()}
	m.sessions.byID = map[string]*session{}
	options := m.options()
	options.Stateless, options.PropagateRequestCancellation = true, true
	m.stateless = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		scope := scopeOf(r.Context())
		if scope.server == nil { // the SDK asks more than once
			scope.server = m.newServer(scope, nil)
			m.addCalled(r, scope)
		}
		return scope.server
	}, options)
	return m
}

func (m *Server) options() *sdk.StreamableHTTPOptions {
	return &sdk.StreamableHTTPOptions{
		Logger: m.o.Log, MaxRequestBodyBytes: m.o.MaxBody,
		DisableLocalhostProtection: true, // guard has checked Host, for every name that is allowed
	}
}

// Scope is what a request, or a session, may see.
type Scope struct {
	Caller sandbox.Caller
	Thread string
	Only   string // the one MCP server that is shown under its own names, or ""
	modern bool   // the era without sessions

	server *sdk.Server
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *Scope {
	scope, ok := ctx.Value(scopeKey{}).(*Scope)
	if !ok {
		panic("rest: an MCP request without its scope")
	}
	return scope
}

// Serve answers one HTTP request, whose X-Request-Id and trace are in its headers. watch calls revoked once the credential
// of the request is not good any more, until stop.
func (m *Server) Serve(w http.ResponseWriter, r *http.Request, scope Scope, watch func(r *http.Request, revoked func()) (stop func())) {
	scope.modern = r.Header.Get(versionHeader) >= statelessVersion
	text := m.peek(r)
	leave, err := m.admit(text, scope.Caller.Owner)
	if err != nil {
		m.o.Host.WriteError(w, r, err)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), scopeKey{}, &scope))
	defer cancel()
	r = r.WithContext(ctx)
	session := m.sessionOf(r, &scope)
	stop := watch(r, func() {
		if session != nil {
			session.end()
		}
		cancel()
	})
	defer stop()
	switch {
	case session != nil:
		session.serve(w, r)
	case r.Header.Get(sessionHeader) != "" && !scope.modern:
		http.Error(w, "session not found", http.StatusNotFound) // as the protocol wants: begin a new one
	case !scope.modern && r.Method == http.MethodPost && isInitialize(text):
		m.begin(w, r, &scope)
	default:
		m.stateless.ServeHTTP(w, r)
	}
}

// maxBatch is how many messages one request may have: they count as one request, and are handled at once.
const maxBatch = 32

// admit refuses what the SDK would take, whatever it costs. leave is called when the request is answered.
func (m *Server) admit(text []byte, o sandbox.Owner) (leave func(), err error) {
	if err := m.o.CheckBody(text); err != nil {
		return nil, err
	}
	messages := []json.RawMessage{text}
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")) && json.Unmarshal(text, &messages) == nil && len(messages) > maxBatch {
		return nil, sandbox.Errorf(sandbox.Invalid, "a batch of %d messages: at most %d", len(messages), maxBatch)
	}
	for _, raw := range messages {
		var one struct {
			Method string `json:"method"`
		}
		if json.Unmarshal(raw, &one) == nil && one.Method == "subscriptions/listen" {
			return m.o.Follow(o)
		}
	}
	return func() {}, nil
}

// peek returns the body of a request, which it leaves as it was; nil: it is too long, or does not come whole.
func (m *Server) peek(r *http.Request) []byte {
	if r.Method != http.MethodPost || r.ContentLength > m.o.MaxBody {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, m.o.MaxBody+1))
	if err != nil {
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), failing{err}))
		return nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), r.Body), r.Body}
	if int64(len(text)) > m.o.MaxBody {
		return nil
	}
	return text
}

// isInitialize reports whether a request begins a session.
func isInitialize(text []byte) bool {
	var msg struct {
		Method string `json:"method"`
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(text, &msg) != nil || msg.Method != "initialize" {
		return false
	}
	_, modern := msg.Params.Meta[sdk.MetaKeyProtocolVersion]
	return !modern
}

// failing is a reader that returns an error again.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// newServer makes the SDK's server for a scope. Its own tools are registered, for their schemas; what else
// there is is looked up when it is asked for (see Scope.receive).
func (m *Server) newServer(scope *Scope, session *session) *sdk.Server {
	o := &sdk.ServerOptions{
		SchemaCache: m.schemas, Logger: slog.New(slog.DiscardHandler), Instructions: instructions(scope),
		Capabilities: &sdk.ServerCapabilities{
			Tools: &sdk.ToolCapabilities{ListChanged: true}, Resources: &sdk.ResourceCapabilities{Subscribe: true, ListChanged: true}, Prompts: &sdk.PromptCapabilities{ListChanged: true},
			Completions: &sdk.CompletionCapabilities{},
			Logging:     &sdk.LoggingCapabilities{}, //nolint:staticcheck // clients of the era before have it
		},
		// What a thread sees is for its owner alone.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.TTLMs, c.CacheScope = 0, "private" },
	}
	if session != nil {
		o.GetSessionID = func() string { return session.id }
	}
	if scope.Only == "" {
		o.Capabilities.Extensions = map[string]any{skillsExtension: map[string]any{"directoryRead": true}}
	}
	in := &scoped{o: m.o, scope: scope, session: session}
	calls := &methods{scoped: in, skills: &skills{in}}
	calls.watched.byURI = map[string]context.CancelFunc{}
	o.SubscribeHandler, o.UnsubscribeHandler = calls.subscribe, calls.unsubscribe
	srv := sdk.NewServer(&sdk.Implementation{Name: "skerry", Title: "Skerry", Version: m.o.Version}, o)
	(&tools{in}).add(srv)
	calls.skills.add(srv)
	srv.AddReceivingMiddleware(calls.receive)
	return srv
}

func instructions(scope *Scope) string {
	if scope.Only != "" {
		return ""
	}
	return strings.Join([]string{
		"A sandbox for one thread: its files are below " + sandbox.UserDataDir + ", commands and code run in it.",
		"Where there are many tools, they are called by code: search_tools finds them, execute_code calls them.",
	}, " ")
}

// addCalled registers the tool of an MCP server that a request calls, when the tool wants parameters in
// headers too: the SDK compares those with the body. It is not shown, and its call goes its own way.
func (m *Server) addCalled(r *http.Request, scope *Scope) {
	name := r.Header.Get("Mcp-Name")
	if r.Header.Get("Mcp-Method") != "tools/call" || scope.Only == "" && ownTools[name] {
		return
	}
	offer, err := m.o.Upstream.Offer(r.Context(), scope.Caller, scope.Thread)
	if err != nil {
		return // the call itself will say so
	}
	for _, t := range offer.Tools.Tools {
		shown := t.Printed == name
		if scope.Only != "" {
			shown = t.Server == scope.Only && t.Name == name
		}
		if shown && bytes.Contains(t.Input, []byte("x-mcp-header")) {
			m.addForHeaders(scope.server, name, t)
		}
	}
}

func (m *Server) addForHeaders(srv *sdk.Server, name string, t sandbox.Tool) {
	defer func() {
		if v := recover(); v != nil { // the SDK does so for a schema that it cannot use
			m.o.Log.Debug("parameters in headers not checked", "tool", t.Printed, "error", v)
		}
	}()
	srv.AddTool(&sdk.Tool{Name: name, InputSchema: t.Input}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return toolText("not called", true), nil
	})
}
