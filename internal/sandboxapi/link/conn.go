package link

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	maxHeaderBytes = 32 << 10
	maxFrameBytes  = 128 << 10
	// A stream that is not read holds at most streamWindow bytes of the server's memory, a
	// connection at most connWindow: the sandbox decides how much it sends.
	streamWindow = 256 << 10
	connWindow   = 64 << 20
	// While there are calls, a peer that is stopped is noticed after pingAfter + pingWait. A peer that is not called is not
	// asked: with thousands of idle sandboxes the questions would be most of what the machine does. When its process
	// ends the kernel says so.
	pingAfter = 500 * time.Millisecond
	pingWait  = 1500 * time.Millisecond
)

// Conn is one authenticated connection to a sandbox. It is a connect.HTTPClient: the scheme and host
// of a request's URL do not matter. Its methods may be called concurrently.
type Conn struct {
	cc      *http2.ClientConn
	watched *watchedConn
	version string

	settled sync.Once // the peer has said how many calls it takes

	mu    sync.Mutex
	calls int         // whose answer is not read to its end
	ping  *time.Timer // nil before the first call
}

// unsettledCalls are as many calls as a peer surely takes that has not said yet how many: HTTP/2 assumes 100.
const unsettledCalls = 50

// newConn begins HTTP/2 on a connection whose handshake is done.
func newConn(raw net.Conn, version string) (*Conn, error) {
	t1 := &http.Transport{
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              maxFrameBytes,
			MaxReceiveBufferPerConnection: connWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			WriteByteTimeout:              pingAfter + pingWait,
		},
	}
	t2, err := http2.ConfigureTransports(t1)
	if err != nil {
		return nil, err
	}
	t2.AllowHTTP = true
	w := &watchedConn{Conn: raw, done: make(chan struct{})}
	cc, err := t2.NewClientConn(w)
	if err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("link: HTTP/2: %w", err)
	}
	return &Conn{cc: cc, watched: w, version: version}, nil
}

// Do sends a request. When it fails because the connection is lost, Done is closed. The caller closes the answer's body.
func (c *Conn) Do(req *http.Request) (*http.Response, error) {
	if c.begin() > unsettledCalls {
		// An answer to a ping comes behind what the peer says first. A ping that fails is a lost connection, as the call
		// will tell.
		c.settled.Do(func() { _ = c.cc.Ping(req.Context()) })
	}
	res, err := c.cc.RoundTrip(req)
	if err != nil {
		c.end()
		return nil, err
	}
	res.Body = &callBody{ReadCloser: res.Body, end: sync.OnceFunc(c.end)}
	return res, nil
}

// begin counts a call in and returns their number; with the first one the peer is asked whether it is there.
func (c *Conn) begin() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.calls > 1 {
		return c.calls
	}
	if c.ping == nil {
		c.ping = time.AfterFunc(pingAfter, c.check)
	} else {
		c.ping.Reset(pingAfter)
	}
	return 1
}

func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls--; c.calls == 0 {
		c.ping.Stop()
	}
}

// check asks the peer, and closes the connection when it does not answer.
func (c *Conn) check() {
	ctx, cancel := context.WithTimeout(context.Background(), pingWait)
	defer cancel()
	if err := c.cc.Ping(ctx); err != nil {
		c.Close()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls > 0 {
		c.ping.Reset(pingAfter)
	}
}

// callBody is an answer; the call has ended when it is read to its end, or closed.
type callBody struct {
	io.ReadCloser
	end func()
}

func (b *callBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *callBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

// Done is closed when the connection is lost or closed.
func (c *Conn) Done() <-chan struct{} { return c.watched.done }

// Version is what sandboxd calls its version: at most 128 bytes, and its own word only.
func (c *Conn) Version() string { return c.version }

// Close closes the connection; calls that run on it fail. Closing twice does nothing.
func (c *Conn) Close() {
	_ = c.watched.Close()
	_ = c.cc.Close()
}

// watchedConn tells when the connection is over: closed by us, or by a failed read, which the HTTP/2
// read loop always has one of under way.
type watchedConn struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.once.Do(func() { close(w.done) })
	}
	return n, err
}

func (w *watchedConn) Close() error {
	err := w.Conn.Close()
	w.once.Do(func() { close(w.done) })
	return err
}
