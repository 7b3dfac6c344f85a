package execs

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// contextRoutes are the routes of interpreters that keep their variables.
type contextRoutes struct {
	api      *route.API
	contexts service.Contexts
}

// contextBody is the body of POST /api/threads/{t}/contexts.
type contextBody struct {
	Language string `json:"language,omitempty" enum:"python,typescript,javascript,py,ts,js" doc:"As the server is configured for execute_code when absent"`
	Cwd      string `json:"cwd,omitempty" maxLength:"4096" doc:"Where it begins; /mnt/user-data/workspace when absent"`
}

// ContextIn names a context of a thread.
type ContextIn struct {
	route.ThreadIn
	Context string `path:"context" pattern:"^[A-Za-z0-9_-]{1,128}$"`
}

func (s contextRoutes) add() {
	const list, one = "/api/threads/{thread}/contexts", "/api/threads/{thread}/contexts/{context}"
	op := route.On(http.MethodPost, list, "createContext", route.TagRun, route.Agents.At(route.Holder), "Start an interpreter that keeps its variables between runs of execute_code")
	op.DefaultStatus = http.StatusCreated
	route.Register(s.api, op, func(ctx context.Context, in *struct {
		route.ThreadIn
		Body contextBody
	},
	) (*route.Body[sandbox.CodeContext], error) {
		cc, err := s.contexts.CreateContext(ctx, exchange.CallerOf(ctx), in.Thread, sandbox.ContextRequest{Language: in.Body.Language, Cwd: in.Body.Cwd})
		return contextOut(cc, err)
	})
	route.Register(s.api, route.On(http.MethodGet, list, "listContexts", route.TagRun, route.Agents.At(route.Owner), "Contexts of the thread, oldest first, and the newest that were lost"),
		func(ctx context.Context, in *route.ThreadListIn) (*route.Body[route.Page[sandbox.CodeContext]], error) {
			items, err := s.contexts.Contexts(ctx, exchange.CallerOf(ctx), in.Thread)
			if err != nil {
				return nil, err
			}
			return route.PageIn(in.ListIn, items, contextKey)
		})
	route.Register(s.api, route.On(http.MethodGet, one, "getContext", route.TagRun, route.Agents.At(route.Owner), "A context as it is now"),
		func(ctx context.Context, in *ContextIn) (*route.Body[sandbox.CodeContext], error) {
			cc, err := s.contexts.Context(ctx, exchange.CallerOf(ctx), in.Thread, in.Context)
			return contextOut(cc, err)
		})
	route.Register(s.api, route.On(http.MethodPost, one+"/interrupt", "interruptContext", route.TagRun, route.Agents.At(route.Holder), "End the run in a context, which keeps its variables"),
		func(ctx context.Context, in *ContextIn) (*route.Body[sandbox.CodeContext], error) {
			cc, err := s.contexts.InterruptContext(ctx, exchange.CallerOf(ctx), in.Thread, in.Context)
			return contextOut(cc, err)
		})
	route.Register(s.api, route.On(http.MethodPost, one+"/restart", "restartContext", route.TagRun, route.Agents.At(route.Holder), "Empty a context, or start a lost one again, empty; a run in it is killed"),
		func(ctx context.Context, in *ContextIn) (*route.Body[sandbox.CodeContext], error) {
			cc, err := s.contexts.RestartContext(ctx, exchange.CallerOf(ctx), in.Thread, in.Context)
			return contextOut(cc, err)
		})
	route.Register(s.api, route.On(http.MethodDelete, one, "deleteContext", route.TagRun, route.Agents.At(route.Holder), "End a context with all that it started"),
		func(ctx context.Context, in *ContextIn) (*struct{}, error) {
			return nil, s.contexts.DeleteContext(ctx, exchange.CallerOf(ctx), in.Thread, in.Context)
		})
}

func contextOut(cc sandbox.CodeContext, err error) (*route.Body[sandbox.CodeContext], error) {
	if err != nil {
		return nil, err
	}
	return route.BodyOf(cc), nil
}

func contextKey(c sandbox.CodeContext) string { return c.ContextID }
