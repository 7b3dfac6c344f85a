package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/platform/ownedsocket"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const socketName = "bridge.sock"

// Endpoint is the socket of one sandbox. It serves one thread.
type Endpoint struct {
	bridge *Bridge
	thread sandbox.Thread
	server *http.Server
	cancel context.CancelFunc
	served chan struct{} // closed when the listener's goroutine has ended

	interim  time.Duration       // interimEvery, but for tests
	bodies   *semaphore.Weighted // bytes of requests that are held
	refusals *rate.Limiter
	unheard  atomic.Int64 // refusals without a record since the last one

	once   sync.Once
	closed error
}

// Serve listens on dir/bridge.sock, which belongs to uid alone, in place of a socket that was there
// before. The endpoint's goroutines end with Close.
func (b *Bridge) Serve(dir string, uid int, thread sandbox.Thread) (*Endpoint, error) {
	ln, err := ownedsocket.Listen(dir, socketName, uid)
	if err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ep := &Endpoint{
		bridge: b, thread: thread, cancel: cancel, served: make(chan struct{}),
		interim: interimEvery, bodies: semaphore.NewWeighted(maxBodyBytesHeld), refusals: rate.NewLimiter(maxRefusals, maxRefusals),
	}
	ep.server = &http.Server{
		Handler:           ep.routes(),
		ReadHeaderTimeout: headerWait,
		ReadTimeout:       requestWait, // lifted once the body is there
		IdleTimeout:       idleWait,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(ep.served)
		if err := ep.server.Serve(netutil.LimitListener(ln, MaxConnections)); !errors.Is(err, http.ErrServerClosed) {
			b.log.Error("a bridge endpoint stopped", "thread", thread.String(), "error", err)
		}
	}()
	return ep, nil
}

// Close cancels the calls that came through this endpoint, waits up to a second for their answers, and
// closes all connections. It may be called twice. The socket's name stays; it has no listener.
func (ep *Endpoint) Close() error {
	ep.once.Do(func() {
		ep.cancel()
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		if err := ep.server.Shutdown(ctx); err != nil {
			ep.closed = ep.server.Close()
		}
		<-ep.served
	})
	return ep.closed
}
