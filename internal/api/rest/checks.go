package rest

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/forward"
	"github.com/skerry-sandbox/skerry/internal/api/rest/idempotency"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// checks are what comes before the handler of a route that needs a caller.
type checks struct {
	access      *access.Authenticator
	authorize   *access.Authorizer
	forward     *forward.Forwarder
	limits      *requestLimits
	followers   *followers
	table       *route.Table
	bodies      *bodies
	idempotency *idempotency.Handler
	gone        *route.Deprecations
}

func (s *server) checks() checks {
	o := s.o
	return checks{
		access: &access.Authenticator{
			Keys: o.Keys, Anonymous: o.Anonymous, OperatorTenant: o.OperatorTenant, Refused: o.AuthRefused, Recheck: s.recheck, Tracer: o.Tracer,
		},
		authorize:   &access.Authorizer{Routes: s.table, Refused: o.AuthRefused},
		forward:     &forward.Forwarder{Placement: o.Placement, RemoteFiles: o.RemoteFiles, Routes: s.table, Tracer: o.Tracer, Log: o.Log},
		limits:      &requestLimits{limits: o.Limits, table: s.table},
		followers:   s.followers,
		table:       s.table,
		bodies:      &bodies{s.table, o.Held},
		idempotency: &idempotency.Handler{Memory: o.Idempotency, Log: o.Log},
		gone:        route.NewDeprecations(s.table, o.Log),
	}
}

// limited are the checks of a request whose body is its handler's business.
func (c checks) limited() []gin.HandlerFunc {
	return []gin.HandlerFunc{c.access.Authenticate, c.authorize.Authorize, c.table.CheckQuery, c.forward.Place, c.gone.Warn, c.limits.limit, c.followers.bound}
}

// all are the checks of a request to the API.
func (c checks) all() []gin.HandlerFunc {
	return append(c.read(), c.idempotency.Handle)
}

// read are the checks of a request whose body is read whole.
func (c checks) read() []gin.HandlerFunc {
	return append(c.limited(), c.table.CheckBody, c.bodies.hold)
}

// requestLimits bounds the requests of callers.
type requestLimits struct {
	limits limiter // nil: there are none
	table  *route.Table
}

// limiter bounds what callers take, and says what they took.
type limiter interface {
	// Request lets a request in, or says which limit it met.
	Request(ctx context.Context, c sandbox.Caller) error
	// Defer leaves that to the use case that the request asks for; Settle counts a request that asked for
	// none after all.
	Defer(ctx context.Context) context.Context
	Settle(ctx context.Context, c sandbox.Caller)
	Usage(ctx context.Context, c sandbox.Caller, q sandbox.UsageQuery) (sandbox.UsageReport, error)
}

// limit refuses a request when there were too many. It comes after the placement: a request counts where
// it is answered.
func (l *requestLimits) limit(c *gin.Context) {
	if l.limits == nil {
		return
	}
	ctx := c.Request.Context()
	caller := exchange.CallerOf(ctx)
	switch rule, _ := l.table.Rule(c); rule.Counts {
	case route.WithExec:
		ctx = l.limits.Defer(ctx)
		c.Request = c.Request.WithContext(ctx)
		defer l.limits.Settle(context.WithoutCancel(ctx), caller)
		c.Next()
	default:
		if err := l.limits.Request(ctx, caller); err != nil {
			problem.Write(c.Writer, exchange.Problem(ctx, problem.NotStarted(err)))
			c.Abort()
		}
	}
}
