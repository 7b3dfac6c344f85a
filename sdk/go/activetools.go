package skerry

import (
	"context"
	"net/http"
)

// ActiveTools are the tools whose definitions a thread's agent gets, deferred or not, until they are put away. ThreadInfo
// lists their names. A full search adds the deferred tools that it shows.
type ActiveTools struct{ t *Thread }

// Activate adds a tool by its name, {server}__{tool}, and returns it with its definition.
func (a ActiveTools) Activate(ctx context.Context, tool string) (*Tool, error) {
	return get[Tool](ctx, a.t.c, Request{Method: http.MethodPut, Path: a.t.path("tools", "active", tool)})
}

// PutAway takes a tool out of them again.
func (a ActiveTools) PutAway(ctx context.Context, tool string) error {
	return a.t.call(ctx, Request{Method: http.MethodDelete, Path: a.t.path("tools", "active", tool)}, nil)
}
