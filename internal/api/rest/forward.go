package rest

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Several servers may have one data folder. A request about a thread's sandbox is answered by the server that
// holds the thread: any other passes it on as it is, with its credential and its id, and the answer back as it
// comes, be it a stream, an upload or a WebSocket. A request is passed on once: only what listens for the other
// servers says that one was, and what comes from there is answered or refused. A request that is refused because the thread
// has moved meanwhile is passed on anew: its body waits for a sign of who gets it (100 Continue).
//
// A server that stops passes on all that is not about its own threads.

// placement says which server a request belongs to, and reaches the others. A replica is named by its id.
type placement interface {
	// Owner returns the replica that holds the thread, "" when it is this one or none does.
	Owner(ctx context.Context, c sandbox.Caller, thread string) (replica string, err error)
	// Hold is Owner for a request that may start a sandbox: when no replica holds the thread, this one does until
	// done is called, which is nil when replica is not "".
	Hold(ctx context.Context, c sandbox.Caller, thread string) (replica string, done func(), err error)
	// ExecOwner returns the replica that knows an exec, "" when it is this one, or none knows it.
	ExecOwner(ctx context.Context, c sandbox.Caller, thread, exec string) (replica string, err error)
	// Alive reports whether a replica's process is there; Answers whether it serves, too, within a few seconds.
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
	// sourceHeader says, between servers, where a request comes from. From other senders it is ignored.
	sourceHeader = "Skerry-Forwarded-Source"
	// movedHeader says, between servers, that the thread is another one's by now.
	movedHeader = "Skerry-Moved"
	// placeTime bounds the search for a server that answers, stopTime that on a server which stops: what still runs
	// for the thread is ended first. placePause is between two tries. A request is passed on anew for placeTime while
	// its thread moves.
	placeTime  = 5 * time.Second
	stopTime   = 20 * time.Second
	placePause = 100 * time.Millisecond
	// watchPeer is how often a server that is answering is asked whether it is there; a server that does not say so
	// for peerPatience is given up. It may be silent for longer than any one question waits.
	watchPeer    = 3 * time.Second
	peerPatience = 15 * time.Second
)

type fromPeerKey struct{}

// FromPeer makes the handler for the socket of the other servers: what they pass on was checked there for
// Host and Origin, and goes no further.
func FromPeer(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if source := r.Header.Get(sourceHeader); source != "" {
			r.RemoteAddr = net.JoinHostPort(source, "0")
		}
		r.Header.Del(sourceHeader)
		api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), fromPeerKey{}, true)))
	})
}

func fromPeer(r *http.Request) bool { return r.Context().Value(fromPeerKey{}) != nil }

// Server is the server that answers a request.
type Server int

const (
	// AnyServer answers. While this server stops, another one answers what changes something.
	AnyServer Server = iota
	// Owner is the server that runs the thread's sandbox; without one, this server answers.
	Owner
	// Holder is Owner for a request that may start a sandbox: without an owner this server holds the thread while it
	// answers.
	Holder
	// ExecOwner is the server that ran the exec.
	ExecOwner
	// FileReader is AnyServer where all servers see the thread's files. Where its sandbox has copies, it is Owner.
	FileReader
	// FileWriter is AnyServer where all servers see the thread's files. Where its sandbox has copies, it is Holder.
	FileWriter
)

// of resolves FileReader and FileWriter. copies: sandboxes have copies of their threads' files.
func (s Server) of(copies bool) Server {
	switch {
	case s == FileReader && copies:
		return Owner
	case s == FileWriter && copies:
		return Holder
	case s == FileReader, s == FileWriter:
		return AnyServer
	}
	return s
}

// place passes a request on when another server has to answer it.
func (s *server) place(c *gin.Context) {
	if s.o.Placement == nil {
		return
	}
	what := exchangeOf(c.Request.Context()).rule.server.of(s.o.RemoteFiles)
	thread := c.Param("thread")
	if thread == "" {
		thread = c.GetHeader("Skerry-Thread")
	}
	if what != AnyServer && sandbox.CheckThreadID(thread) != nil {
		return // the handler says what is wrong
	}
	for began := time.Now(); time.Since(began) < placeTime; {
		replica, done, err := s.find(c, what, thread)
		switch {
		case err != nil:
			if errors.Is(err, errMoved) {
				c.Header(movedHeader, "1")
			}
			writeProblem(c.Writer, s.problem(c.Request.Context(), notStarted{err}))
			c.Abort()
			return
		case replica != "":
			if s.forward(c, replica) {
				c.Abort()
				return
			}
			time.Sleep(placePause / 10)
		default:
			s.stay(c, done)
			return
		}
	}
	writeProblem(c.Writer, s.problem(c.Request.Context(), notStarted{errMoved}))
	c.Abort()
}

// stay answers the request here. A stream without an end ends when the server stops, so that its thread can go elsewhere.
func (s *server) stay(c *gin.Context, done func()) {
	if done == nil {
		return
	}
	defer done()
	if exchangeOf(c.Request.Context()).rule.endless {
		ctx, cancel := context.WithCancel(c.Request.Context())
		defer cancel()
		defer context.AfterFunc(s.o.Placement.Stopping(), cancel)()
		c.Request = c.Request.WithContext(ctx)
	}
	c.Next()
}

func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// errMoved is the answer to a server that forwarded a request to a former owner of the thread.
var errMoved = sandbox.Errorf(sandbox.Unavailable, "another server took the thread over just now; try again")

// find returns the server that has to answer and does, "" for this one.
func (s *server) find(c *gin.Context, what Server, thread string) (replica string, done func(), err error) {
	bound := placeTime
	if s.o.Placement.Stopping().Err() != nil {
		bound = stopTime
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), bound)
	defer cancel()
	caller := callerOf(ctx)
	for {
		switch what {
		case AnyServer:
			if isRead(c.Request.Method) || sandbox.CheckThreadID(thread) != nil || s.o.Placement.PassOn(ctx) == "" {
				return "", nil, nil
			}
			replica, done, err = s.o.Placement.Hold(ctx, caller, thread)
		case Holder:
			replica, done, err = s.o.Placement.Hold(ctx, caller, thread)
		case ExecOwner:
			exec := c.Param("exec")
			if exec == "" {
				exec = c.Query("exec")
			}
			replica, err = s.o.Placement.ExecOwner(ctx, caller, thread, exec)
		default:
			replica, err = s.o.Placement.Owner(ctx, caller, thread)
		}
		if err != nil || replica == "" {
			return "", done, err
		}
		if fromPeer(c.Request) { // it has moved since it was passed on
			return "", nil, errMoved
		}
		if s.o.Placement.Answers(ctx, replica) {
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

// forward passes the request on, and the answer back. It reports false, and has written nothing, when the replica does
// not have the thread any more: the request can go elsewhere.
func (s *server) forward(c *gin.Context, replica string) (answered bool) {
	answered = true
	x := exchangeOf(c.Request.Context())
	ctx, cancel := context.WithCancelCause(c.Request.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { s.watchPeer(ctx, replica, cancel) })
	body := &unread{ReadCloser: c.Request.Body}
	proxy := &httputil.ReverseProxy{
		Transport: s.o.Placement.Transport(), FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", replica
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it is, also where it is not well formed
			r.Out.Header.Set("X-Request-Id", x.id)
			r.Out.Header.Set(sourceHeader, source(r.In))
			if r.Out.Body != nil {
				r.Out.Header.Set("Expect", "100-continue")
			}
			s.o.Tracer.To(r.In.Context(), r.Out.Header)
		},
		ModifyResponse: func(res *http.Response) error {
			if res.Header.Get(movedHeader) != "" && !body.touched.Load() {
				return errMoved
			}
			res.Header.Del(movedHeader)
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
				s.o.Log.Warn("a request that was passed on got no answer", "request_id", x.id, "replica", replica, "error", err)
			}
			p := newProblem(sandbox.Unavailable, "the server that runs the thread ended, or stopped, before it answered; the request may have been done")
			writeProblem(w, p)
		},
	}
	req := c.Request.WithContext(ctx)
	req.Body = body
	proxy.ServeHTTP(c.Writer, req)
	return answered
}

// unread is the body of a request that may be sent again as long as none of it was read.
type unread struct {
	io.ReadCloser
	touched atomic.Bool
}

func (u *unread) Read(p []byte) (int, error) {
	u.touched.Store(true)
	return u.ReadCloser.Read(p)
}

// unsent reports whether a request that failed has surely done nothing: there was no connection, or nothing asked for
// its body.
func unsent(err error, body *unread) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || body.ReadCloser != http.NoBody && !body.touched.Load()
}

// Close does nothing: the sender of the request closes the body, and the server does when the request is answered.
func (u *unread) Close() error { return nil }

// errPeerGone says that a server which was answering is not there any more.
var errPeerGone = errors.New("the other server does not answer any more")

// watchPeer abandons a server that is silent for too long, or has ended. A connection to a server that was
// stopped stays open for ever.
func (s *server) watchPeer(ctx context.Context, replica string, gone context.CancelCauseFunc) {
	tick := time.NewTicker(watchPeer)
	defer tick.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.o.Placement.Answers(ctx, replica) {
			heard = time.Now()
		} else if time.Since(heard) > peerPatience || !s.o.Placement.Alive(replica) {
			gone(errPeerGone)
			return
		}
	}
}
