package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// contextSandboxes are the sandboxes of the orchestrator, as contexts see them.
type contextSandboxes struct{ r *Orchestrator }

func (s contextSandboxes) Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	return s.r.Starts.enter(ctx, c, t)
}

func (s contextSandboxes) Leave(inst *instance.Instance) {
	s.r.execs.Cancel()
	s.r.Lifecycle.left(inst)
}

func (s contextSandboxes) Prepare(ctx context.Context, c sandbox.Caller, inst *instance.Instance) error {
	if err := s.r.wrappers.Refresh(ctx, c, inst); err != nil {
		s.r.o.Log.Warn("wrappers not written", "thread", inst.Thread.String(), "error", err)
	}
	return s.r.copies.UpToDate(ctx, inst)
}

func (s contextSandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.live.Find(t) }

func (s contextSandboxes) Exists(ctx context.Context, t sandbox.Thread) error {
	return s.r.threads.Exists(ctx, t)
}

func (s contextSandboxes) WaitBegun(ctx context.Context, t sandbox.Thread, exec string) error {
	e, err := s.r.execs.Get(t, exec)
	if err != nil {
		return err
	}
	return e.WaitBegun(ctx)
}
