package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// driftRoutes are the routes of drift of tools.
type driftRoutes struct{ *server }

type driftIn struct {
	ListIn
	Server string `query:"server" maxLength:"256" doc:"Only tools of this server"`
}

// approveBody is the body of POST /api/mcp/servers/{name}/drift/approve.
type approveBody struct {
	Tool string `json:"tool,omitempty" maxLength:"128" doc:"All of the server when absent"`
	Hash string `json:"hash,omitempty" maxLength:"64" doc:"Of what was looked at: a conflict when the tool is another by now"`
}

// approvedTools are those that were approved.
type approvedTools struct {
	Approved []string `json:"approved"`
}

func (s driftRoutes) add() {
	register(s.server, s.api, on(http.MethodGet, "/api/mcp/drift", "listToolDrift", tagAdmin, developers, "Tools that are not as they were first seen, or approved: of the caller's own servers, for the operator also of those of the configuration"),
		func(ctx context.Context, in *driftIn) (*body[page[sandbox.ToolDrift]], error) {
			if s.o.Drift == nil {
				return pageOf([]sandbox.ToolDrift{}, ""), nil
			}
			list, err := s.o.Drift.List(ctx, callerOf(ctx), in.Server)
			if err != nil {
				return nil, err
			}
			return pageIn(in.ListIn, list, driftKey)
		})
	register(s.server, s.api, on(http.MethodPost, "/api/mcp/servers/{name}/drift/approve", "approveToolDrift", tagAdmin, developers, "Take tools as they are now"),
		func(ctx context.Context, in *struct {
			ServerIn
			Body approveBody
		},
		) (*body[approvedTools], error) {
			if s.o.Drift == nil {
				return nil, sandbox.Errorf(sandbox.NotSupported, "this server does not look whether tools change")
			}
			list, err := s.o.Drift.Approve(ctx, callerOf(ctx), in.Name, in.Body.Tool, in.Body.Hash)
			if err != nil {
				return nil, err
			}
			return bodyOf(approvedTools{list}), nil
		})
}
