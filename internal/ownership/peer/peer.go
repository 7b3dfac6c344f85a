// Package peer is how the servers of one data folder ask each other something: HTTP on the socket of each (package
// replica), which only root may open, and over a network by TLS, where only replicas may connect. What a
// server is asked about itself is answered here; requests of clients that another server passes on go to the API.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// Prefix begins the paths that are not the API's.
	Prefix = "/peer/"

	// askTimeout bounds a question: it takes less than a millisecond, and seconds on a machine that is busy
	// beyond reason. A replica that does not answer for longer is of no use for a request, either.
	askTimeout  = 3 * time.Second
	idleTimeout = 30 * time.Second
	headTimeout = 10 * time.Second
	maxHeader   = 64 << 10
	// maxAnswer bounds what another server says of itself.
	maxAnswer = 1 << 20
	// maxIdle is how many connections to each server are kept.
	maxIdle = 64
)

// Peers is this server among the others. Its methods may be called concurrently.
type Peers struct {
	*replica.Replica
	network   *Network                // nil: only servers of this machine are reached
	parts     map[string]http.Handler // what other parts answer, by the beginning of their paths
	transport *http.Transport
}

// New makes Peers. Without a network all servers are on one machine. The caller closes it, and then leaves the
// replica.
func New(r *replica.Replica, n *Network) *Peers {
	p := &Peers{Replica: r, network: n, parts: map[string]http.Handler{}}
	p.transport = &http.Transport{
		// The host of a URL is the id of a replica: a connection is never used for another one.
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			id, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			return p.dial(ctx, id)
		},
		// A server that the request does not belong to says so before the body is sent.
		ExpectContinueTimeout: askTimeout,
		DisableCompression:    true, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: maxHeader, WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10,
	}
	return p
}

// dial connects to a replica: over the network when both are on it, else by its socket.
func (p *Peers) dial(ctx context.Context, id string) (net.Conn, error) {
	at, err := p.Find(id)
	if err != nil {
		return nil, noConnection(err)
	}
	if p.network != nil && at.Peer != "" {
		return p.network.dial(ctx, at)
	}
	return p.Dial(ctx, id)
}

// Close closes idle connections.
func (p *Peers) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// Transport sends a request to the replica that the host of its URL names.
func (p *Peers) Transport() http.RoundTripper { return addressed{p.transport} }

// Answers reports whether a replica serves now. It waits for three seconds at most.
func (p *Peers) Answers(ctx context.Context, id string) bool {
	return p.ask(ctx, id, "alive", nil) == nil
}

// TakesWork reports whether a replica serves now and is not stopping. It waits for three seconds at most.
func (p *Peers) TakesWork(ctx context.Context, id string) bool {
	return p.ask(ctx, id, "open", nil) == nil
}

// Others are the ids of the other replicas whose processes are there.
func (p *Peers) Others() ([]string, error) {
	all, err := p.Peers()
	ids := make([]string, 0, len(all))
	for _, i := range all {
		ids = append(ids, i.ID)
	}
	return ids, err
}

// FindExec returns the replica that knows an exec of a thread: first is asked first, if it is not "". It
// returns "" when no answering replica does; sure says that all answered.
func (p *Peers) FindExec(ctx context.Context, t sandbox.Thread, exec, first string) (id string, sure bool) {
	q := url.Values{"tenant": {t.Tenant}, "user": {t.User}, "thread": {t.ID}, "exec": {exec}}
	others, err := p.Peers()
	if err != nil {
		return "", false
	}
	slices.SortStableFunc(others, func(a, b replica.Info) int {
		switch first {
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return 0
	})
	sure = true
	for _, o := range others {
		err := p.ask(ctx, o.ID, "exec", q)
		if err == nil {
			return o.ID, true
		}
		sure = sure && (errors.Is(err, errNo) || errors.Is(err, replica.ErrGone))
	}
	return "", sure
}

// errNo is the answer of a replica that does not have what it was asked for.
var errNo = errors.New("no")

func (p *Peers) ask(ctx context.Context, id, what string, q url.Values) error {
	return ask(ctx, p.Transport(), id, what, q)
}

func ask(ctx context.Context, t http.RoundTripper, id, what string, q url.Values) error {
	status, _, err := get(ctx, t, id, what, q, 1024)
	if err == nil && status != http.StatusNoContent {
		err = errNo
	}
	return err
}

// Read returns what a replica answers to a question of another part, see Handle. It waits for three seconds at most.
func (p *Peers) Read(ctx context.Context, id, what string) ([]byte, error) {
	status, body, err := get(ctx, p.Transport(), id, what, nil, maxAnswer)
	if err == nil && status != http.StatusOK {
		err = errNo
	}
	return body, err
}

func get(ctx context.Context, t http.RoundTripper, id, what string, q url.Values, most int64) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	at := url.URL{Scheme: "http", Host: id, Path: Prefix + what, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return 0, nil, err
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, most))
	return res.StatusCode, body, errors.Join(err, res.Body.Close())
}

// Server is what the others ask a server about itself.
type Server interface {
	// HasExec reports whether it knows an exec.
	HasExec(t sandbox.Thread, exec string) bool
	// Draining reports whether it is stopping, and takes no new work.
	Draining() bool
}

// Handle has h answer what other servers ask at paths that begin with path, which begins with Prefix. Call it before Serve.
func (p *Peers) Handle(path string, h http.Handler) { p.parts[path] = h }

// Serve answers the other servers until ctx ends: questions from here, all else from api, which ends its
// own answers then.
func (p *Peers) Serve(ctx context.Context, api http.Handler, me Server, log *slog.Logger) (stop func(context.Context) error, err error) {
	ln, err := p.Listen()
	if err != nil {
		return nil, fmt.Errorf("socket for the other servers: %w", err)
	}
	listeners := []net.Listener{ln}
	if p.network != nil {
		far, err := p.network.listen()
		if err == nil {
			listeners = append(listeners, far)
			err = p.Announce(far.Addr().String())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("peer_listen: %w", err), closeAll(listeners))
		}
	}
	mux := http.NewServeMux()
	yes := func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
	mux.HandleFunc("GET "+Prefix+"alive", func(w http.ResponseWriter, _ *http.Request) { yes(w) })
	mux.HandleFunc("GET "+Prefix+"open", func(w http.ResponseWriter, r *http.Request) {
		if me.Draining() {
			http.NotFound(w, r)
			return
		}
		yes(w)
	})
	mux.HandleFunc("GET "+Prefix+"exec", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		t := sandbox.Thread{Owner: sandbox.Owner{Tenant: q.Get("tenant"), User: q.Get("user")}, ID: q.Get("thread")}
		if !me.HasExec(t, q.Get("exec")) {
			http.NotFound(w, r)
			return
		}
		yes(w)
	})
	for path, h := range p.parts {
		mux.Handle(path, h)
	}
	mux.HandleFunc(Prefix, http.NotFound)
	// Not through the mux, which cleans paths.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.Path) >= len(Prefix) && r.URL.Path[:len(Prefix)] == Prefix {
			mux.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
	srv := &http.Server{
		Handler: p.only(handler), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headTimeout, IdleTimeout: 2 * idleTimeout, MaxHeaderBytes: 2 * maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, len(listeners))
	for _, ln := range listeners {
		go func() { ended <- srv.Serve(ln) }()
	}
	return func(ctx context.Context) error {
		err := srv.Shutdown(ctx)
		if err != nil {
			err = srv.Close()
		}
		for range listeners {
			if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
				err = errors.Join(err, e)
			}
		}
		return err
	}, nil
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, ln := range listeners {
		errs = append(errs, ln.Close())
	}
	return errors.Join(errs...)
}
