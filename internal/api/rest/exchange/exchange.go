package exchange

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// IdleTimeout is how long a client may send nothing of a body, or take nothing of an answer. There
// is no limit to a whole request: an exec may take an hour, an upload as long as it flows.
const IdleTimeout = 30 * time.Second

// Exchange is one request with its answer. It is the http.ResponseWriter that everything below
// writes to, and what handlers find in their context.
type Exchange struct {
	http.ResponseWriter
	Control *http.ResponseController // of the connection
	Request *http.Request
	ID      string
	Caller  sandbox.Caller // set when authenticated
	// Begun is what the request did that must not be done again by a retry, whatever its answer; "":
	// nothing yet.
	Begun string
	// Shape is that of the errors of an adapter; nil: they are problem documents.
	Shape func(status int, detail string) any

	log   *slog.Logger
	idle  time.Duration
	known bool   // Caller is set
	route string // as registered, "" before it is known; of what needs a caller
	span  *tracing.Span

	status   int
	extended time.Time // when the write deadline was last set
	body     *idleBody
}

// NoStore says in Cache-Control that an answer is not to be kept anywhere: not in a cache, and not for
// retries.
const NoStore = "no-store"

// ErrGone says that the client does not take the answer any more.
var ErrGone = errors.New("the client went away")

type contextKey struct{}

// Of finds the exchange of a handler's context. It panics without one: that is a
// programming error.
func Of(ctx context.Context) *Exchange {
	x, ok := ctx.Value(contextKey{}).(*Exchange)
	if !ok {
		panic("rest: a context without its exchange")
	}
	return x
}

// CallerFrom returns who makes the request that ctx belongs to, for use cases whose signature has no
// caller. ok is false when ctx is not one of an authenticated request.
func CallerFrom(ctx context.Context) (c sandbox.Caller, ok bool) {
	x, found := ctx.Value(contextKey{}).(*Exchange)
	if !found || !x.known {
		return sandbox.Caller{}, false
	}
	return x.Caller, true
}

// CallerOf returns the caller of a handler's context.
func CallerOf(ctx context.Context) sandbox.Caller { return Of(ctx).Caller }

// Authenticated notes who makes the request.
func (x *Exchange) Authenticated(c sandbox.Caller) { x.Caller, x.known = c, true }

// Within returns a context for a request of c that came inside of another one. r says what the log calls it.
func Within(ctx context.Context, log *slog.Logger, c sandbox.Caller, r *http.Request) context.Context {
	return context.WithValue(ctx, contextKey{}, &Exchange{Caller: c, known: true, ID: c.RequestID, Request: r, log: log})
}

// ErrorShape returns Shape.
func (x *Exchange) ErrorShape() func(status int, detail string) any { return x.Shape }

// Problem turns the error of a use case into what the client sees, and logs here, once, what it
// does not see.
func Problem(ctx context.Context, err error) *problem.Problem {
	var known *problem.Problem
	if errors.As(err, &known) {
		return known
	}
	p := problem.Of(ctx, err)
	if p.Status != problem.StatusCancelled {
		Of(ctx).logProblem(ctx, p, err)
	}
	return p
}

// logProblem logs what is our fault, and the hidden causes of what is the fault of something that
// we depend on.
func (x *Exchange) logProblem(ctx context.Context, p *problem.Problem, err error) {
	level := slog.LevelDebug
	switch sandbox.Kind(p.Code) {
	case sandbox.Internal:
		level = slog.LevelError
	case sandbox.Unavailable, sandbox.SandboxLost, sandbox.CapacityExceeded:
		level = slog.LevelWarn
	default:
		err = nil // it was told to the caller, and may quote what the caller sent
	}
	if !x.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", x.ID), slog.String("trace_id", x.Caller.TraceID), slog.String("code", p.Code),
		slog.String("method", x.Request.Method), slog.String("path", x.Request.URL.Path),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	x.log.LogAttrs(ctx, level, "request failed", attrs...)
}

// Server makes an exchange of each request: request id, deadlines, checks of Host and Origin, and an
// answer when something panics.
type Server struct {
	Guard *Guard
	// Idle is how long a client may send nothing of a body, or take nothing of an answer.
	Idle time.Duration
	// Observe is told of each request that was answered: its route, method, status and time. May be nil.
	Observe func(route, method string, status int, took time.Duration)
	Log     *slog.Logger
}

// Handler wraps the router.
func (s Server) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		x := &Exchange{ResponseWriter: w, Control: http.NewResponseController(w), log: s.Log, idle: s.Idle, ID: requestID(r.Header.Get(RequestIDHeader))}
		r = r.WithContext(context.WithValue(r.Context(), contextKey{}, x))
		x.Request = r
		if r.Body != nil && r.Body != http.NoBody {
			x.body = &idleBody{ReadCloser: r.Body, rc: x.Control, idle: s.Idle}
			r.Body = x.body
		}
		h := w.Header()
		h[RequestIDHeader] = []string{x.ID}
		h["X-Content-Type-Options"] = nosniff
		defer x.finish(s, start)
		x.extend()
		if p := s.Guard.check(w, r); p != nil && !IsFromPeer(r) {
			problem.Write(x, p)
			return
		}
		if r.Method == http.MethodOptions && s.Guard.preflight(x, r) {
			return
		}
		next.ServeHTTP(x, r)
	})
}

var nosniff = []string{"nosniff"}

// finish answers for a handler that panicked, and leaves deadlines that let net/http send the rest.
func (x *Exchange) finish(s Server, start time.Time) {
	if v := recover(); v != nil {
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		s.Log.Error("panic", "request_id", x.ID, "method", x.Request.Method, "path", x.Request.URL.Path, "error", v, "stack", string(debug.Stack()))
		if x.status == 0 {
			problem.Write(x, problem.New(sandbox.Internal, ""))
		} else {
			// Half an answer is out: cut the connection, so that it is not taken for a whole one.
			panic(http.ErrAbortHandler)
		}
	}
	x.observe(s, start)
	x.extend()
	if x.body != nil && !x.body.done {
		_ = x.Control.SetReadDeadline(time.Now().Add(x.idle)) // net/http reads the rest away
	}
	if s.Log.Enabled(x.Request.Context(), slog.LevelDebug) {
		s.Log.LogAttrs(x.Request.Context(), slog.LevelDebug, "request", slog.String("request_id", x.ID), slog.String("method", x.Request.Method),
			slog.String("path", x.Request.URL.Path), slog.Int("status", x.status), slog.String("user", x.Caller.User), slog.Duration("took", time.Since(start)), slog.String("trace_id", x.Caller.TraceID))
	}
}

// extend allows the client time to take what is written next. Failing means that the connection has
// no deadlines (a test), or is gone.
func (x *Exchange) extend() {
	now := time.Now()
	if now.Sub(x.extended) > x.idle/8 {
		x.extended = now
		_ = x.Control.SetWriteDeadline(now.Add(x.idle))
	}
}

// WriteHeader notes the status.
func (x *Exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.extend()
	x.ResponseWriter.WriteHeader(status)
}

// Write extends the deadline first.
func (x *Exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	x.extend()
	return x.ResponseWriter.Write(p)
}

// Flush sends what was written so far.
func (x *Exchange) Flush() {
	x.extend()
	_ = x.Control.Flush() // the next write reports that the client is gone
}

// Hijack hands the connection over, without deadlines; nothing can be written here from then on.
func (x *Exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return x.Control.Hijack()
}

// Unwrap lets http.ResponseController find the connection.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

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
