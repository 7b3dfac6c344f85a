package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// driftRoutes are the routes of drift of tools.
type driftRoutes struct {
	drift toolDrift // nil: tools are not compared
}

type driftIn struct {
	route.ListIn
	Server string `query:"server" maxLength:"256" doc:"Only tools of this server"`
}

// approveBody is the body of POST /api/mcp/servers/{name}/drift/approve.
type approveBody struct {
	Tool string `json:"tool,omitempty" maxLength:"128" doc:"All of the server when absent"`
	Hash string `json:"hash,omitempty" maxLength:"64" doc:"Of what was looked at: a conflict when the tool is another by now"`
}

// approvedTools lists the tools that were approved.
type approvedTools struct {
	Approved []string `json:"approved"`
}

func (s driftRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/mcp/drift", "listToolDrift", route.TagAdmin, route.Developers, "Tools that are not as they were first seen, or approved: of the caller's own servers, for the operator also of those of the configuration"),
		func(ctx context.Context, in *driftIn) (*route.Body[route.Page[sandbox.ToolDrift]], error) {
			if s.drift == nil {
				return route.PageOf([]sandbox.ToolDrift{}, ""), nil
			}
			list, err := s.drift.List(ctx, exchange.CallerOf(ctx), in.Server)
			if err != nil {
				return nil, err
			}
			return route.PageIn(in.ListIn, list, driftKey)
		})
	route.Register(api, route.On(http.MethodPost, "/api/mcp/servers/{name}/drift/approve", "approveToolDrift", route.TagAdmin, route.Developers, "Take tools as they are now"),
		func(ctx context.Context, in *struct {
			ServerIn
			Body approveBody
		},
		) (*route.Body[approvedTools], error) {
			if s.drift == nil {
				return nil, sandbox.Errorf(sandbox.NotSupported, "this server does not look whether tools change")
			}
			list, err := s.drift.Approve(ctx, exchange.CallerOf(ctx), in.Name, in.Body.Tool, in.Body.Hash)
			if err != nil {
				return nil, err
			}
			return route.BodyOf(approvedTools{list}), nil
		})
}

func driftKey(d sandbox.ToolDrift) string { return d.Server + " " + d.Tool + " " + d.State }
