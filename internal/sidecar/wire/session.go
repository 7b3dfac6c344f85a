package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// openTime is how long a stream may be opened without being accepted.
	openTime = 10 * time.Second
	// closeTime is how long a stream that was closed here may stay open there. Then it is reset, and what was not yet read is lost:
	// it must be longer than any live reader takes.
	closeTime = 2 * time.Minute
)

// Pace says how fast the way between the two sides is. Both sides take the same.
type Pace struct {
	// A side that is dead, or behind a network that is, is noticed after KeepAlive + Write.
	KeepAlive, Write time.Duration
	// Hello bounds the handshake of TLS, Hello and Welcome together.
	Hello time.Duration
}

var (
	// Near is the pace of one network.
	Near = Pace{KeepAlive: 2 * time.Second, Write: 4 * time.Second, Hello: 5 * time.Second}
	// Far is the pace of a way over another service, each write of which is a request.
	Far = Pace{KeepAlive: 15 * time.Second, Write: 30 * time.Second, Hello: 30 * time.Second}
)

// Session divides a connection into streams. Either side opens them. r is what reads from conn.
func Session(conn net.Conn, r *bufio.Reader, client bool, pace Pace) (*yamux.Session, error) {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = pace.KeepAlive, pace.Write
	c.StreamOpenTimeout, c.StreamCloseTimeout = openTime, closeTime
	c.LogOutput = io.Discard // why a session ended is in its errors
	var rw net.Conn = conn
	if r != nil {
		rw = &buffered{Conn: conn, r: r}
	}
	if client {
		return yamux.Client(rw, c)
	}
	return yamux.Server(rw, c)
}

// buffered is a connection of which some bytes were read already.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// CheckHello says what is wrong with a hello, whatever its protocol.
func CheckHello(m *Hello) error {
	if n := len(m.GetAttachment()); n < 16 || n > 64 {
		return fmt.Errorf("an attachment's name of %d bytes, want 16 to 64", n)
	}
	if m.GetToken() < 0 {
		return fmt.Errorf("token %d, want 0 or more", m.GetToken())
	}
	return nil
}

// Greet says hello, and returns the welcome. The connection's stream is released.
func Greet(ctx context.Context, conn net.Conn, hello *Hello) (*Welcome, *bufio.Reader, error) {
	s := NewStream(ctx, conn)
	if err := s.Send(hello); err != nil {
		return nil, nil, err
	}
	var w Welcome
	if err := s.Receive(&w); err != nil {
		return nil, nil, err
	}
	if err := w.GetFailure().Err(); err != nil {
		return nil, nil, err
	}
	if w.GetProtocol() != Protocol {
		return nil, nil, fmt.Errorf("the sidecar speaks protocol %d, this server %d", w.GetProtocol(), Protocol)
	}
	if len(w.GetMounts()) > maxMounts {
		return nil, nil, errors.New("more mounts than there can be")
	}
	_, r, err := s.Release()
	return &w, r, err
}
