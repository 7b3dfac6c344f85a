package client

import (
	"context"
	"time"

	"connectrpc.com/connect"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

// openTime bounds the start of an interpreter: sandboxd allows it 30 s.
const openTime = 35 * time.Second

// OpenContext starts an interpreter that lives on between execs, and returns once it is ready. It is not
// tried again. NotSupported: the sandbox has none for the language; Conflict: the id is known;
// CapacityExceeded: it did not start, or there are too many.
func (c *Client) OpenContext(ctx context.Context, req *sandboxv1.OpenContextRequest) error {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	api, _, err := c.reach(ctx)
	if err != nil {
		return err
	}
	if _, err = api.OpenContext(ctx, connect.NewRequest(req)); err != nil {
		return mapError(ctx, err)
	}
	return nil
}

// InterruptContext sends SIGINT to what runs in a context. NotFound: it has ended.
func (c *Client) InterruptContext(ctx context.Context, id string) error {
	_, err := call(ctx, c, &sandboxv1.InterruptContextRequest{ContextId: id},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.InterruptContextRequest]) (*connect.Response[sandboxv1.InterruptContextResponse], error) {
			return api.InterruptContext(ctx, r)
		})
	return err
}

// CloseContext ends a context and returns once all that it started is gone. Closing an ended one
// is no error.
func (c *Client) CloseContext(ctx context.Context, id string) error {
	_, err := call(ctx, c, &sandboxv1.CloseContextRequest{ContextId: id},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.CloseContextRequest]) (*connect.Response[sandboxv1.CloseContextResponse], error) {
			return api.CloseContext(ctx, r)
		})
	return err
}
