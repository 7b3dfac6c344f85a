package mcp

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxWatched is how many resources one session, or one request that listens, may watch.
const maxWatched = 100

// watchedResources are the resources of MCP servers that a client has subscribed to.
type watchedResources struct {
	mu    sync.Mutex
	byURI map[string]context.CancelFunc // each ends its watch
}

// subscribe watches a resource of an MCP server for the client, until it unsubscribes, or its session or
// the request that listens ends.
func (m *methods) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	shown := req.Params.URI
	server, uri := m.scope.Only, shown
	if server == "" {
		var ok bool
		if server, uri, ok = serverOfURI(shown); !ok {
			return m.resourceNotFound(shown)
		}
	}
	if m.session != nil { // the watch outlives the request
		ctx = m.within(m.session.ctx, requestOf(ctx))
	}
	ctx, cancel := context.WithCancel(ctx)
	if known, err := m.watched.add(shown, cancel); known || err != nil {
		cancel()
		return err
	}
	srv := m.scope.server
	err := m.o.Upstream.WatchUpstream(ctx, m.caller(ctx), m.scope.Thread, server, uri, func() {
		// It only writes to those who listen; the SDK logs what cannot be written.
		_ = srv.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: shown})
	})
	if err != nil {
		m.watched.end(shown)
		return m.wireError(ctx, err)
	}
	return nil
}

func (m *methods) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	m.watched.end(req.Params.URI)
	return nil
}

func (w *watchedResources) add(uri string, cancel context.CancelFunc) (known bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byURI[uri] != nil {
		return true, nil
	}
	if len(w.byURI) >= maxWatched {
		return false, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: string(sandbox.CapacityExceeded) + ": too many subscriptions"}
	}
	w.byURI[uri] = cancel
	return false, nil
}

func (w *watchedResources) end(uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cancel := w.byURI[uri]; cancel != nil {
		cancel()
		delete(w.byURI, uri)
	}
}
