package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// activeToolRoutes are the routes of the tools that agents activated.
type activeToolRoutes struct {
	active service.ActiveTools
}

// activeToolIn names a tool of a thread.
type activeToolIn struct {
	route.ThreadIn
	Tool string `path:"tool" minLength:"1" maxLength:"512" doc:"The printed name, server__tool"`
}

func (s activeToolRoutes) add(api *route.API) {
	const one = "/api/threads/{thread}/tools/active/{tool}"
	route.Register(api, route.On(http.MethodPut, one, "activateTool", route.TagTools, route.Agents.At(route.Holder), "Put a tool's definition before the thread's agent from now on; a full search does so with the deferred tools that it shows"), s.activate)
	route.Register(api, route.On(http.MethodDelete, one, "putAwayTool", route.TagTools, route.Agents.At(route.Holder), "Take a tool out of the active ones of the thread"),
		func(ctx context.Context, in *activeToolIn) (*struct{}, error) {
			return nil, s.active.PutAwayTool(ctx, exchange.CallerOf(ctx), in.Thread, in.Tool)
		})
}

func (s activeToolRoutes) activate(ctx context.Context, in *activeToolIn) (*route.Body[sandbox.ToolFound], error) {
	t, err := s.active.ActivateTool(ctx, exchange.CallerOf(ctx), in.Thread, in.Tool)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(shownTools([]sandbox.Tool{t})[0]), nil
}
