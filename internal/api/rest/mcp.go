package rest

import (
	"context"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/mcp"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// mcpRoutes are the routes of the endpoint /mcp.
type mcpRoutes struct{ *server }

const mcpPath = "/mcp"

// mcpRoutes serves /mcp and /mcp/<thread>, where all of a thread's tools are, and
// /mcp/<thread>/<server>, which is one of the thread's MCP servers as it is, under its own names.
func (s mcpRoutes) add(engine *gin.Engine) {
	m := mcp.New(mcp.Options{Service: s.o.Service, Host: mcpErrors{s.server}, Tracer: s.o.Tracer, MaxBody: maxJSONBytes, Version: s.o.Version, Log: s.o.Log})
	group := engine.Group("", s.authenticate, s.authorize, s.place, s.limit, contentType)
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for _, path := range []string{mcpPath, mcpPath + "/:thread", mcpPath + "/:thread/:server"} {
			r := agents.at(Holder)
			r.endless = method == http.MethodGet
			s.rule(method, path, r)
			group.Handle(method, path, func(c *gin.Context) { s.serveMCP(c, m) })
		}
	}
}

func (s mcpRoutes) serveMCP(c *gin.Context, m *mcp.Server) {
	scope, p := mcpScope(c)
	if p != nil {
		writeProblem(c.Writer, p)
		return
	}
	x := exchangeOf(c.Request.Context())
	r := c.Request.Clone(c.Request.Context())
	r.Header.Set("X-Request-Id", x.id) // handlers in a session learn it from there
	s.o.Tracer.To(r.Context(), r.Header)
	m.Serve(c.Writer, r, scope, func(r *http.Request, revoked func()) (stop func()) { return s.watchCredential(r, x.caller, revoked) })
}

// mcpScope reads the thread from the path or the header, and the server from the path.
func mcpScope(c *gin.Context) (mcp.Scope, *Problem) {
	thread, header := c.Param("thread"), c.GetHeader("Skerry-Thread")
	bad := func(detail string) *Problem {
		return newProblem(sandbox.Invalid, "name the thread: header Skerry-Thread, or /mcp/<thread>", FieldError{Field: "Skerry-Thread", Detail: detail})
	}
	if thread == "" {
		thread = header
	}
	if header != "" && header != thread {
		return mcp.Scope{}, bad("names another thread than the path")
	}
	if err := sandbox.CheckThreadID(thread); err != nil {
		return mcp.Scope{}, bad(err.Error())
	}
	if len(c.Param("server")) > 256 {
		return mcp.Scope{}, newProblem(sandbox.Invalid, "the name of the MCP server is too long")
	}
	return mcp.Scope{Caller: exchangeOf(c.Request.Context()).caller, Thread: thread, Only: c.Param("server")}, nil
}

// mcpErrors is this server as /mcp needs it.
type mcpErrors struct{ s *server }

func (h mcpErrors) Enter(ctx context.Context, c sandbox.Caller, thread string) context.Context {
	x := &exchange{caller: c, known: true, id: c.RequestID, req: &http.Request{Method: http.MethodPost, URL: &url.URL{Path: mcpPath + "/" + thread}}}
	return context.WithValue(ctx, exchangeKey{}, x)
}

func (h mcpErrors) Describe(ctx context.Context, err error) (code, detail string) {
	p := h.s.problem(ctx, err)
	return p.Code, p.Detail
}

func (h mcpErrors) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	writeProblem(w, h.s.problem(r.Context(), err))
}
