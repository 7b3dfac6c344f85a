package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// skillSandboxes are the sandboxes of the orchestrator, as skills see them.
type skillSandboxes struct{ r *Orchestrator }

func (s skillSandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.live.Find(t) }

func (s skillSandboxes) All() []*instance.Instance { return s.r.live.All() }

func (s skillSandboxes) AwaitPushes(ctx context.Context, which func(*instance.Instance) bool) {
	s.r.copies.Await(ctx, which)
}

func (s skillSandboxes) EnsureThread(ctx context.Context, t sandbox.Thread) error {
	_, err := s.r.threads.Ensure(ctx, t)
	return err
}

func (s skillSandboxes) EnsureRecord(ctx context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error) {
	return s.r.threads.EnsureRecord(ctx, t)
}
