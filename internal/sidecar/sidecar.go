package sidecar

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// Port is where the sidecar of a pod listens, unless it is told otherwise.
const Port = 7443

const (
	// dialTime bounds the first connection, waitTime the wait of a call for a lost one.
	dialTime = 30 * time.Second
	waitTime = 15 * time.Second
	// knockFirst is what the first attempt to connect has for TCP alone; it doubles. Network plugins let a new pod in late, and
	// what came before they drop: TCP itself would try again after a second.
	knockFirst = 100 * time.Millisecond
	// Between two attempts to connect.
	pauseFirst = 20 * time.Millisecond
	pauseMost  = 2 * time.Second
	// callTries is how often a call begins again that lost its connection.
	callTries = 3
)

// Options of Dial.
type Options struct {
	// Addr is the sidecar's, as host:port.
	Addr string
	// Dial makes a connection to the sidecar where there is no Addr. It may take as long as wire.Far says.
	Dial func(ctx context.Context) (net.Conn, error)
	ID   sandbox.ID
	// Certificate is the name in the certificate that the sidecar shows; "" = ID.
	Certificate sandbox.ID
	// Token is the fencing token of the lease; 0: for no thread yet.
	Token     int64
	Authority *pki.Authority
	// Mounts are those of the Spec. The Source of the one at sandbox.RunDir holds the sockets that the sandbox's connections
	// lead to; all others are copied. Each Target must be one of the sidecar's.
	Mounts []sandbox.Mount
	// Limits bound what Pull copies: DiskBytes for all files of a mount together, FileBytes for each. Both must be set.
	Limits sandbox.Limits
	// UID is the owner, and the group, of what Pull makes; 0 leaves it to this process's own.
	UID int
	// Digests remembers the digests of files between calls and connections; nil: one of its own.
	Digests *Digests
	// Heard is called when the sandbox makes its first connection, which none does before its PID 1 runs. Nil: it is told to none.
	Heard func()
	Log   *slog.Logger // nil = none
}

func (o *Options) check() error {
	switch {
	case o.Addr == "" && o.Dial == nil || o.ID == "" || o.Authority == nil:
		return sandbox.Errorf(sandbox.Invalid, "an attachment needs an address, an id and an authority")
	case o.Token < 0:
		return sandbox.Errorf(sandbox.Invalid, "token %d: want 0 or more", o.Token)
	case o.Limits.DiskBytes <= 0 || o.Limits.FileBytes <= 0:
		return sandbox.Errorf(sandbox.Invalid, "limits: disk_bytes and file_bytes must be more than 0")
	}
	if o.Digests == nil {
		o.Digests = NewDigests()
	}
	if o.Heard == nil {
		o.Heard = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return checkMounts(o.Mounts)
}

func checkMounts(mounts []sandbox.Mount) error {
	for i, m := range mounts {
		if m.Source == "" || !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target {
			return sandbox.Errorf(sandbox.Invalid, "mount %.200q: want a source, and an absolute and clean target", m.Target)
		}
		if slices.ContainsFunc(mounts[:i], func(x sandbox.Mount) bool { return x.Target == m.Target }) {
			return sandbox.Errorf(sandbox.Invalid, "mount %.200q: given twice", m.Target)
		}
	}
	return nil
}

// Digests remembers the SHA-256 of files by their device, inode, size and times. It is safe for concurrent use, and
// meant to be shared by all connections of a process.
type Digests = tree.Digests

// NewDigests makes an empty one.
func NewDigests() *Digests { return &Digests{} }

// Dial attaches this process to a sandbox, as driver.Remote means it: it returns when the sidecar has accepted it, and
// other attachments have ended. It waits for a sidecar that does not answer until ctx ends, 30 s at most.
//
// Errors: Conflict: it was attached with a higher token; Unavailable: it cannot be reached; Invalid: the options are
// wrong, or do not fit the sidecar's mounts.
//
// From then on Dial keeps the connection up. When it is lost, Dial makes it again, with pauses that grow to
// 2 s. It stops at Close, or when the sidecar says that another process is attached. The caller closes it
// when the pod is gone.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c := &Conn{
		o: o, name: rand.Text(), mounts: slices.Clone(o.Mounts), token: o.Token, uid: o.UID,
		op: make(chan struct{}, 1), changed: make(chan struct{}), done: make(chan struct{}), copied: map[string]copied{},
	}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	session, err := c.reach(ctx, false)
	if err != nil {
		c.cancel()
		return nil, err
	}
	c.wg.Go(func() { c.keep(session) })
	return c, nil
}

// Conn is an attachment. Its methods may be called concurrently; calls of Push, Pull and Remount wait for each other.
// While the connection is lost they wait for it until ctx ends, 15 s at most: Unavailable. After Close they say
// Unavailable, after another process was attached Conflict.
type Conn struct {
	o      Options
	name   string // of the attachment
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   chan struct{}
	op     chan struct{} // who holds it may use what follows

	heard sync.Once // tells o.Heard

	copied map[string]copied // of each mount, what the sandbox and its Source have in common
	since  []byte            // names that of all writable mounts at the sandbox
	uid    int               // owner of what Pull makes

	mu      sync.Mutex
	mounts  []sandbox.Mount
	token   int64
	session *yamux.Session // nil while there is none
	changed chan struct{}  // closed when session is another one
	err     error
}

// pace is that of the way to the sidecar.
func (c *Conn) pace() wire.Pace {
	if c.o.Dial != nil {
		return wire.Far
	}
	return wire.Near
}

// reach connects until it succeeds, ctx ends or there is no sense in it.
func (c *Conn) reach(ctx context.Context, again bool) (*yamux.Session, error) {
	var last error
	pauses := retry.Doubling(pauseFirst, pauseMost)
	for knock := knockFirst; ; knock = min(2*knock, c.pace().Hello) {
		session, err := c.connect(ctx, knock, again)
		if err == nil {
			return session, nil
		}
		if errors.Is(err, sandbox.Conflict) || errors.Is(err, sandbox.Invalid) || errors.Is(err, sandbox.NotSupported) {
			return nil, err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return nil, sandbox.Wrap(sandbox.Unavailable, last, "the sandbox cannot be reached")
		}
	}
}

// keep holds the connection up.
func (c *Conn) keep(session *yamux.Session) {
	defer close(c.done)
	for {
		c.mu.Lock()
		c.session = session
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		c.serve(session)
		c.mu.Lock()
		c.session = nil
		c.mu.Unlock()
		if c.ctx.Err() != nil {
			return
		}
		c.o.Log.Warn("the connection to a sandbox is lost", "sandbox", c.o.ID)
		var err error
		if session, err = c.reach(c.ctx, true); err != nil {
			c.mu.Lock()
			if c.ctx.Err() == nil {
				c.err = err
			}
			c.mu.Unlock()
			c.cancel()
			return
		}
		c.o.Log.Info("the connection to a sandbox is back", "sandbox", c.o.ID)
	}
}

// live waits for the connection.
func (c *Conn) live(ctx context.Context) (*yamux.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	for {
		c.mu.Lock()
		session, changed, err := c.session, c.changed, c.err
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if session != nil && !session.IsClosed() {
			return session, nil
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			if err := c.Err(); err != nil {
				return nil, err
			}
			return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox is detached")
		case <-ctx.Done():
			return nil, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the connection to the sandbox is lost")
		}
	}
}

// lock waits until no other copy runs, or ctx ends.
func (c *Conn) lock(ctx context.Context) (release func(), err error) {
	select {
	case c.op <- struct{}{}:
		return func() { <-c.op }, nil
	case <-ctx.Done():
		return nil, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "another copy to or from the sandbox goes on")
	}
}

// Remount takes other mounts, another owner of what Pull makes, and another token that is not lower, from now on. It copies
// nothing. Conflict: the token is lower than the highest that the sidecar has seen.
func (c *Conn) Remount(ctx context.Context, token int64, mounts []sandbox.Mount, uid int) error {
	if err := checkMounts(mounts); err != nil {
		return err
	}
	release, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	c.mu.Lock()
	now := c.token
	c.mu.Unlock()
	if token < now {
		return sandbox.Errorf(sandbox.Conflict, "token %d: it is attached with %d", token, now)
	}
	if token > now {
		// From here on a lost connection comes back with the new one, whether the sidecar has heard of it or not.
		c.mu.Lock()
		c.token = token
		c.mu.Unlock()
		if err := c.call(ctx, func(ctx context.Context, s *yamux.Session) error { return raise(ctx, s, token) }); err != nil {
			return err
		}
	}
	c.mu.Lock()
	old := c.mounts
	c.mounts = slices.Clone(mounts)
	c.mu.Unlock()
	c.uid = uid
	for _, m := range mounts {
		if !slices.Contains(old, m) {
			c.forget(m)
		}
	}
	return nil
}

// forget drops what was known of a mount. The caller holds op.
func (c *Conn) forget(m sandbox.Mount) {
	delete(c.copied, m.Target)
	if !m.ReadOnly {
		c.since = nil
	}
}

// find returns the mount that a path lies in, and the rest of the path.
func (c *Conn) find(p string) (m sandbox.Mount, rest string, err error) {
	if !path.IsAbs(p) || path.Clean(p) != p {
		return m, "", sandbox.Errorf(sandbox.Invalid, "%.200q: want an absolute and clean path", p)
	}
	found := false
	for _, x := range c.copies() {
		if tree.Under(p, x.Target) && (!found || len(x.Target) > len(m.Target)) {
			m, found = x, true
		}
	}
	if !found {
		return m, "", sandbox.Errorf(sandbox.Invalid, "%.200q lies in no mount that is copied", p)
	}
	return m, strings.TrimPrefix(strings.TrimPrefix(p, m.Target), "/"), nil
}

// copies are the mounts but that of the sockets.
func (c *Conn) copies() []sandbox.Mount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.mounts), func(m sandbox.Mount) bool { return m.Target == sandbox.RunDir })
}

// call does something on the connection, again when it is lost meanwhile. It must be such that twice is as good as once.
func (c *Conn) call(ctx context.Context, do func(ctx context.Context, s *yamux.Session) error) error {
	for try := 1; ; try++ {
		session, err := c.live(ctx)
		if err != nil {
			return err
		}
		err = do(ctx, session)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
			return sandbox.Wrap(sandbox.Timeout, err, "copying to or from the sandbox took too long")
		case session.IsClosed() && try < callTries:
			continue
		case c.Err() != nil:
			return c.Err()
		}
		var ours *sandbox.Error
		if errors.As(err, &ours) {
			return err
		}
		return sandbox.Wrap(sandbox.Unavailable, err, "copying to or from the sandbox failed")
	}
}

// Connected says whether the connection is there just now.
func (c *Conn) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil && !c.session.IsClosed()
}

// Done is closed when the attachment has ended for good, by Close or because another process is attached.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why Done is closed; nil before, and after Close.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close detaches, and waits until nothing of it runs any more. It may be called again.
func (c *Conn) Close() error {
	c.cancel()
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != nil {
		_ = session.Close()
	}
	c.wg.Wait()
	return nil
}

// String names it for logs.
func (c *Conn) String() string { return fmt.Sprintf("%s at %s", c.o.ID, c.o.Addr) }
