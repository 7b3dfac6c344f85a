package pod

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// Mount is one tree of the sandbox.
type Mount struct {
	Target   string // where the sandbox sees it
	Folder   string // where this process does
	Writable bool   // by the sandbox
	// Kept: it outlives the pod. A file beside the folder says that it was pushed as a whole, also for the next pod.
	Kept bool
}

// Options of Serve.
type Options struct {
	TLS    *tls.Config
	Run    string // the folder of the sockets
	Anchor string // where PID 1 of the sandbox comes, where it does not see that folder's sockets; "": it does
	Mounts []Mount
	Pace   wire.Pace    // of the way to the server; zero: wire.Near
	Log    *slog.Logger // nil = none
}

const (
	// maxHalfOpen are the connections that have not said who they are. The sandbox can make them, too: the oldest goes first.
	maxHalfOpen = 16
	// maxRequests are the streams of a server at once. It asks one after the other.
	maxRequests = 8
	// endTime is what a request that runs has left when the pod ends.
	endTime = 8 * time.Second
	// maxDigests are those of what is read-only; of the rest, the lists have them.
	maxDigests = 10_000
	// reachTime is how long an attempt to leave the pod may take: what is open answers in milliseconds.
	reachTime = time.Second
	// acceptPause is how long a listener rests that cannot accept, as without descriptors.
	acceptPause = 20 * time.Millisecond
)

// Serve serves until ctx ends: then no new server is attached, a request that runs has 8 s to end, and all is closed.
// It closes the listener.
func Serve(ctx context.Context, ln net.Listener, o Options) error {
	defer ln.Close()
	p, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer p.closeSockets()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var wg sync.WaitGroup
	for _, s := range p.sockets {
		wg.Go(func() { p.listen(life, s) })
	}
	if p.anchor != nil {
		wg.Go(func() { p.hold(life) })
	}
	wg.Go(func() { p.accept(life, ln) })
	<-ctx.Done()
	_ = ln.Close()
	select {
	case p.op <- struct{}{}: // nothing runs, and nothing begins any more
	case <-time.After(endTime):
	}
	end()
	p.closeSockets()
	p.mu.Lock()
	current := p.current
	for _, c := range p.halfOpen {
		_ = c.Close()
	}
	p.mu.Unlock()
	if current != nil {
		current.close()
	}
	wg.Wait()
	return nil
}

// sidecar is all of it.
type sidecar struct {
	o       Options
	log     *slog.Logger
	digests tree.Digests
	sockets []*socket
	anchor  *anchor.Listener // nil: there is none
	op      chan struct{}    // who holds it may change or list trees

	// With op only:
	mounts []*mount
	known  string // names the lists of all writable mounts, as a server has them; "": no server has

	mu       sync.Mutex
	state    state
	halfOpen []net.Conn
	current  *attached
	changed  chan struct{} // closed when current is another one
}

// mount is a tree, and what the server has of it.
type mount struct {
	Mount
	list tree.List
}

func (m *mount) only() []string { return Only(m.Target) }

// Only returns the names in the root of a mount that are copied; nil: all. What else the sandbox makes in the folder of a
// thread's files is not copied.
func Only(target string) []string {
	if target != sandbox.UserDataDir {
		return nil
	}
	return []string{path.Base(sandbox.WorkspaceDir), path.Base(sandbox.UploadsDir), path.Base(sandbox.OutputsDir)}
}

func open(ctx context.Context, o Options) (*sidecar, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Pace == (wire.Pace{}) {
		o.Pace = wire.Near
	}
	p := &sidecar{digests: tree.Digests{Max: maxDigests}, o: o, log: o.Log, op: make(chan struct{}, 1), changed: make(chan struct{})}
	for _, m := range o.Mounts {
		if err := check(m); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(p.mounts, func(x *mount) bool { return x.Target == m.Target }) {
			return nil, fmt.Errorf("mount %s: given twice", m.Target)
		}
		t, err := tree.Open(m.Folder, nil)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if err := t.Sweep(ctx); err != nil {
			p.log.Warn("what a former change left could not be removed", "mount", m.Target, "error", err) // the sandbox may see to that
		}
		t.Close()
		p.mounts = append(p.mounts, &mount{Mount: m})
	}
	var err error
	if p.state, err = readState(o.Run); err != nil {
		return nil, err
	}
	if err := p.openSockets(); err != nil {
		return nil, err
	}
	return p, nil
}

func check(m Mount) error {
	if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/" {
		return fmt.Errorf("mount %.200q: want an absolute, clean path inside of the sandbox", m.Target)
	}
	if !filepath.IsAbs(m.Folder) {
		return fmt.Errorf("mount %s: the folder %.200q is not an absolute path", m.Target, m.Folder)
	}
	return nil
}

// accept lets connections in.
func (p *sidecar) accept(ctx context.Context, ln net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
				return
			}
			continue
		}
		p.mu.Lock()
		if len(p.halfOpen) >= maxHalfOpen {
			_ = p.halfOpen[0].Close()
			p.halfOpen = p.halfOpen[1:]
		}
		p.halfOpen = append(p.halfOpen, conn)
		p.mu.Unlock()
		wg.Go(func() { p.serve(ctx, conn) })
	}
}

// serve is one connection, from its first byte to its last.
func (p *sidecar) serve(ctx context.Context, raw net.Conn) {
	defer raw.Close()
	a, err := p.greet(ctx, raw)
	p.mu.Lock()
	p.halfOpen = slices.DeleteFunc(p.halfOpen, func(c net.Conn) bool { return c == raw })
	p.mu.Unlock()
	if err != nil {
		p.log.Warn("a connection was refused", "from", raw.RemoteAddr().String(), "error", err)
		return
	}
	p.log.Info("a server is attached", "from", raw.RemoteAddr().String(), "attachment", a.name)
	a.run(ctx)
	p.mu.Lock()
	if p.current == a {
		p.current = nil
	}
	p.mu.Unlock()
	p.log.Info("a server is detached", "attachment", a.name)
}

// greet does the handshake, and attaches.
func (p *sidecar) greet(ctx context.Context, raw net.Conn) (*attached, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Pace.Hello)
	defer cancel()
	conn := tls.Server(raw, p.o.TLS)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	s := wire.NewStream(ctx, conn)
	var hello wire.Hello
	if err := s.Receive(&hello); err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	welcome := &wire.Welcome{Protocol: wire.Protocol}
	for _, m := range p.o.Mounts {
		welcome.Mounts = append(welcome.Mounts, &wire.Mount{Target: m.Target, Writable: m.Writable})
	}
	a := &attached{p: p, name: hello.GetAttachment(), done: make(chan struct{})}
	old, err := p.admit(&hello, a)
	if err != nil {
		welcome.Failure = wire.Fail(err)
		return nil, errors.Join(err, s.Send(welcome))
	}
	if err := p.take(ctx, s, conn, a, old, welcome); err != nil {
		close(a.done)
		return nil, err
	}
	return a, nil
}

// take ends the attachment before, and begins this one.
func (p *sidecar) take(ctx context.Context, s *wire.Stream, conn net.Conn, a, old *attached, welcome *wire.Welcome) error {
	if old != nil {
		old.close()
		select {
		case <-old.done:
		case <-ctx.Done():
			return errors.New("the attachment before does not end")
		}
	}
	if err := s.Send(welcome); err != nil {
		return err
	}
	_, r, err := s.Release()
	if err != nil {
		return err
	}
	session, err := wire.Session(conn, r, false, p.o.Pace)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = session.Close()
		return errors.New("another server was attached meanwhile")
	}
	a.session = session
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// admit decides by the tokens. The attachment is current from then on, though it has no session yet.
func (p *sidecar) admit(hello *wire.Hello, a *attached) (old *attached, err error) {
	if hello.GetProtocol() != wire.Protocol {
		return nil, sandbox.Errorf(sandbox.NotSupported, "the server speaks protocol %d, this sidecar %d", hello.GetProtocol(), wire.Protocol)
	}
	if err := wire.CheckHello(hello); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "hello: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	other := p.state.Attachment != hello.GetAttachment()
	if hello.GetToken() < p.state.Token {
		return nil, sandbox.Errorf(sandbox.Conflict, "token %d: it was attached with %d", hello.GetToken(), p.state.Token)
	}
	// A displaced server must not displace in turn when it only wants its connection back.
	if hello.GetAgain() && other && p.state.Attachment != "" && hello.GetToken() == p.state.Token {
		return nil, sandbox.Errorf(sandbox.Conflict, "another server is attached")
	}
	next := p.state
	next.Token, next.Attachment = hello.GetToken(), hello.GetAttachment()
	if err := p.keep(next); err != nil {
		return nil, err
	}
	old, p.current = p.current, a
	return old, nil
}

// raise takes a higher token of the attached server.
func (p *sidecar) raise(a *attached, token int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != a || token < p.state.Token {
		return sandbox.Errorf(sandbox.Conflict, "token %d: it was attached with %d", token, p.state.Token)
	}
	next := p.state
	next.Token = token
	return p.keep(next)
}

// keep writes the state down before it is in force. The caller holds mu.
func (p *sidecar) keep(next state) error {
	if err := next.write(p.o.Run); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	p.state = next
	return nil
}

// attached is a server's connection.
type attached struct {
	p    *sidecar
	name string
	done chan struct{} // nothing of it runs any more

	mu      sync.Mutex
	session *yamux.Session
	closed  bool
}

func (a *attached) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.session != nil {
		_ = a.session.Close()
	}
}

// run takes requests until the session ends.
func (a *attached) run(ctx context.Context) {
	defer close(a.done)
	defer a.close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	slots := make(chan struct{}, maxRequests)
	for {
		stream, err := a.session.AcceptStreamWithContext(ctx)
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
			wg.Go(func() {
				defer func() { <-slots }()
				a.request(ctx, stream)
			})
		default:
			_ = stream.Close()
		}
	}
}

// request answers one stream of the server.
func (a *attached) request(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := wire.NewStream(ctx, conn)
	defer s.Close()
	var m wire.Request
	if err := s.Receive(&m); err != nil {
		return
	}
	select {
	case a.p.op <- struct{}{}:
		defer func() { <-a.p.op }()
	case <-ctx.Done():
		return
	}
	var err error
	switch do := m.GetDo().(type) {
	case *wire.Request_Push:
		err = a.p.push(ctx, s, do.Push)
	case *wire.Request_Pull:
		err = a.p.pull(ctx, s, do.Pull)
	case *wire.Request_Raise:
		err = a.p.raise(a, do.Raise.GetToken())
		if err == nil {
			err = s.Send(&wire.Outcome{})
		}
	case *wire.Request_Reach:
		err = s.Send(&wire.Outcome{Reached: reach(ctx, do.Reach.GetAddress())})
	default:
		err = sandbox.Errorf(sandbox.NotSupported, "no such request")
	}
	if err != nil {
		a.p.log.Warn("a request failed", "error", err)
		_ = s.Send(&wire.Outcome{Failure: wire.Fail(err)}) // it may be the connection that failed
	}
}

// reach tries whether a connection leaves the pod, as code of the sandbox would, which has the same network.
func reach(ctx context.Context, address string) bool {
	d := net.Dialer{Timeout: reachTime}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
