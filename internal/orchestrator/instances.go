package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// stillOurs reports whether nobody has taken the instance's thread from us. As long as its lease was renewed in
// time that is so; else the owner record is read. Whose owner record cannot be read is taken for ours: nobody can take it.
func (r *Orchestrator) stillOurs(inst *instance) bool {
	own := inst.owned()
	if own == nil {
		return true
	}
	return r.owners.Current(own)
}

// owned is the ownership of an instance that may be starting just now; nil: it has none yet.
func (inst *instance) owned() *ownership.Ownership {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.ownership
}

// abandonTo takes an instance that is another replica's out of this process and leaves all of it in place.
func (r *Orchestrator) abandonTo(inst *instance) {
	if err := inst.letGo(); err != nil {
		r.o.Log.Warn("sockets not closed", "thread", inst.thread.String(), "error", err)
	}
	inst.forbidWrappers()
	r.endSkills(inst, false)
	if inst.ownership != nil {
		r.owners.Forget(inst.ownership)
	}
	r.leaveMap(inst)
}

// enterMap puts an instance in. The caller holds Orchestrator.mu.
func (r *Orchestrator) enterMap(inst *instance) {
	r.instances[inst.thread], r.byID[inst.id] = inst, inst
}

// leaveMap takes an instance out of the map, once.
func (r *Orchestrator) leaveMap(inst *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[inst.thread] == inst {
		delete(r.instances, inst.thread)
	}
	delete(r.byID, inst.id)
	givePlaceBack(inst)
	inst.limits.Release()
	if !inst.left {
		inst.left = true
		close(inst.gone)
		r.watches.sandboxEnded(inst.thread)
	}
}

// removeSandbox has the driver remove the instance's sandbox, unless another replica has adopted it. Nobody
// can adopt it meanwhile.
func (r *Orchestrator) removeSandbox(ctx context.Context, inst *instance) (theirs bool, err error) {
	if inst.ownership == nil { // it has never begun to exist
		return false, r.o.Driver.Remove(ctx, inst.id)
	}
	return r.owners.Remove(ctx, inst.ownership, inst.id, r.o.Driver.Remove)
}

// publish says in the store what sandbox the thread has, for the replicas that do not run it.
func (r *Orchestrator) publish(ctx context.Context, inst *instance) error {
	return r.o.Store.PutSandbox(ctx, inst.thread, store.SandboxRecord{ID: inst.id, Info: inst.snapshot(), Replica: r.peers.ID()})
}

// Lost ends the instance of a thread that another server has taken. False: this server has none.
func (r *Orchestrator) Lost(own *ownership.Ownership) bool {
	inst := r.find(own.Thread)
	if inst == nil || inst.owned() != own {
		return false
	}
	inst.end(sandbox.StatusLost)
	r.wg.Go(func() {
		<-inst.ready
		r.abandonTo(inst)
	})
	return true
}

// Renewed tells the thread's sandbox, and other servers, about a new token. The record went with the former lease.
func (r *Orchestrator) Renewed(ctx context.Context, own *ownership.Ownership) error {
	inst := r.find(own.Thread)
	if inst == nil || !inst.isReady() || inst.endingStatus() != "" {
		return nil
	}
	r.attachAgain(ctx, inst)
	return r.publish(ctx, inst)
}
