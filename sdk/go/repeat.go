package skerry

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// repeats says whether a request is sent again, and waits until then.
type repeats struct {
	patience time.Duration
	began    time.Time
	tries    int
	lost     bool // the server may have done it: an answer got lost
}

// keyConflict is which of them err is, "" for any other error.
func keyConflict(err error) string {
	var e *Error
	if !errors.As(err, &e) || e.Code != Conflict || len(e.Fields) != 1 || e.Fields[0].Field != headerIdempotencyKey {
		return ""
	}
	return e.Fields[0].Detail
}

// age is how long ago the request was first sent, in seconds: by it the server knows what it may have forgotten.
func (p *repeats) age() string {
	if p.tries == 0 {
		return ""
	}
	return strconv.FormatFloat(min(time.Since(p.began)+time.Millisecond, maxRetryAge).Seconds(), 'f', 3, 64)
}

// may reports whether r is sent again after err, and waits before that.
func (p *repeats) may(ctx context.Context, r *Request, err error) bool {
	if ctx.Err() != nil || !p.worthIt(r, err) {
		return false
	}
	pause := min(firstPause<<min(p.tries, 10), longestPause)
	pause += rand.N(pause / pauseSpread) //nolint:gosec // it spreads clients, and hides nothing
	p.tries++
	var e *Error
	if errors.As(err, &e) {
		pause = max(pause, e.RetryAfter)
	}
	if time.Since(p.began)+pause > p.patience {
		return false
	}
	return sleep(ctx, pause)
}

// sleep waits, and reports whether ctx went on for so long.
func sleep(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// worthIt reports whether another try may end otherwise and harms nothing.
func (p *repeats) worthIt(r *Request, err error) bool {
	var e *Error
	switch {
	case errors.As(err, new(*addressError)):
		return false
	case !errors.As(err, &e):
		if notConnected(err) {
			return true
		}
		p.lost = true
		return !r.Once
	case e.NotStarted, e.Code == CapacityExceeded, e.Status == http.StatusTooManyRequests:
		// Nothing was done. Of a limit that no waiting changes the server does not say when to come back.
		return e.RetryAfter > 0
	case keyConflict(err) == keyRunning:
		return true
	}
	return slices.Contains(retriedStatuses, e.Status) && !r.Once && e.Code != ToolFailed
}

// final is what the caller is told at last: of what must not be done twice also that it may have been done.
func final(r *Request, err error) error {
	if what := keyConflict(err); what == keyDone || what == keyUnknown {
		return &LostError{Err: err}
	}
	if r.Once && !errors.As(err, new(*Error)) && !errors.As(err, new(*addressError)) && !notConnected(err) {
		return &LostError{Err: err}
	}
	return err
}

// notConnected reports whether no connection was made, so that nothing can have been sent.
func notConnected(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}
