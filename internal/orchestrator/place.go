package orchestrator

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Placement says which server answers a request about a thread.
type Placement struct {
	Shutdown *Shutdown
	execs    *execution.Registry
	live     *instance.Map
	owners   *ownership.Owners
	peers    ownership.Peers
	teardown *teardown
}

// Where a request about a thread is answered. Those that need its sandbox are answered by the replica that
// holds the thread. On that one none of this costs more than a look into a map.

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
	if err := p.Shutdown.waitForHandOver(ctx, t); err != nil {
		return "", nil, err
	}
	if p.runsHere(t) || p.Shutdown.Draining() {
		if own := p.owners.Join(t); own != nil {
			return "", func() { p.owners.Release(own) }, nil
		}
	}
	// Without a look at the lease: when its owner lives, it is asked whatever Redis says.
	if held, ok, err := p.owners.Book.Read(t); err == nil && ok && held.Replica != p.peers.ID() && p.peers.Alive(held.Replica) {
		return held.Replica, nil, nil
	}
	if p.Shutdown.Draining() {
		if replica = p.Shutdown.drainTargets.One(ctx); replica == "" {
			err = errStopping
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

// runsHere reports whether the thread's instance is in this process, and no other took it.
func (p *Placement) runsHere(t sandbox.Thread) bool {
	inst := p.live.Find(t)
	return inst != nil && p.teardown.stillOurs(inst)
}

// HasExec reports whether this replica ran an exec of the thread, and still knows it.
func (p *Placement) HasExec(t sandbox.Thread, execID string) bool {
	_, err := p.execs.Get(t, execID)
	return err == nil
}

// elsewhereViews adds to views the sandboxes that other replicas run.
func (u *Threads) elsewhereViews(ctx context.Context, views []sandbox.ThreadView) error {
	var absent []sandbox.Thread
	for _, v := range views {
		if v.Sandbox == nil {
			absent = append(absent, v.Thread)
		}
	}
	records, err := u.store.Sandboxes(ctx, absent)
	if err != nil || len(records) == 0 {
		return err
	}
	for i := range views {
		if rec, ok := records[views[i].Thread]; ok && views[i].Sandbox == nil && u.lives(rec) {
			views[i].Sandbox = &rec.Info
		}
	}
	return nil
}

// lives reports whether a record is of a sandbox that another replica runs now. Ours are in the map.
func (u *Threads) lives(rec store.SandboxRecord) bool {
	return rec.Replica != u.peers.ID() && u.peers.Alive(rec.Replica)
}

// Draining reports whether this server is stopping.
func (p *Placement) Draining() bool { return p.Shutdown.Draining() }
