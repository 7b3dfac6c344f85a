package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The first protocol version without sessions, and headers of the protocol.
const (
	statelessVersion = "2026-07-28"
	versionHeader    = "MCP-Protocol-Version"
	sessionHeader    = "Mcp-Session-Id"
	mcpPath          = "/mcp"
)

// mcpService serves the use cases as an MCP server, in both eras of the protocol. Every request is
// authenticated by itself and bound to the thread that it names. Since 2026-07-28 there are no sessions;
// one of the era before belongs to the key and the thread that began it, and is nothing to others.
type mcpService struct {
	s         *server
	schemas   *mcp.SchemaCache
	stateless *mcp.StreamableHTTPHandler
	sessions  mcpSessions
}

// mcpRoutes serves /mcp and /mcp/<thread>, where all of a thread's tools are, and
// /mcp/<thread>/<server>, which is one of the thread's MCP servers as it is, under its own names.
func (s *server) mcpRoutes(engine *gin.Engine) {
	m := &mcpService{s: s, schemas: mcp.NewSchemaCache()}
	m.sessions.byID = map[string]*mcpSession{}
	options := m.options()
	options.Stateless, options.PropagateRequestCancellation = true, true
	m.stateless = mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		scope := scopeOf(r.Context())
		if scope.server == nil { // the SDK asks more than once
			scope.server = m.newServer(scope, nil)
			m.addCalled(r, scope)
		}
		return scope.server
	}, options)
	group := engine.Group("", s.authenticate, s.authorize, s.place, s.limit, contentType)
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for _, path := range []string{mcpPath, mcpPath + "/:thread", mcpPath + "/:thread/:server"} {
			r := agents.at(Holder)
			r.endless = method == http.MethodGet
			s.rule(method, path, r)
			group.Handle(method, path, m.serve)
		}
	}
}

func (m *mcpService) options() *mcp.StreamableHTTPOptions {
	return &mcp.StreamableHTTPOptions{
		Logger: m.s.o.Log, MaxRequestBodyBytes: maxJSONBytes,
		DisableLocalhostProtection: true, // guard has checked Host, for every name that is allowed
	}
}

// mcpScope is what a request, or a session, may see.
type mcpScope struct {
	caller sandbox.Caller
	thread string
	only   string // the one MCP server that is shown under its own names, or ""
	modern bool   // the era without sessions

	server *mcp.Server
}

type mcpScopeKey struct{}

func scopeOf(ctx context.Context) *mcpScope {
	scope, ok := ctx.Value(mcpScopeKey{}).(*mcpScope)
	if !ok {
		panic("rest: an MCP request without its scope")
	}
	return scope
}

// serve answers one HTTP request.
func (m *mcpService) serve(c *gin.Context) {
	scope, p := mcpScopeFrom(c)
	if p != nil {
		writeProblem(c.Writer, p)
		return
	}
	x := exchangeOf(c.Request.Context())
	ctx, cancel := context.WithCancel(context.WithValue(c.Request.Context(), mcpScopeKey{}, scope))
	defer cancel()
	r := c.Request.WithContext(ctx)
	r.Header = r.Header.Clone()
	r.Header.Set("X-Request-Id", x.id) // handlers in a session learn it from there
	m.s.o.Tracer.To(ctx, r.Header)     // and the trace
	session := m.sessionOf(r, scope)
	stop := m.s.watchCredential(r, x.caller, func() {
		if session != nil {
			session.end()
		}
		cancel()
	})
	defer stop()
	switch {
	case session != nil:
		session.serve(c.Writer, r)
	case r.Header.Get(sessionHeader) != "" && !scope.modern:
		http.Error(c.Writer, "session not found", http.StatusNotFound) // as the protocol wants: begin a new one
	case !scope.modern && r.Method == http.MethodPost && isInitialize(r):
		m.begin(c.Writer, r, scope)
	default:
		m.stateless.ServeHTTP(c.Writer, r)
	}
}

// mcpScopeFrom reads the thread from the path or the header, and the server from the path.
func mcpScopeFrom(c *gin.Context) (*mcpScope, *Problem) {
	thread, header := c.Param("thread"), c.GetHeader("Skerry-Thread")
	bad := func(detail string) *Problem {
		return newProblem(sandbox.Invalid, "name the thread: header Skerry-Thread, or /mcp/<thread>", FieldError{Field: "Skerry-Thread", Detail: detail})
	}
	if thread == "" {
		thread = header
	}
	if header != "" && header != thread {
		return nil, bad("names another thread than the path")
	}
	if err := sandbox.CheckThreadID(thread); err != nil {
		return nil, bad(err.Error())
	}
	if len(c.Param("server")) > 256 {
		return nil, newProblem(sandbox.Invalid, "the name of the MCP server is too long")
	}
	x := exchangeOf(c.Request.Context())
	return &mcpScope{caller: x.caller, thread: thread, only: c.Param("server"), modern: c.GetHeader(versionHeader) >= statelessVersion}, nil
}

// isInitialize looks into the body of a request, which it leaves as it was.
func isInitialize(r *http.Request) bool {
	if r.ContentLength > maxJSONBytes {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxJSONBytes+1))
	if err != nil {
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), failing{err}))
		return false
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), r.Body), r.Body}
	var msg struct {
		Method string `json:"method"`
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(text, &msg) != nil || msg.Method != "initialize" {
		return false
	}
	_, modern := msg.Params.Meta[mcp.MetaKeyProtocolVersion]
	return !modern
}

// failing is a reader that returns an error again.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// newServer makes the SDK's server for a scope. Its own tools are registered, for their schemas; what else
// there is is looked up when it is asked for (see mcpScope.receive).
func (m *mcpService) newServer(scope *mcpScope, session *mcpSession) *mcp.Server {
	o := &mcp.ServerOptions{
		SchemaCache: m.schemas, Logger: slog.New(slog.DiscardHandler), Instructions: mcpInstructions(scope),
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{Subscribe: true, ListChanged: true}, Prompts: &mcp.PromptCapabilities{ListChanged: true},
			Completions: &mcp.CompletionCapabilities{},
			Logging:     &mcp.LoggingCapabilities{}, //nolint:staticcheck // clients of the era before have it
		},
		// What a thread sees is for its owner alone.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs, c.CacheScope = 0, "private" },
	}
	if session != nil {
		o.GetSessionID = func() string { return session.id }
	}
	if scope.only == "" {
		o.Capabilities.Extensions = map[string]any{skillsExtension: map[string]any{"directoryRead": true}}
	}
	calls := &mcpCall{s: m.s, scope: scope, session: session}
	calls.watched.byURI = map[string]context.CancelFunc{}
	o.SubscribeHandler, o.UnsubscribeHandler = calls.subscribe, calls.unsubscribe
	srv := mcp.NewServer(&mcp.Implementation{Name: "skerry", Title: "Skerry", Version: m.s.o.Version}, o)
	calls.addTools(srv)
	calls.addSkills(srv)
	srv.AddReceivingMiddleware(calls.receive)
	return srv
}

func mcpInstructions(scope *mcpScope) string {
	if scope.only != "" {
		return ""
	}
	return strings.Join([]string{
		"A sandbox for one thread: its files are below " + sandbox.UserDataDir + ", commands and code run in it.",
		"Where there are many tools, they are called by code: search_tools finds them, execute_code calls them.",
	}, " ")
}

// addCalled registers the tool of an MCP server that a request calls, when the tool wants parameters in
// headers too: the SDK compares those with the body. It is not shown, and its call goes its own way.
func (m *mcpService) addCalled(r *http.Request, scope *mcpScope) {
	name := r.Header.Get("Mcp-Name")
	if r.Header.Get("Mcp-Method") != "tools/call" || scope.only == "" && ownTools[name] {
		return
	}
	offer, err := m.s.o.Upstream.Offer(r.Context(), scope.caller, scope.thread)
	if err != nil {
		return // the call itself will say so
	}
	for _, t := range offer.Tools.Tools {
		shown := t.Printed == name
		if scope.only != "" {
			shown = t.Server == scope.only && t.Name == name
		}
		if shown && bytes.Contains(t.Input, []byte("x-mcp-header")) {
			m.addForHeaders(scope.server, name, t)
		}
	}
}

func (m *mcpService) addForHeaders(srv *mcp.Server, name string, t sandbox.Tool) {
	defer func() {
		if v := recover(); v != nil { // the SDK does so for a schema that it cannot use
			m.s.o.Log.Debug("parameters in headers not checked", "tool", t.Printed, "error", v)
		}
	}()
	srv.AddTool(&mcp.Tool{Name: name, InputSchema: t.Input}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return toolText("not called", true), nil
	})
}
