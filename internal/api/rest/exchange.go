package rest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// idleTimeout is how long a client may send nothing of a body, or take nothing of an answer. There
// is no limit to a whole request: an exec may take an hour, an upload as long as it flows.
const idleTimeout = 30 * time.Second

// exchange is one request with its answer. It is the http.ResponseWriter that everything below
// writes to, and what handlers find in their context.
type exchange struct {
	http.ResponseWriter
	rc     *http.ResponseController
	idle   time.Duration
	req    *http.Request
	id     string
	caller sandbox.Caller // set when authenticated
	known  bool           // caller is set
	begun  string         // what the request did that must not be done again by a retry, whatever its answer; "" = nothing yet

	refused func(status int, detail string) any // of an adapter: the shape of its errors

	route string // as registered, "" before it is known; of what needs a caller
	rule  rule   // of the route, set when authorized
	span  *tracing.Span

	status   int
	extended time.Time // when the write deadline was last set
	body     *idleBody
}

type exchangeKey struct{}

// exchangeOf finds the exchange of a handler's context. It panics without one: that is a
// programming error.
func exchangeOf(ctx context.Context) *exchange {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("rest: a context without its exchange")
	}
	return x
}

// CallerFrom returns who makes the request that ctx belongs to, for use cases whose signature has no
// caller. ok is false when ctx is not one of an authenticated request.
func CallerFrom(ctx context.Context) (c sandbox.Caller, ok bool) {
	x, found := ctx.Value(exchangeKey{}).(*exchange)
	if !found || !x.known {
		return sandbox.Caller{}, false
	}
	return x.caller, true
}

func callerOf(ctx context.Context) sandbox.Caller { return exchangeOf(ctx).caller }

// exchanges wraps the router: request id, deadlines, checks of Host and Origin, and an answer when
// something panics.
func (s *server) exchanges(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		x := &exchange{ResponseWriter: w, rc: http.NewResponseController(w), idle: s.idle, id: requestID(r.Header.Get("X-Request-Id"))}
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		x.req = r
		if r.Body != nil && r.Body != http.NoBody {
			x.body = &idleBody{ReadCloser: r.Body, rc: x.rc, idle: s.idle}
			r.Body = x.body
		}
		h := w.Header()
		h["X-Request-Id"] = []string{x.id}
		h["X-Content-Type-Options"] = nosniff
		defer x.finish(s, start)
		x.extend()
		if p := s.guard.check(w, r); p != nil && !fromPeer(r) {
			writeProblem(x, p)
			return
		}
		if r.Method == http.MethodOptions && s.guard.preflight(x, r) {
			return
		}
		next.ServeHTTP(x, r)
	})
}

var nosniff = []string{"nosniff"}

// finish answers for a handler that panicked, and leaves deadlines that let net/http send the rest.
func (x *exchange) finish(s *server, start time.Time) {
	if v := recover(); v != nil {
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		s.o.Log.Error("panic", "request_id", x.id, "method", x.req.Method, "path", x.req.URL.Path, "error", v, "stack", string(debug.Stack()))
		if x.status == 0 {
			writeProblem(x, newProblem(sandbox.Internal, ""))
		} else {
			// Half an answer is out: cut the connection, so that it is not taken for a whole one.
			panic(http.ErrAbortHandler)
		}
	}
	x.observe(s, start)
	x.extend()
	if x.body != nil && !x.body.done {
		_ = x.rc.SetReadDeadline(time.Now().Add(x.idle)) // net/http reads the rest away
	}
	if s.o.Log.Enabled(x.req.Context(), slog.LevelDebug) {
		s.o.Log.LogAttrs(x.req.Context(), slog.LevelDebug, "request", slog.String("request_id", x.id), slog.String("method", x.req.Method),
			slog.String("path", x.req.URL.Path), slog.Int("status", x.status), slog.String("user", x.caller.User), slog.Duration("took", time.Since(start)), slog.String("trace_id", x.caller.TraceID))
	}
}

// extend allows the client time to take what is written next. Failing means that the connection has
// no deadlines (a test), or is gone.
func (x *exchange) extend() {
	now := time.Now()
	if now.Sub(x.extended) > x.idle/8 {
		x.extended = now
		_ = x.rc.SetWriteDeadline(now.Add(x.idle))
	}
}

// WriteHeader notes the status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.extend()
	x.ResponseWriter.WriteHeader(status)
}

// Write extends the deadline first.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	x.extend()
	return x.ResponseWriter.Write(p)
}

// Flush sends what was written so far.
func (x *exchange) Flush() {
	x.extend()
	_ = x.rc.Flush() // the next write reports that the client is gone
}

// Hijack hands the connection over, without deadlines; nothing can be written here from then on.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return x.rc.Hijack()
}

// Unwrap lets http.ResponseController find the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// idleBody is a request body whose sender may pause for idle at most. At its end net/http takes the
// deadline away.
type idleBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	idle time.Duration
	last time.Time
	done bool
}

func (b *idleBody) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.last) > b.idle/8 {
		b.last = now
		_ = b.rc.SetReadDeadline(now.Add(b.idle))
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.done = true
	}
	return n, err
}

// slow reports whether a body could not be read because its sender paused for too long.
func slow(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// requestID takes the client's id when it is harmless, else makes one.
func requestID(given string) string {
	if n := len(given); n > 0 && n <= 64 {
		ok := true
		for i := range n {
			c := given[i]
			ok = ok && (c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
		}
		if ok {
			return given
		}
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
