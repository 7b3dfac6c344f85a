package app

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Times of the end of a server, after its drain.
const (
	// quietTime is how long no request may have come before connections are closed: by then the server has read what
	// clients sent before they could know of the stop. quietLimit bounds it.
	quietTime  = 200 * time.Millisecond
	quietLimit = 2 * time.Second
	// trafficLook is how often the server looks whether requests are still under way.
	trafficLook = 20 * time.Millisecond
)

// traffic is what clients ask of a server. Its stop waits for them, so that a connection does not break under a request.
type traffic struct {
	changing atomic.Int64 // requests under way that change something
	latest   atomic.Int64 // when the last request came since the stop began, in ns of the Unix epoch
}

// count counts what h is asked to do, as long as it takes. While the server stops, each answer closes its connection:
// clients connect anew, and so find a server that goes on.
func (t *traffic) count(h http.Handler, stopping func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			t.changing.Add(1)
			defer t.changing.Add(-1)
		}
		if stopping() {
			t.latest.Store(time.Now().UnixNano())
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// linger goes on answering after the drain when other servers do the work. Requests that were passed on to
// them still wait for their answers. Clients, and proxies in front of them, need time to notice that this
// server is not ready. linger waits until the time, and for the requests under way until stop ends.
func (t *traffic) linger(stop context.Context, until time.Time) {
	wait(func() bool {
		return time.Now().After(until) && (t.changing.Load() == 0 || stop.Err() != nil) || secondSignal(stop)
	})
}

// settle goes on answering until no request has come for quietTime. A client that sent a command on a kept connection
// is told that the command was not started; if the server closed that connection, the client could not know.
func (t *traffic) settle(stop context.Context) {
	began := time.Now()
	wait(func() bool {
		since := min(time.Since(began), time.Since(time.Unix(0, t.latest.Load())))
		return since >= quietTime || time.Since(began) >= quietLimit || secondSignal(stop)
	})
}

// secondSignal reports whether a person wants the stop at once.
func secondSignal(stop context.Context) bool { return errors.Is(stop.Err(), context.Canceled) }

// wait returns once done says so.
func wait(done func() bool) {
	tick := time.NewTicker(trafficLook)
	defer tick.Stop()
	for !done() {
		<-tick.C
	}
}
