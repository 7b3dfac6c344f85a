package orchestrator

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// threadSandboxes are the sandboxes of the orchestrator, as threads see them.
type threadSandboxes struct{ r *Orchestrator }

// Find implements threads.Sandboxes.
func (s threadSandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.live.Find(t) }

// Outrun implements threads.Sandboxes.
func (s threadSandboxes) Outrun(t sandbox.Thread) {
	if inst := s.r.live.Find(t); inst != nil {
		s.r.wg.Go(func() { s.r.teardown.abandon(inst, "another server went on with the thread's files") })
	}
}

// Forget implements threads.Sandboxes.
func (s threadSandboxes) Forget(ctx context.Context, t sandbox.Thread) error {
	s.r.o.Hub.ForgetThread(t)
	s.r.Skills.Forget(t)
	s.r.Contexts.Forget(t)
	if s.r.o.ForgetApprovals == nil {
		return nil
	}
	return s.r.o.ForgetApprovals(ctx, t)
}

// keepEnd keeps what an exec changed. When that fails, its end is not acknowledged.
func (f runFiles) keepEnd(inst *instance.Instance, e *execution.Exec) error {
	err := f.r.threads.Keep(f.r.ctx, inst.Thread, inst.UID)
	if err == nil {
		return nil
	}
	f.r.o.Log.Error("files not kept after an exec", "exec", e.ID, "thread", inst.Thread.String(), "error", err)
	e.EndBecause("its files could not be kept")
	if errors.Is(err, sandbox.Conflict) {
		threadSandboxes(f).Outrun(inst.Thread)
	}
	return sandbox.Wrap(sandbox.KindOf(err), err, "the exec ended, but what it changed could not be kept: %v", err)
}
