package tunnels

import (
	"context"
	"errors"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Tunnel is one attachment; *sidecar.Conn is.
type Tunnel interface {
	Push(ctx context.Context, paths ...string) error
	Pull(ctx context.Context) (changed bool, err error)
	Remount(ctx context.Context, token int64, mounts []sandbox.Mount, uid int) error
	Reach(ctx context.Context, address string) (bool, error)
	Done() <-chan struct{}
	Close() error
}

// Set has the attachments of a process. The zero value has none.
type Set struct {
	mu     sync.Mutex
	byID   map[sandbox.ID]Tunnel
	closed bool
	ending sync.WaitGroup
}

// Get returns the attachment of a sandbox; nil: there is none that lives.
func (t *Set) Get(id sandbox.ID) Tunnel {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[id]
	if c == nil {
		return nil
	}
	select {
	case <-c.Done():
		return nil
	default:
		return c
	}
}

// Put keeps an attachment in the place of a former one, unless the driver is closed.
func (t *Set) Put(id sandbox.ID, c Tunnel) error {
	t.mu.Lock()
	old, closed := t.byID[id], t.closed
	if !closed {
		if t.byID == nil {
			t.byID = make(map[sandbox.ID]Tunnel)
		}
		t.byID[id] = c
	}
	t.mu.Unlock()
	if closed {
		return errors.Join(sandbox.Errorf(sandbox.Unavailable, "this server is stopping"), c.Close())
	}
	if old != nil {
		return old.Close()
	}
	return nil
}

// Drop ends the attachment of a sandbox, without waiting for it.
func (t *Set) Drop(id sandbox.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byID[id]; c != nil {
		delete(t.byID, id)
		t.ending.Go(func() { _ = c.Close() }) // its pod is gone: there is nothing to lose
	}
}

// Detach ends the attachment of a sandbox, and waits for that. None there is no error.
func (t *Set) Detach(id sandbox.ID) error {
	t.mu.Lock()
	c := t.byID[id]
	delete(t.byID, id)
	t.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
}

// Attached returns the attachment of a sandbox, or says that there is none.
func (t *Set) Attached(id sandbox.ID) (Tunnel, error) {
	if c := t.Get(id); c != nil {
		return c, nil
	}
	return nil, sandbox.Errorf(sandbox.Unavailable, "sandbox %s is not attached to this server", id)
}

// Close ends all of them; there are none after it.
func (t *Set) Close() error {
	t.mu.Lock()
	all := t.byID
	t.byID, t.closed = nil, true
	t.mu.Unlock()
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	t.ending.Wait()
	return errors.Join(errs...)
}
