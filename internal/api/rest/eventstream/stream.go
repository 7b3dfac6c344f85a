package eventstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
)

// Heartbeat keeps proxies from ending a stream that is silent, and finds out that a client is gone.
const Heartbeat = 15 * time.Second

// Events of streams other than those of an exec.
const (
	EventError  = "error"  // the problem that ended the stream
	EventEnd    = "end"    // the stream has no more to say
	EventChange = "change" // of a file in a watched folder
	EventRecord = "record" // of the audit log
)

// Stream writes server-sent events that have no end of their own. Send may be called by many goroutines.
type Stream struct {
	x         *exchange.Exchange
	w         http.ResponseWriter
	heartbeat time.Duration
	mu        sync.Mutex
	begun     bool
}

// New returns the stream of the answer to a request.
func New(x *exchange.Exchange, w http.ResponseWriter, heartbeat time.Duration) *Stream {
	return &Stream{x: x, w: w, heartbeat: heartbeat}
}

// headWait is how long an error may take to be answered as one; then the stream begins.
const headWait = 100 * time.Millisecond

// KeepAlive sends a comment now and then until ctx ends. It calls gone when the client takes none.
func (s *Stream) KeepAlive(ctx context.Context, gone context.CancelFunc) {
	t := time.NewTimer(headWait)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.Send([]byte(": \n\n")) != nil {
			gone()
			return
		}
		t.Reset(s.heartbeat)
	}
}

// Send puts events on the wire.
func (s *Stream) Send(text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Write(s.w, s.x, &s.begun, text)
}

// Write puts events on the wire, after the header when nothing has begun. exchange.ErrGone: the client
// does not take them any more.
func Write(w http.ResponseWriter, x *exchange.Exchange, begun *bool, text []byte) error {
	if !*begun {
		*begun = true
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", exchange.NoStore)
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
	}
	_, err := w.Write(text)
	if err == nil {
		err = x.Control.Flush()
	}
	if err != nil {
		return errors.Join(exchange.ErrGone, err)
	}
	return nil
}

// End says why the stream ends, when it is not the client's doing.
func (s *Stream) End(ctx context.Context, err error) {
	if err == nil || errors.Is(err, exchange.ErrGone) {
		return
	}
	p := exchange.Problem(ctx, err)
	if !s.begun {
		problem.Write(s.w, p)
		return
	}
	if text, err := json.Marshal(p); err == nil {
		_ = s.Send(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", EventError, text))
	}
}

// Wanted reports whether the client asks for server-sent events.
func Wanted(r *http.Request) bool {
	for _, accept := range r.Header["Accept"] {
		if strings.Contains(accept, "text/event-stream") {
			return true
		}
	}
	return false
}
