package placement

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Placement says which server answers a request about a thread.
type Placement struct {
	drain    *drain.Drain
	execs    *execution.Registry
	live     *instance.Map
	owners   *ownership.Owners
	peers    ownership.Peers
	teardown *lifecycle.Teardown
}

// Owner returns the replica that holds the thread: "" when it is this one, or none does. A replica that has ended
// is none: its sandbox is adopted first.
func (p *Placement) Owner(ctx context.Context, c sandbox.Caller, id string) (replica string, err error) {
	t, err := c.Thread(id)
	if err != nil || p.runsHere(t) {
		return "", err
	}
	held, ok, err := p.owners.Book.Read(t)
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be read")
	}
	switch {
	case !ok || held.Replica == p.peers.ID():
		return "", nil
	case p.peers.Alive(held.Replica):
		return held.Replica, nil
	}
	replica, done, err := p.Hold(ctx, c, id)
	if done != nil {
		done()
	}
	return replica, err
}

// Hold is Owner for a request that may start a sandbox: when no replica holds the thread, this one does until
// done is called, which is nil when replica is not "". A thread that is held is not handed over. While this
// server stops, threads that are not here are another one's.
func (p *Placement) Hold(ctx context.Context, c sandbox.Caller, id string) (replica string, done func(), err error) {
	t, err := c.Thread(id)
	if err != nil {
		return "", nil, err
	}
	if err := p.drain.AwaitHandOver(ctx, t); err != nil {
		return "", nil, err
	}
	if p.runsHere(t) || p.drain.Draining() {
		if own := p.owners.Join(t); own != nil {
			return "", func() { p.owners.Release(own) }, nil
		}
	}
	// Without a look at the lease: when its owner lives, it is asked whatever Redis says.
	if held, ok, err := p.owners.Book.Read(t); err == nil && ok && held.Replica != p.peers.ID() && p.peers.Alive(held.Replica) {
		return held.Replica, nil, nil
	}
	if p.drain.Draining() {
		if replica = p.drain.Target(ctx); replica == "" {
			err = lifecycle.ErrStopping
		}
		return replica, nil, err
	}
	own, err := p.owners.Acquire(ctx, t, "")
	var other *ownership.Elsewhere
	if errors.As(err, &other) {
		return other.Replica, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	return "", func() { p.owners.Release(own) }, nil
}

// Holder returns the living replica that has the thread, "" when none has. It takes nothing over, and asks no one.
func (p *Placement) Holder(t sandbox.Thread) (replica string, err error) {
	held, ok, err := p.owners.Book.Read(t)
	switch {
	case err != nil:
		return "", sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be read")
	case !ok || held.Replica == ownership.Nobody || !p.peers.Alive(held.Replica):
		return "", nil
	}
	return held.Replica, nil
}

// Owned is how many threads this replica has.
func (p *Placement) Owned() int { return len(p.owners.All()) }

// runsHere reports whether the thread's instance is in this process, and no other took it.
func (p *Placement) runsHere(t sandbox.Thread) bool {
	inst := p.live.Find(t)
	return inst != nil && p.owners.Current(inst.Owned())
}

// HasExec reports whether this replica ran an exec of the thread, and still knows it.
func (p *Placement) HasExec(t sandbox.Thread, execID string) bool {
	_, err := p.execs.Get(t, execID)
	return err == nil
}
