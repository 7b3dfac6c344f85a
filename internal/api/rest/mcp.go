package rest

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/mcp"
	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// mcpRoutes are the routes of the endpoint /mcp.
type mcpRoutes struct {
	table   *route.Table
	access  *access.Authenticator
	options mcp.Options
}

// mcpRoutes serves /mcp and /mcp/<thread>, which have all of a thread's tools. It also serves
// /mcp/<thread>/<server>, which is one of the thread's MCP servers unchanged, under its own names.
func (s mcpRoutes) add(routes gin.IRoutes) {
	m := mcp.New(s.options)
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for _, path := range []string{route.MCP, route.MCP + "/:thread", route.MCP + "/:thread/:server"} {
			r := route.Agents.At(route.Holder)
			r.Endless = method == http.MethodGet
			s.table.Declare(method, path, r)
			routes.Handle(method, path, func(c *gin.Context) { s.serveMCP(c, m) })
		}
	}
}

func (s mcpRoutes) serveMCP(c *gin.Context, m *mcp.Server) {
	scope, p := mcpScope(c)
	if p != nil {
		problem.Write(c.Writer, p)
		return
	}
	x := exchange.Of(c.Request.Context())
	r := c.Request.Clone(c.Request.Context())
	r.Header.Set(exchange.RequestIDHeader, x.ID) // handlers in a session learn it from there
	s.options.Tracer.To(r.Context(), r.Header)
	m.Serve(c.Writer, r, scope, func(r *http.Request, revoked func()) (stop func()) { return s.access.Watch(r, x.Caller, revoked) })
}

// mcpScope reads the thread from the path or the header, and the server from the path.
func mcpScope(c *gin.Context) (mcp.Scope, *problem.Problem) {
	thread, header := c.Param("thread"), c.GetHeader(route.ThreadHeader)
	bad := func(detail string) *problem.Problem {
		return problem.New(sandbox.Invalid, "name the thread: header Skerry-Thread, or /mcp/<thread>", problem.FieldError{Field: route.ThreadHeader, Detail: detail})
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
		return mcp.Scope{}, problem.New(sandbox.Invalid, "the name of the MCP server is too long")
	}
	return mcp.Scope{Caller: exchange.CallerOf(c.Request.Context()), Thread: thread, Only: c.Param("server")}, nil
}

// mcpErrors tells clients of /mcp of errors.
type mcpErrors struct{ log *slog.Logger }

func (h mcpErrors) Enter(ctx context.Context, c sandbox.Caller, thread string) context.Context {
	return exchange.Within(ctx, h.log, c, &http.Request{Method: http.MethodPost, URL: &url.URL{Path: route.MCP + "/" + thread}})
}

func (mcpErrors) Describe(ctx context.Context, err error) (code, detail string) {
	p := exchange.Problem(ctx, err)
	return p.Code, p.Detail
}

func (mcpErrors) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	problem.Write(w, exchange.Problem(r.Context(), err))
}
