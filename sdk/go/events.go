package skerry

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Events is what happens in a thread.
type Events struct{ t *Thread }

// Follow returns what happens, as it happens: behind the event with the id after, or from now on when it is
// "". The first event is "started", or "reset" where events are missing: read the thread's state anew. A connection that
// is lost is made again, and goes on where it was. It ends when the thread is deleted, with ctx, or with an error.
func (x Events) Follow(ctx context.Context, after string) iter.Seq2[ThreadEvent, error] {
	return func(yield func(ThreadEvent, error) bool) {
		var failing time.Time // since when no connection was made
		for {
			over, err := x.connection(ctx, &after, func() { failing = time.Time{} }, yield)
			if over {
				return
			}
			if failing.IsZero() {
				failing = time.Now()
			}
			if ctx.Err() != nil || settled(err) || time.Since(failing) > max(takeUpFor, x.t.c.o.Patience) {
				yield(ThreadEvent{}, err)
				return
			}
			sleep(ctx, takeUpPause)
		}
	}
}

// connection passes on the events of one connection. over: the caller stopped, or the thread is deleted.
func (x Events) connection(ctx context.Context, after *string, connected func(), yield func(ThreadEvent, error) bool) (over bool, err error) {
	q := url.Values{}
	set(q, "after", *after)
	res, err := x.t.c.open(ctx, Request{Method: http.MethodGet, Path: x.t.path("events"), Query: q, Header: streamed()}, x.t.c.o.Silence)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	err = readMessages(res.Body, func(m message) (bool, error) {
		switch m.event {
		case eventError:
			return false, streamError(m.data)
		case eventEnd:
			over = true
			return false, nil
		}
		var e ThreadEvent
		if err := json.Unmarshal([]byte(m.data), &e); err != nil {
			return false, err
		}
		connected()
		*after = m.id
		over = !yield(e, nil)
		return !over, nil
	})
	return over, err
}
