package forward

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Placement says which server a request belongs to, and reaches the others. A replica is named by its id.
type Placement interface {
	// Owner returns the replica that holds the thread, "" when it is this one or none does.
	Owner(ctx context.Context, c sandbox.Caller, thread string) (replica string, err error)
	// Hold is Owner for a request that may start a sandbox: when no replica holds the thread, this one
	// does until done is called, which is nil when replica is not "".
	Hold(ctx context.Context, c sandbox.Caller, thread string) (replica string, done func(), err error)
	// ExecOwner returns the replica that knows an exec, "" when it is this one, or none knows it.
	ExecOwner(ctx context.Context, c sandbox.Caller, thread, exec string) (replica string, err error)
	// Alive reports whether a replica's process is there; Answers whether it serves, too, within a few
	// seconds.
	Alive(replica string) bool
	Answers(ctx context.Context, replica string) bool
	// Transport sends a request to the replica that the host of its URL names.
	Transport() http.RoundTripper
	// PassOn returns the replica that does what any server could while this one stops; "": this one does.
	PassOn(ctx context.Context) (replica string)
	// Stopping ends when this server begins to stop.
	Stopping() context.Context
}

const (
	// MovedHeader says, between servers, that the thread is another one's by now.
	MovedHeader = "Skerry-Moved"
	// PlaceTime bounds the search for a server that answers, stopTime that on a server which stops: what
	// still runs for the thread is ended first. placePause is between two tries. A request is passed on
	// anew for PlaceTime while its thread moves.
	PlaceTime  = 5 * time.Second
	stopTime   = 20 * time.Second
	placePause = 100 * time.Millisecond
	// watchPeer is how often a server that is answering is asked whether it is there; a server that does
	// not say so for peerPatience is given up. It may be silent for longer than any one question waits.
	watchPeer    = 3 * time.Second
	peerPatience = 15 * time.Second
)

// Forwarder passes on the requests that other servers have to answer.
type Forwarder struct {
	// Placement says which server answers; nil: there is only this one.
	Placement Placement
	// RemoteFiles: sandboxes have copies of their threads' files, which only the server that holds the
	// thread reaches.
	RemoteFiles bool
	Routes      *route.Table
	Tracer      *tracing.Tracer // may be nil
	Log         *slog.Logger
}

// Stopping ends when this server begins to stop.
func (f *Forwarder) Stopping() context.Context {
	if f.Placement == nil {
		return context.Background()
	}
	return f.Placement.Stopping()
}

// Place passes a request on when another server has to answer it.
func (f *Forwarder) Place(c *gin.Context) {
	if f.Placement == nil {
		return
	}
	rule, _ := f.Routes.Rule(c)
	what := rule.Server.Of(f.RemoteFiles)
	thread := c.Param("thread")
	if thread == "" {
		thread = c.GetHeader(route.ThreadHeader)
	}
	if what != route.AnyServer && sandbox.CheckThreadID(thread) != nil {
		return // the handler says what is wrong
	}
	for began := time.Now(); time.Since(began) < PlaceTime; {
		replica, done, err := f.find(c, what, thread)
		switch {
		case err != nil:
			if errors.Is(err, errMoved) {
				c.Header(MovedHeader, "1")
			}
			problem.Write(c.Writer, exchange.Problem(c.Request.Context(), problem.NotStarted(err)))
			c.Abort()
			return
		case replica != "":
			if f.forward(c, replica) {
				c.Abort()
				return
			}
			time.Sleep(placePause / 10)
		default:
			f.stay(c, rule, done)
			return
		}
	}
	problem.Write(c.Writer, exchange.Problem(c.Request.Context(), problem.NotStarted(errMoved)))
	c.Abort()
}

// stay answers the request here. A stream without an end ends when the server stops, so that its thread
// can go elsewhere.
func (f *Forwarder) stay(c *gin.Context, rule route.Rule, done func()) {
	if done == nil {
		return
	}
	defer done()
	if rule.Endless {
		ctx, cancel := context.WithCancel(c.Request.Context())
		defer cancel()
		defer context.AfterFunc(f.Placement.Stopping(), cancel)()
		c.Request = c.Request.WithContext(ctx)
	}
	c.Next()
}

// errMoved is the answer to a server that forwarded a request to a former owner of the thread.
var errMoved = sandbox.Errorf(sandbox.Unavailable, "another server took the thread over just now; try again")

// find returns the server that has to answer and does, "" for this one.
func (f *Forwarder) find(c *gin.Context, what route.Server, thread string) (replica string, done func(), err error) {
	bound := PlaceTime
	if f.Placement.Stopping().Err() != nil {
		bound = stopTime
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), bound)
	defer cancel()
	caller := exchange.CallerOf(ctx)
	for {
		switch what {
		case route.AnyServer:
			if route.IsRead(c.Request.Method) || sandbox.CheckThreadID(thread) != nil || f.Placement.PassOn(ctx) == "" {
				return "", nil, nil
			}
			replica, done, err = f.Placement.Hold(ctx, caller, thread)
		case route.Holder:
			replica, done, err = f.Placement.Hold(ctx, caller, thread)
		case route.ExecOwner:
			exec := c.Param("exec")
			if exec == "" {
				exec = c.Query("exec")
			}
			replica, err = f.Placement.ExecOwner(ctx, caller, thread, exec)
		default:
			replica, err = f.Placement.Owner(ctx, caller, thread)
		}
		if err != nil || replica == "" {
			return "", done, err
		}
		if exchange.IsFromPeer(c.Request) { // it has moved since it was passed on
			return "", nil, errMoved
		}
		if f.Placement.Answers(ctx, replica) {
			return replica, nil, nil
		}
		pause := time.NewTimer(placePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return "", nil, sandbox.Errorf(sandbox.Unavailable, "the server that runs the thread does not answer; another one takes the thread over when its lease ends: try again")
		}
	}
}

// forward passes the request on, and the answer back. It reports false, and has written nothing, when the
// replica does not have the thread any more: the request can go elsewhere.
func (f *Forwarder) forward(c *gin.Context, replica string) (answered bool) {
	answered = true
	x := exchange.Of(c.Request.Context())
	ctx, cancel := context.WithCancelCause(c.Request.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { f.watchPeer(ctx, replica, cancel) })
	body := &unread{ReadCloser: c.Request.Body, over: ctx.Done()}
	proxy := &httputil.ReverseProxy{
		Transport: f.Placement.Transport(), FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", replica
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it is, also where it is not well formed
			r.Out.Header.Set(exchange.RequestIDHeader, x.ID)
			r.Out.Header.Set(exchange.SourceHeader, exchange.Source(r.In))
			if r.Out.Body != nil {
				r.Out.Header.Set("Expect", "100-continue")
			}
			f.Tracer.To(r.In.Context(), r.Out.Header)
		},
		ModifyResponse: func(res *http.Response) error {
			if res.Header.Get(MovedHeader) != "" && !body.touched.Load() {
				return errMoved
			}
			res.Header.Del(MovedHeader)
			for name := range x.Header() { // what every answer has was set here already
				res.Header.Del(name)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, errMoved) || unsent(err, body) && c.Request.Context().Err() == nil {
				answered = false
				return
			}
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if r.Context().Err() == nil || errors.Is(err, errPeerGone) {
				f.Log.Warn("a request that was passed on got no answer", "request_id", x.ID, "replica", replica, "error", err)
			}
			p := problem.New(sandbox.Unavailable, "the server that runs the thread ended, or stopped, before it answered; the request may have been done")
			problem.Write(w, p)
		},
	}
	req := c.Request.WithContext(ctx)
	req.Body = body
	proxy.ServeHTTP(c.Writer, req)
	return answered
}

// unread is the body of a request that may be sent again as long as none of it was read.
//
// net/http closes it when the answer begins. The transport may still read it then, and cuts the answer off
// when that fails. So an end that was read stays one, and a body that was closed early has no more to say
// until the answer is over.
type unread struct {
	io.ReadCloser
	over    <-chan struct{}
	touched atomic.Bool
	ended   atomic.Bool
}

func (u *unread) Read(p []byte) (int, error) {
	u.touched.Store(true)
	if u.ended.Load() {
		return 0, io.EOF
	}
	n, err := u.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		u.ended.Store(true)
	case errors.Is(err, http.ErrBodyReadAfterClose):
		<-u.over
	}
	return n, err
}

// unsent reports whether a request that failed has surely done nothing: there was no connection, or
// nothing asked for its body.
func unsent(err error, body *unread) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || body.ReadCloser != http.NoBody && !body.touched.Load()
}

// Close does nothing: the sender of the request closes the body, and the server does when the request is
// answered.
func (u *unread) Close() error { return nil }

// errPeerGone says that a server which was answering is not there any more.
var errPeerGone = errors.New("the other server does not answer any more")

// watchPeer abandons a server that is silent for too long, or has ended. A connection to a server that was
// stopped stays open for ever.
func (f *Forwarder) watchPeer(ctx context.Context, replica string, gone context.CancelCauseFunc) {
	tick := time.NewTicker(watchPeer)
	defer tick.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if f.Placement.Answers(ctx, replica) {
			heard = time.Now()
		} else if time.Since(heard) > peerPatience || !f.Placement.Alive(replica) {
			gone(errPeerGone)
			return
		}
	}
}
