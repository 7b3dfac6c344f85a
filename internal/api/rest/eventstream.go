package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// eventStream writes server-sent events that have no end of their own. send may be called by many goroutines.
type eventStream struct {
	s     *server
	x     *exchange
	w     http.ResponseWriter
	mu    sync.Mutex
	begun bool
}

// headWait is how long an error may take to be answered as one; then the stream begins.
const headWait = 100 * time.Millisecond

func (a *eventStream) keepAlive(ctx context.Context, gone context.CancelFunc) {
	t := time.NewTimer(headWait)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if a.send([]byte(": \n\n")) != nil {
			gone()
			return
		}
		t.Reset(a.s.heartbeat)
	}
}

func (a *eventStream) send(text []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return sendEvents(a.w, a.x, &a.begun, text)
}

// sendEvents puts events on the wire, after the header when nothing has begun. errGone: the client does not take them any more.
func sendEvents(w http.ResponseWriter, x *exchange, begun *bool, text []byte) error {
	if !*begun {
		*begun = true
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", noStore)
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
	}
	_, err := w.Write(text)
	if err == nil {
		err = x.rc.Flush()
	}
	if err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}

// end says why the stream ends, when it is not the client's doing.
func (a *eventStream) end(ctx context.Context, err error) {
	if err == nil || errors.Is(err, errGone) {
		return
	}
	p := a.s.problem(ctx, err)
	if !a.begun {
		writeProblem(a.w, p)
		return
	}
	if text, err := json.Marshal(p); err == nil {
		_ = a.send(fmt.Appendf(nil, "event: error\ndata: %s\n\n", text))
	}
}
