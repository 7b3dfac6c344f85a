package access

import (
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Authorizer compares the caller of a request with the rule of its route.
type Authorizer struct {
	Routes *route.Table
	// Refused is told of each credential that did not do for its route. May be nil.
	Refused Refused
}

// Authorize refuses what the caller's role, or the threads of its credential, do not allow. It comes before
// anything is looked up, so that its answer says nothing about what there is.
func (a *Authorizer) Authorize(c *gin.Context) {
	caller := exchange.CallerOf(c.Request.Context())
	r, ok := a.Routes.Rule(c)
	err := sandbox.Errorf(sandbox.Forbidden, "no role may call this route")
	if ok {
		err = r.Check(caller)
	}
	if err == nil && !r.Threadless {
		err = threadAllowed(c, caller)
	}
	if err == nil {
		return
	}
	p := exchange.Problem(c.Request.Context(), err)
	a.Refused.report(c.Request.Context(), caller, p.Detail, false)
	problem.Write(c.Writer, p)
	c.Abort()
}

// threadAllowed holds a credential for some threads to the routes that name one of them.
func threadAllowed(c *gin.Context, caller sandbox.Caller) error {
	if caller.Threads == nil {
		return nil
	}
	thread := c.Param("thread")
	if thread == "" && c.FullPath() == route.MCP {
		thread = c.GetHeader(route.ThreadHeader)
	}
	if thread == "" || !caller.MayUse(thread) {
		return sandbox.Errorf(sandbox.Forbidden, "this credential is for the threads %s only", strings.Join(caller.Threads, ", "))
	}
	return nil
}
