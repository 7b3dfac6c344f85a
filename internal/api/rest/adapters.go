package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// adapterRoutes are the routes of other protocols.
type adapterRoutes struct{ *server }

// AdapterRoute is a route of another product's API that clients of that product call here. It goes the same way as
// every other request: credential, role, the threads that the credential is good for, placement, limits. Its body is
// the adapter's business, as the document does not have it.
type AdapterRoute struct {
	Method, Path string // as gin has it: /sandboxes/:thread
	// Thread names the thread of a request whose path has no :thread; nil: it is about none, or :thread is there.
	Thread func(*http.Request) string
	// Server answers the request.
	Server Server
	// Starts: the use case behind it counts the request together with the exec that it starts.
	Starts bool
	// Endless: the answer goes on until the client ends it; the server does when it stops.
	Endless bool
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

// adapterRoutes serves the adapters beside the API.
func (s adapterRoutes) add(engine *gin.Engine) {
	for _, a := range s.o.Adapters {
		for _, route := range a.Routes {
			r := agents.at(route.Server)
			r.deferred, r.endless = route.Starts, route.Endless
			s.rule(route.Method, route.Path, r)
			engine.Handle(route.Method, route.Path, prepared(a, route), s.authenticate, s.authorize, s.place, s.limit, s.adapt(route))
		}
	}
}

// prepared makes a request look as one of ours does, for all that comes behind it.
func prepared(a Adapter, route AdapterRoute) gin.HandlerFunc {
	return func(c *gin.Context) {
		exchangeOf(c.Request.Context()).refused = a.Refused
		if a.Prepare != nil {
			c.Request.Header = c.Request.Header.Clone()
			a.Prepare(c.Request)
		}
		if route.Thread != nil {
			c.Params = append(slices.Clip(c.Params), gin.Param{Key: "thread", Value: route.Thread(c.Request)})
		}
	}
}

// adapt answers with the adapter, as long as the credential is good.
func (s adapterRoutes) adapt(route AdapterRoute) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := exchangeOf(c.Request.Context())
		thread := c.Param("thread")
		if thread != "" {
			if err := sandbox.CheckThreadID(thread); err != nil {
				writeProblem(c.Writer, s.problem(c.Request.Context(), notStarted{err}))
				return
			}
		}
		ctx, cancel := context.WithCancel(c.Request.Context())
		defer cancel()
		r := c.Request.WithContext(ctx)
		defer s.watchCredential(r, x.caller, cancel)()
		route.Serve(c.Writer, r, x.caller, thread)
	}
}
