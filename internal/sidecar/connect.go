package sidecar

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

const (
	// maxStreams are the sandbox's connections at once: what is not read of one holds 256 kB of memory.
	maxStreams = 320
	// maxOpen is how many may be open at the sidecar's end alone besides.
	maxOpen = 1000
	// socketTime bounds the first message of a stream, and the connection to the socket of the server.
	socketTime = 5 * time.Second
)

// connect makes one connection: TCP, within knock, or what Options.Dial makes; then TLS, hello, yamux.
func (c *Conn) connect(ctx context.Context, knock time.Duration, again bool) (*yamux.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace().Hello)
	defer cancel()
	dial := c.o.Dial
	if dial == nil {
		d := net.Dialer{Timeout: knock}
		dial = func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", c.o.Addr) }
	}
	raw, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	session, err := c.greet(ctx, raw, again)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return session, nil
}

func (c *Conn) greet(ctx context.Context, raw net.Conn, again bool) (*yamux.Session, error) {
	conn := tls.Client(raw, c.o.Authority.DialSandbox(cmp.Or(c.o.Certificate, c.o.ID)))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	c.mu.Lock()
	hello := &wire.Hello{Protocol: wire.Protocol, Attachment: c.name, Token: c.token, Again: again}
	mounts := c.mounts
	c.mu.Unlock()
	welcome, r, err := wire.Greet(ctx, conn, hello)
	if err != nil {
		return nil, err
	}
	if err := fit(mounts, welcome.GetMounts()); err != nil {
		return nil, err
	}
	return wire.Session(conn, r, true, c.pace())
}

// fit compares the mounts of both sides.
func fit(ours []sandbox.Mount, theirs []*wire.Mount) error {
	for _, m := range ours {
		if m.Target == sandbox.RunDir {
			continue
		}
		i := slices.IndexFunc(theirs, func(t *wire.Mount) bool { return t.GetTarget() == m.Target })
		if i < 0 {
			return sandbox.Errorf(sandbox.Invalid, "mount %s: the sandbox's sidecar has none there", m.Target)
		}
		if theirs[i].GetWritable() == m.ReadOnly {
			return sandbox.Errorf(sandbox.Invalid, "mount %s: read-only on one side, and writable on the other", m.Target)
		}
	}
	return nil
}

// serve passes the sandbox's connections on, until the session ends.
func (c *Conn) serve(session *yamux.Session) {
	ctx, cancel := context.WithCancel(c.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer session.Close() //nolint:errcheck // it ends either way
	slots := make(chan struct{}, maxStreams)
	for {
		stream, err := session.AcceptStreamWithContext(ctx)
		if err != nil {
			return
		}
		c.heard.Do(c.o.Heard)
		if session.NumStreams() > maxOpen {
			c.o.Log.Warn("a sidecar does not close its streams", "sandbox", c.o.ID)
			return
		}
		select {
		case slots <- struct{}{}:
			wg.Go(func() {
				defer func() { <-slots }()
				if err := c.pass(ctx, stream); err != nil {
					c.o.Log.Debug("a connection of a sandbox was refused", "sandbox", c.o.ID, "error", err)
				}
			})
		default:
			_ = stream.Close()
		}
	}
}

// pass connects one of them to the socket that it names.
func (c *Conn) pass(ctx context.Context, stream net.Conn) error {
	first, cancel := context.WithTimeout(ctx, socketTime)
	defer cancel()
	s := wire.NewStream(first, stream)
	var m wire.Socket
	if err := s.Receive(&m); err != nil {
		s.Close()
		return err
	}
	socket, err := c.dialSocket(first, m.GetName())
	if err != nil {
		s.Close()
		return err
	}
	raw, r, err := s.Release()
	if err != nil {
		_ = socket.Close()
		s.Close()
		return err
	}
	end := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer end()
	wire.Pipe(raw, r, socket)
	return nil
}

// dialSocket connects to a socket of the server's folder for the sandbox. Its path may be longer than a socket address.
func (c *Conn) dialSocket(ctx context.Context, name string) (*net.UnixConn, error) {
	if !slices.Contains(pod.Sockets, name) {
		return nil, fmt.Errorf("%.100q: no such socket", name)
	}
	c.mu.Lock()
	i := slices.IndexFunc(c.mounts, func(m sandbox.Mount) bool { return m.Target == sandbox.RunDir })
	dir := ""
	if i >= 0 {
		dir = c.mounts[i].Source
	}
	c.mu.Unlock()
	if dir == "" {
		return nil, fmt.Errorf("%s: there is no folder of sockets", name)
	}
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), name))
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// raise tells the sidecar of a higher token.
func raise(ctx context.Context, session *yamux.Session, token int64) error {
	s, err := request(ctx, session, &wire.Request{Do: &wire.Request_Raise{Raise: &wire.Raise{Token: token}}})
	if err != nil {
		return err
	}
	defer s.Close()
	return outcome(s)
}

// Reach has the sidecar try, for a second, to connect to an IP address and port by TCP. It reports whether a
// process there took the connection.
func (c *Conn) Reach(ctx context.Context, address string) (reached bool, err error) {
	release, err := c.lock(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	err = c.call(ctx, func(ctx context.Context, session *yamux.Session) error {
		s, err := request(ctx, session, &wire.Request{Do: &wire.Request_Reach{Reach: &wire.Reach{Address: address}}})
		if err != nil {
			return err
		}
		defer s.Close()
		var m wire.Outcome
		if err := s.Await(&m); err != nil {
			return err
		}
		reached = m.GetReached()
		return m.GetFailure().Err()
	})
	return reached, err
}

// request begins a stream of the server.
func request(ctx context.Context, session *yamux.Session, m *wire.Request) (*wire.Stream, error) {
	stream, err := session.OpenStream()
	if err != nil {
		return nil, err
	}
	s := wire.NewStream(ctx, stream)
	if err := s.Send(m); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func outcome(s *wire.Stream) error {
	var m wire.Outcome
	if err := s.Await(&m); err != nil {
		return err
	}
	return m.GetFailure().Err()
}
