package remote

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/nest"
)

const (
	// maxPiece is what one request carries, of pieces that came while the one before was under way.
	maxPiece  = 256 << 10
	pieceSize = 32 << 10
	// maxEcho is what may come before the stream begins.
	maxEcho = 4 << 10
	// killTimeout bounds the end of a relay; it ends without, later.
	killTimeout = 5 * time.Second
)

// relay connects with the sidecar of a sandbox: by a process that passes on what it is sent to its terminal, and
// prints what comes back. A terminal's output has no limit at any service, and its bytes come as they are printed.
func (d *Driver) relay(ctx context.Context, e *envd) (net.Conn, error) {
	life, cancel := context.WithCancel(d.closing)
	size := &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	pid, s, err := e.start(ctx, life, &process.StartRequest{Process: shell(relayCommand), Pty: size})
	if err != nil {
		cancel()
		return nil, err
	}
	near, far := net.Pipe()
	c := &relayed{Conn: near, cancel: cancel}
	end := sync.OnceFunc(func() {
		s.close()
		_ = far.Close()
		own, stop := context.WithTimeout(context.WithoutCancel(d.closing), killTimeout)
		defer stop()
		_ = e.kill(own, pid) // it has ended already, or ends when the sidecar misses its server
	})
	ready := make(chan error, 1)
	d.running.Go(func() {
		defer end()
		defer cancel()
		if err := s.await(); err != nil {
			ready <- err
			return
		}
		ready <- nil
		d.running.Go(func() {
			defer cancel()
			send(life, far, func(p []byte) error { return e.send(life, pid, p) })
		})
		receive(s, far)
	})
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the sandbox's sidecar cannot be reached")
	}
	return c, nil
}

// relayed is our end.
type relayed struct {
	net.Conn
	cancel context.CancelFunc
}

// Close ends the process, too.
func (c *relayed) Close() error {
	err := c.Conn.Close()
	c.cancel()
	return err
}

// await waits until the relay says that it begins.
func (s *stream) await() error {
	var seen []byte
	for len(seen) <= maxEcho {
		e, err := s.next()
		if err != nil {
			return err
		}
		if end := e.GetEnd(); end != nil {
			return errors.New("the relay ended: " + string(seen))
		}
		seen = append(seen, e.GetData().GetPty()...)
		if bytes.HasSuffix(seen, []byte(nest.Ready)) { // the sidecar waits for our first byte
			return nil
		}
	}
	return errors.New("what came from the relay is not its stream")
}

// receive passes on what the process prints.
func receive(s *stream, to net.Conn) {
	for {
		e, err := s.next()
		if err != nil || e.GetEnd() != nil {
			return
		}
		if data := e.GetData().GetPty(); len(data) > 0 {
			if _, err := to.Write(data); err != nil {
				return
			}
		}
	}
}

// send sends what comes, in order, and what came meanwhile in one piece.
func send(ctx context.Context, from net.Conn, send func([]byte) error) {
	pieces := make(chan []byte, maxPiece/pieceSize)
	go func() {
		defer close(pieces)
		for {
			p := make([]byte, pieceSize)
			n, err := from.Read(p)
			if n > 0 {
				select {
				case pieces <- p[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		for more := true; more && len(p) < maxPiece; {
			select {
			case next, ok := <-pieces:
				p, more = append(p, next...), ok
			default:
				more = false
			}
		}
		if send(p) != nil {
			return
		}
	}
}
