package hub

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxSubscriptions bounds the resources that are watched on one link.
	maxSubscriptions = 1000
	// subscribeTime bounds the request for a subscription, or for its end.
	subscribeTime = 10 * time.Second
	// resubscribeAfter is the pause before a lost subscription is made again.
	resubscribeAfter = 2 * time.Second
	// subscribedTouch is how often a link with subscriptions counts as used: it is not idle.
	subscribedTouch = time.Minute
)

// updates are the resources of a link that are watched.
type updates struct {
	mu    sync.Mutex
	byURI map[string]map[*watcher]bool
}

// watcher is told that a resource changed.
type watcher struct {
	uri  string
	tell func()
}

func (u *updates) add(uri string, w *watcher) (first bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byURI == nil {
		u.byURI = map[string]map[*watcher]bool{}
	}
	first = u.byURI[uri] == nil
	if first && len(u.byURI) >= maxSubscriptions {
		return false, sandbox.Errorf(sandbox.CapacityExceeded, "%d resources of the MCP server are watched, the most", maxSubscriptions)
	}
	if first {
		u.byURI[uri] = map[*watcher]bool{}
	}
	u.byURI[uri][w] = true
	return first, nil
}

func (u *updates) remove(uri string, w *watcher) (last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byURI[uri], w)
	if len(u.byURI[uri]) > 0 {
		return false
	}
	delete(u.byURI, uri)
	return true
}

// changed tells those who watch a resource.
func (u *updates) changed(uri string) {
	u.mu.Lock()
	var tell []func()
	for w := range u.byURI[uri] {
		tell = append(tell, w.tell)
	}
	u.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// Subscribe calls changed whenever one of the thread's servers says that a resource is another one now,
// until ctx ends. changed must not block. A subscription that is lost with its connection is made again.
// An error, of the first attempt, is NotFound, NotSupported (the server has no subscriptions), or as of Ask.
func (u *Upstream) Subscribe(ctx context.Context, t sandbox.Thread, server, uri string, changed func()) error {
	c, err := u.conn(ctx, t, server)
	if err != nil {
		return err
	}
	w := &watcher{uri, changed}
	l, err := w.subscribe(ctx, c)
	if err != nil {
		return err
	}
	if !u.background.spawn(func() { u.keepSubscribed(ctx, t, c, l, w) }) {
		w.unsubscribe(c, l)
		return errStopping
	}
	return nil
}

// keepSubscribed sees a subscription to its end.
func (u *Upstream) keepSubscribed(ctx context.Context, t sandbox.Thread, c *conn, l *link, w *watcher) {
	tick := time.NewTicker(subscribedTouch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.unsubscribe(c, l)
			return
		case <-u.background.ctx.Done():
			return
		case <-tick.C:
			c.touch()
			continue
		case <-l.ctx.Done():
		case <-l.dead:
		}
		for l = nil; l == nil; {
			select {
			case <-ctx.Done():
				return
			case <-u.background.ctx.Done():
				return
			case <-time.After(resubscribeAfter):
			}
			var err error
			if c, err = u.conn(ctx, t, c.key.server); sandbox.KindOf(err) == sandbox.NotFound {
				return // the server is not in the configuration any more
			} else if err == nil {
				l, _ = w.subscribe(ctx, c) // it is tried again
			}
		}
		w.tell() // what happened in between is not known
	}
}

// subscribe begins to watch a resource. The first watcher of a resource subscribes for all.
func (w *watcher) subscribe(ctx context.Context, c *conn) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, subscribeTime)
	defer cancel()
	l, err := c.ensure(ctx)
	if err != nil {
		return nil, err
	}
	if caps := l.session.InitializeResult().Capabilities; caps == nil || caps.Resources == nil || !caps.Resources.Subscribe {
		return nil, sandbox.Errorf(sandbox.NotSupported, "the MCP server %q does not tell when a resource changes", c.key.server)
	}
	c.touch()
	first, err := l.updates.add(w.uri, w)
	if err != nil || !first {
		return l, err
	}
	ask := question{"resources/subscribe", func(ctx context.Context, s *mcp.ClientSession) (any, error) {
		return map[string]any{}, s.Subscribe(ctx, &mcp.SubscribeParams{URI: w.uri})
	}}
	if l.session.InitializeResult().ProtocolVersion >= protocolStateless {
		// Here the request lasts as long as the subscription; Unsubscribe and the link's end end it.
		if !c.background.spawn(func() { _, _ = ask.ask(l.ctx, l.session) }) {
			return nil, errStopping
		}
		return l, nil
	}
	if _, err := askServer(ctx, c, ask); err != nil {
		l.updates.remove(w.uri, w)
		return nil, err
	}
	return l, nil
}

func (w *watcher) unsubscribe(c *conn, l *link) {
	if !l.updates.remove(w.uri, w) {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, subscribeTime)
	defer cancel()
	if err := l.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: w.uri}); err != nil {
		c.o.Log.Debug("MCP server: subscription not ended", "server", c.key.server, "error", redacted(l, err))
	}
}
