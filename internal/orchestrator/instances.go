package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// stillOurs reports whether no other server has taken the instance's thread. As long as its lease was renewed in
// time that is so; else the owner record is read. One that cannot be read counts as ours: no server can take it.
func (r *Orchestrator) stillOurs(inst *instance.Instance) bool {
	own := inst.Owned()
	if own == nil {
		return true
	}
	return r.owners.Current(own)
}

// abandonTo takes an instance that is another replica's out of this process and leaves all of it in place.
func (r *Orchestrator) abandonTo(inst *instance.Instance) {
	if err := inst.Close(); err != nil {
		r.o.Log.Warn("sockets not closed", "thread", inst.Thread.String(), "error", err)
	}
	inst.Tools.Forbid()
	r.Skills.End(inst, false)
	if inst.Ownership != nil {
		r.owners.Forget(inst.Ownership)
	}
	r.leaveMap(inst)
}

// enterMap puts an instance in. The caller holds Orchestrator.mu.
func (r *Orchestrator) enterMap(inst *instance.Instance) {
	r.instances[inst.Thread], r.byID[inst.ID] = inst, inst
}

// leaveMap takes an instance out of the map, once.
func (r *Orchestrator) leaveMap(inst *instance.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[inst.Thread] == inst {
		delete(r.instances, inst.Thread)
	}
	delete(r.byID, inst.ID)
	givePlaceBack(inst)
	inst.Limits.Release()
	if !inst.Left {
		inst.Left = true
		close(inst.Gone)
		r.watches.sandboxEnded(inst.Thread)
	}
}

// removeSandbox has the driver remove the instance's sandbox, unless another replica has adopted it. No replica
// can adopt it meanwhile.
func (r *Orchestrator) removeSandbox(ctx context.Context, inst *instance.Instance) (theirs bool, err error) {
	if inst.Ownership == nil { // it has never begun to exist
		return false, r.o.Driver.Remove(ctx, inst.ID)
	}
	return r.owners.Remove(ctx, inst.Ownership, inst.ID, r.o.Driver.Remove)
}

// publish says in the store what sandbox the thread has, for the replicas that do not run it.
func (r *Orchestrator) publish(ctx context.Context, inst *instance.Instance) error {
	return r.o.Store.PutSandbox(ctx, inst.Thread, store.SandboxRecord{ID: inst.ID, Info: inst.Info(), Replica: r.peers.ID()})
}

// Lost ends the instance of a thread that another server has taken. False: this server has none.
func (r *Orchestrator) Lost(own *ownership.Ownership) bool {
	inst := r.find(own.Thread)
	if inst == nil || inst.Owned() != own {
		return false
	}
	inst.End(sandbox.StatusLost)
	r.wg.Go(func() {
		<-inst.Ready
		r.abandonTo(inst)
	})
	return true
}

// Renewed tells the thread's sandbox, and other servers, about a new token. The record went with the former lease.
func (r *Orchestrator) Renewed(ctx context.Context, own *ownership.Ownership) error {
	inst := r.find(own.Thread)
	if inst == nil || !inst.IsReady() || inst.Ending() != "" {
		return nil
	}
	r.copies.AttachAgain(ctx, inst)
	return r.publish(ctx, inst)
}
