package orchestrator

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Where a request about a thread is answered. Those that need its sandbox are answered by the replica that
// holds the thread. On that one none of this costs more than a look into a map.

// Owner returns the replica that holds the thread: "" when it is this one, or none does. A replica that has ended
// is none: its sandbox is adopted first.
func (r *Orchestrator) Owner(ctx context.Context, c sandbox.Caller, id string) (replica string, err error) {
	t, err := c.Thread(id)
	if err != nil || r.runsHere(t) {
		return "", err
	}
	held, ok, err := r.owners.Book.Read(t)
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be read")
	}
	switch {
	case !ok || held.Replica == r.peers.ID():
		return "", nil
	case r.peers.Alive(held.Replica):
		return held.Replica, nil
	}
	replica, done, err := r.Hold(ctx, c, id)
	if done != nil {
		done()
	}
	return replica, err
}

// Hold is Owner for a request that may start a sandbox: when no replica holds the thread, this one does until
// done is called, which is nil when replica is not "". A thread that is held is not handed over. While this
// server stops, threads that are not here are another one's.
func (r *Orchestrator) Hold(ctx context.Context, c sandbox.Caller, id string) (replica string, done func(), err error) {
	t, err := c.Thread(id)
	if err != nil {
		return "", nil, err
	}
	if err := r.waitForHandOver(ctx, t); err != nil {
		return "", nil, err
	}
	if r.runsHere(t) || r.Draining() {
		if own := r.owners.Join(t); own != nil {
			return "", func() { r.owners.Release(own) }, nil
		}
	}
	// Without a look at the lease: when its owner lives, it is asked whatever Redis says.
	if held, ok, err := r.owners.Book.Read(t); err == nil && ok && held.Replica != r.peers.ID() && r.peers.Alive(held.Replica) {
		return held.Replica, nil, nil
	}
	if r.Draining() {
		if replica = r.drainTargets.One(ctx); replica == "" {
			err = errStopping
		}
		return replica, nil, err
	}
	own, err := r.owners.Acquire(ctx, t, "")
	var other *ownership.Elsewhere
	if errors.As(err, &other) {
		return other.Replica, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	return "", func() { r.owners.Release(own) }, nil
}

// runsHere reports whether the thread's instance is in this process, and no other took it.
func (r *Orchestrator) runsHere(t sandbox.Thread) bool {
	inst := r.live.Find(t)
	return inst != nil && r.stillOurs(inst)
}

// HasExec reports whether this replica ran an exec of the thread, and still knows it.
func (r *Orchestrator) HasExec(t sandbox.Thread, execID string) bool {
	_, err := r.execs.Get(t, execID)
	return err == nil
}

// elsewhereViews adds to views the sandboxes that other replicas run.
func (r *Orchestrator) elsewhereViews(ctx context.Context, views []sandbox.ThreadView) error {
	var absent []sandbox.Thread
	for _, v := range views {
		if v.Sandbox == nil {
			absent = append(absent, v.Thread)
		}
	}
	records, err := r.o.Store.Sandboxes(ctx, absent)
	if err != nil || len(records) == 0 {
		return err
	}
	for i := range views {
		if rec, ok := records[views[i].Thread]; ok && views[i].Sandbox == nil && r.lives(rec) {
			views[i].Sandbox = &rec.Info
		}
	}
	return nil
}

// lives reports whether a record is of a sandbox that another replica runs now. Ours are in the map.
func (r *Orchestrator) lives(rec store.SandboxRecord) bool {
	return rec.Replica != r.peers.ID() && r.peers.Alive(rec.Replica)
}
