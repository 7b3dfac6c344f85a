package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// contextRoutes are the routes of interpreters that keep their variables.
type contextRoutes struct{ *server }

// contextBody is the body of POST /api/threads/{t}/contexts.
type contextBody struct {
	Language string `json:"language,omitempty" enum:"python,typescript,javascript" doc:"As the server is configured for execute_code when absent"`
	Cwd      string `json:"cwd,omitempty" maxLength:"4096" doc:"Where it begins; /mnt/user-data/workspace when absent"`
}

// ContextIn names a context of a thread.
type ContextIn struct {
	ThreadIn
	Context string `path:"context" pattern:"^[A-Za-z0-9_-]{1,128}$"`
}

func (s contextRoutes) add() {
	const list, one = "/api/threads/{thread}/contexts", "/api/threads/{thread}/contexts/{context}"
	op := on(http.MethodPost, list, "createContext", tagRun, agents.at(Holder), "Start an interpreter that keeps its variables between runs of execute_code")
	op.DefaultStatus = http.StatusCreated
	register(s.server, s.api, op, func(ctx context.Context, in *struct {
		ThreadIn
		Body contextBody
	},
	) (*body[sandbox.CodeContext], error) {
		cc, err := s.o.Contexts.CreateContext(ctx, callerOf(ctx), in.Thread, sandbox.ContextRequest{Language: in.Body.Language, Cwd: in.Body.Cwd})
		return contextOut(cc, err)
	})
	register(s.server, s.api, on(http.MethodGet, list, "listContexts", tagRun, agents.at(Owner), "Contexts of the thread, oldest first, and the newest that were lost"),
		func(ctx context.Context, in *ThreadListIn) (*body[page[sandbox.CodeContext]], error) {
			items, err := s.o.Contexts.Contexts(ctx, callerOf(ctx), in.Thread)
			if err != nil {
				return nil, err
			}
			return pageIn(in.ListIn, items, contextKey)
		})
	register(s.server, s.api, on(http.MethodGet, one, "getContext", tagRun, agents.at(Owner), "A context as it is now"),
		func(ctx context.Context, in *ContextIn) (*body[sandbox.CodeContext], error) {
			cc, err := s.o.Contexts.Context(ctx, callerOf(ctx), in.Thread, in.Context)
			return contextOut(cc, err)
		})
	register(s.server, s.api, on(http.MethodPost, one+"/interrupt", "interruptContext", tagRun, agents.at(Holder), "End the run in a context, which keeps its variables"),
		func(ctx context.Context, in *ContextIn) (*body[sandbox.CodeContext], error) {
			cc, err := s.o.Contexts.InterruptContext(ctx, callerOf(ctx), in.Thread, in.Context)
			return contextOut(cc, err)
		})
	register(s.server, s.api, on(http.MethodPost, one+"/restart", "restartContext", tagRun, agents.at(Holder), "Empty a context, or start a lost one again, empty; a run in it is killed"),
		func(ctx context.Context, in *ContextIn) (*body[sandbox.CodeContext], error) {
			cc, err := s.o.Contexts.RestartContext(ctx, callerOf(ctx), in.Thread, in.Context)
			return contextOut(cc, err)
		})
	register(s.server, s.api, on(http.MethodDelete, one, "deleteContext", tagRun, agents.at(Holder), "End a context with all that it started"),
		func(ctx context.Context, in *ContextIn) (*struct{}, error) {
			return nil, s.o.Contexts.DeleteContext(ctx, callerOf(ctx), in.Thread, in.Context)
		})
}

func contextOut(cc sandbox.CodeContext, err error) (*body[sandbox.CodeContext], error) {
	if err != nil {
		return nil, err
	}
	return bodyOf(cc), nil
}
