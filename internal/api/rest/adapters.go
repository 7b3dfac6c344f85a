package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// adapterRoutes are the routes of other protocols.
type adapterRoutes struct {
	table    *route.Table
	checks   checks
	adapters []Adapter
}

// AdapterRoute is a route of another product's API that clients of that product call here. It goes the
// same way as every other request: credential, role, the threads that the credential is good for,
// placement, limits. Its body is the adapter's business, as the document does not have it.
type AdapterRoute struct {
	Method, Path string // as gin has it: /sandboxes/:thread
	// Thread names the thread of a request whose path has no :thread; nil: it is about none, or :thread is
	// there.
	Thread func(*http.Request) string
	// Server answers the request.
	Server route.Server
	// Starts: the use case behind it counts the request together with the exec that it starts.
	Starts bool
	// Endless: the answer goes on until the client ends it; the server does when it stops.
	Endless bool
	// Follows: the answer goes on as long as what was started otherwise.
	Follows bool
	Serve   func(w http.ResponseWriter, r *http.Request, c sandbox.Caller, thread string)
}

// Adapter is the API of another product.
type Adapter struct {
	// Prepare puts the credential of a request where ours has it. It comes first.
	Prepare func(*http.Request)
	// Refused is the JSON of what is refused before Serve; nil: a problem document, as everywhere.
	Refused func(status int, detail string) any
	Routes  []AdapterRoute
}

// add serves the adapters beside the API.
func (s adapterRoutes) add(engine *gin.Engine) {
	for _, a := range s.adapters {
		for _, adapted := range a.Routes {
			r := route.Agents.At(adapted.Server)
			if r.Endless, r.Follows = adapted.Endless, adapted.Follows; adapted.Starts {
				r.Counts = route.WithExec
			}
			s.table.Declare(adapted.Method, adapted.Path, r)
			handlers := append([]gin.HandlerFunc{prepared(a, adapted)}, s.checks.limited()...)
			engine.Handle(adapted.Method, adapted.Path, append(handlers, s.adapt(adapted))...)
		}
	}
}

// prepared makes a request look as one of ours does, for all that comes behind it.
func prepared(a Adapter, adapted AdapterRoute) gin.HandlerFunc {
	return func(c *gin.Context) {
		exchange.Of(c.Request.Context()).Shape = a.Refused
		if a.Prepare != nil {
			c.Request.Header = c.Request.Header.Clone()
			a.Prepare(c.Request)
		}
		if adapted.Thread != nil {
			c.Params = append(slices.Clip(c.Params), gin.Param{Key: "thread", Value: adapted.Thread(c.Request)})
		}
	}
}

// adapt answers with the adapter, as long as the credential is good.
func (s adapterRoutes) adapt(adapted AdapterRoute) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := exchange.Of(c.Request.Context())
		thread := c.Param("thread")
		if thread != "" {
			if err := sandbox.CheckThreadID(thread); err != nil {
				problem.Write(c.Writer, exchange.Problem(c.Request.Context(), problem.NotStarted(err)))
				return
			}
		}
		ctx, cancel := context.WithCancel(c.Request.Context())
		defer cancel()
		r := c.Request.WithContext(ctx)
		defer s.checks.access.Watch(r, x.Caller, cancel)()
		adapted.Serve(c.Writer, r, x.Caller, thread)
	}
}
