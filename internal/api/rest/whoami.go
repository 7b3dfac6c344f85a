package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
)

// principal is who a request's credential says that the caller is.
type principal struct {
	Tenant       string   `json:"tenant"`
	User         string   `json:"user" doc:"Whom requests are for: with On-Behalf-Of another user than actor"`
	Actor        string   `json:"actor" doc:"The user of the credential itself"`
	Role         string   `json:"role" enum:"agent,developer,admin,auditor"`
	Operator     bool     `json:"operator" doc:"Administers what all tenants share"`
	MayActFor    bool     `json:"may_act_for" doc:"The credential may name other users of the tenant in On-Behalf-Of, with the role developer at most"`
	Method       string   `json:"method" enum:"none,key,jwt" doc:"What shows who the caller is: a key or an identity provider's token; none: the server wants no credential"`
	Capabilities []string `json:"capabilities" doc:"Names that tools may require"`
	Threads      []string `json:"threads,omitempty" doc:"The only threads that the credential is good for: names, or prefix*; all when absent"`
}

// whoamiRoutes is the route that tells callers who they are.
type whoamiRoutes struct{}

func (s whoamiRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/whoami", "whoami", route.TagServer, route.Everyone, "Who the caller is, and what its credential is good for"),
		func(ctx context.Context, _ *struct{}) (*route.Body[principal], error) {
			c := exchange.CallerOf(ctx)
			p := principal{
				Tenant: c.Tenant, User: c.User, Actor: c.Actor, Role: string(c.Role), Operator: c.Operator, MayActFor: c.MayActFor, Method: c.Method,
				Capabilities: c.Capabilities, Threads: c.Threads,
			}
			if p.Capabilities == nil {
				p.Capabilities = []string{}
			}
			return route.BodyOf(p), nil
		})
}
