package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// stillOurs reports whether no other server has taken the instance's thread. As long as its lease was renewed in
// time that is so; else the owner record is read. An unreadable one counts as ours: no server can take it.
func (r *Orchestrator) stillOurs(inst *instance.Instance) bool {
	own := inst.Owned()
	if own == nil {
		return true
	}
	return r.owners.Current(own)
}

// abandonTo takes an instance that is another replica's out of this process and leaves all of it in place.
func (r *Orchestrator) abandonTo(inst *instance.Instance) {
	r.hooks.Leave(r.ctx, inst)
	r.leaveMap(inst)
}

// leaveMap takes an instance out of the map, once.
func (r *Orchestrator) leaveMap(inst *instance.Instance) {
	if r.live.Remove(inst) {
		r.watches.sandboxEnded(inst.Thread)
	}
}

// Lost ends the instance of a thread that another server has taken. False: this server has none.
func (r *Orchestrator) Lost(own *ownership.Ownership) bool {
	inst := r.live.Find(own.Thread)
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
	inst := r.live.Find(own.Thread)
	if inst == nil || !inst.IsReady() || inst.Ending() != "" {
		return nil
	}
	r.copies.AttachAgain(ctx, inst)
	return r.hooks.Publish(ctx, inst)
}

// hookServer is the orchestrator, as hooks see it.
type hookServer struct{ r *Orchestrator }

// StillRuns implements hooks.Server.
func (s hookServer) StillRuns(ctx context.Context, inst *instance.Instance) bool {
	return s.r.stillRuns(ctx, inst)
}

// Warm implements hooks.Server.
func (s hookServer) Warm(inst *instance.Instance, env map[string]string) { s.r.Runs.Warm(inst, env) }

// AdoptContexts implements hooks.Server.
func (s hookServer) AdoptContexts(ctx context.Context, inst *instance.Instance, known []*sandboxv1.ContextStatus) {
	s.r.Contexts.Adopt(ctx, inst, known)
}
