package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/platform/ownedsocket"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

const (
	// attachWait is how long a connection waits for a server. Then it is closed; who made it tries again.
	attachWait = 5 * time.Second
	// maxConns are the connections to one socket at once: sandboxd makes few to those of its own.
	maxConns = 128
	// healthSocket answers as long as the sidecar serves, and says nothing.
	healthSocket = "health.sock"
	probeTime    = 2 * time.Second
	// awaitPause is how soon Await asks again.
	awaitPause = 10 * time.Millisecond
)

// Sockets are those of the run folder that lead to the server.
var Sockets = []string{path.Base(sandbox.ControlSocket), path.Base(sandbox.BridgeSocket), path.Base(sandbox.StdioSocket), path.Base(sandbox.EgressSocket)}

type socket struct {
	name string
	ln   *net.UnixListener
}

func (p *sidecar) openSockets() error {
	for _, name := range append([]string{healthSocket}, Sockets...) {
		ln, err := ownedsocket.Listen(p.o.Run, name, 0)
		if err != nil {
			p.closeSockets()
			return fmt.Errorf("socket %s: %w", name, err)
		}
		p.sockets = append(p.sockets, &socket{name: name, ln: ln})
	}
	if p.o.Anchor == "" || p.state.Anchored {
		return nil
	}
	var err error
	if p.anchor, err = anchor.Listen(p.o.Anchor); err != nil {
		p.closeSockets()
		return fmt.Errorf("anchor: %w", err)
	}
	return nil
}

func (p *sidecar) closeSockets() {
	for _, s := range p.sockets {
		_ = s.ln.Close()
	}
	if p.anchor != nil {
		_ = p.anchor.Close()
	}
}

// listen takes the sandbox's connections to one socket, until it is closed and all of them have ended.
func (p *sidecar) listen(ctx context.Context, s *socket) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxConns)
	for {
		conn, err := s.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
				return
			}
			continue
		}
		if s.name == healthSocket {
			_, _ = conn.Write([]byte("ok")) // it has a buffer
			_ = conn.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
			wg.Go(func() {
				defer func() { <-slots }()
				p.pass(ctx, s.name, conn)
			})
		default:
			_ = conn.Close()
		}
	}
}

// hold passes on what PID 1 of the sandbox hands over, until that one, or this process, has ended.
func (p *sidecar) hold(ctx context.Context) {
	held, err := p.anchor.Accept(p.anchored)
	if err != nil {
		if !errors.Is(err, net.ErrClosed) {
			p.log.Error("the sandbox has no way to the server", "error", err)
		}
		return
	}
	defer held.Close()
	defer context.AfterFunc(ctx, held.Close)()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := map[string]chan struct{}{}
	for _, name := range Sockets {
		slots[name] = make(chan struct{}, maxConns)
	}
	for {
		name, conn, err := held.Next()
		if err != nil {
			return
		}
		select {
		case slots[name] <- struct{}{}: // never, of a name that is none
			wg.Go(func() {
				defer func() { <-slots[name] }()
				p.pass(ctx, name, conn)
			})
		default:
			_ = conn.Close()
		}
	}
}

// anchored remembers that PID 1 has come.
func (p *sidecar) anchored() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.state
	next.Anchored = true
	return p.keep(next)
}

// pass hands one connection to the attached server, or waits for one.
func (p *sidecar) pass(ctx context.Context, name string, conn *net.UnixConn) {
	defer conn.Close()
	stream, err := p.stream(ctx)
	if err != nil {
		return
	}
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	s := wire.NewStream(ctx, stream)
	if err := s.Send(&wire.Socket{Name: name}); err != nil {
		s.Close()
		return
	}
	raw, r, err := s.Release()
	if err != nil {
		_ = stream.Close()
		return
	}
	wire.Pipe(raw, r, conn)
}

// stream opens one to the server, within attachWait.
func (p *sidecar) stream(ctx context.Context) (*yamux.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	for {
		p.mu.Lock()
		a, changed := p.current, p.changed
		p.mu.Unlock()
		if a != nil {
			a.mu.Lock()
			session := a.session
			a.mu.Unlock()
			if session != nil {
				if s, err := session.OpenStream(); err == nil {
					return s, nil
				}
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Probe asks the sidecar of a run folder whether it serves.
func Probe(ctx context.Context, run string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(run, healthSocket))
	if err != nil {
		return err
	}
	defer conn.Close()
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			return err
		}
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 3))
	if err != nil {
		return err
	}
	if string(answer) != "ok" {
		return fmt.Errorf("%s: no answer", filepath.Join(run, healthSocket))
	}
	return nil
}

// Await waits until a sidecar serves in a run folder, or ctx ends.
func Await(ctx context.Context, run string) error {
	for {
		err := Probe(ctx, run)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(awaitPause):
		case <-ctx.Done():
			return fmt.Errorf("no sidecar serves: %w", err)
		}
	}
}

// CopyDaemon puts a copy of a program into a folder, in one step, to be run by any user.
func CopyDaemon(program, dir string) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, "."+filepath.Base(program)+"-")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Chmod(0o555) // not synced: after a crash of the node there is no pod that would need it
	}
	if e := to.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(to.Name(), filepath.Join(dir, filepath.Base(program)))
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}
