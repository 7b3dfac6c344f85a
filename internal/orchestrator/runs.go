package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// runSandboxes are the sandboxes of the orchestrator, as runs see them.
type runSandboxes struct{ r *Orchestrator }

// Enter implements run.Sandboxes.
func (s runSandboxes) Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	return s.r.Starts.enter(ctx, c, t)
}

// Leave implements run.Sandboxes.
func (s runSandboxes) Leave(inst *instance.Instance) { s.r.Lifecycle.left(inst) }

// Find implements run.Sandboxes.
func (s runSandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.live.Find(t) }

// Abandon implements run.Sandboxes.
func (s runSandboxes) Abandon(inst *instance.Instance, why string) { s.r.teardown.abandon(inst, why) }

// Died implements run.Sandboxes.
func (s runSandboxes) Died(inst *instance.Instance, oom bool) { s.r.teardown.died(inst, oom) }

// Touch implements run.Sandboxes.
func (s runSandboxes) Touch(inst *instance.Instance) { s.r.Lifecycle.touch(inst) }

// runFiles are the files of threads, as runs see them.
type runFiles struct{ r *Orchestrator }

// With implements run.Files.
func (f runFiles) With(t sandbox.Thread, uid *int, use func(*paths.FS) error) error {
	return f.r.Files.withFiles(t, uid, use)
}

// Change implements run.Files.
func (f runFiles) Change(ctx context.Context, t sandbox.Thread, uid int, change func(*paths.FS) error) error {
	return f.r.Files.changeFiles(ctx, t, uid, change)
}

// Begin implements run.Files.
func (f runFiles) Begin(ctx context.Context, inst *instance.Instance, e *execution.Exec) error {
	return f.r.copies.Begin(ctx, inst, e.Report)
}

// Pull implements run.Files.
func (f runFiles) Pull(inst *instance.Instance, e *execution.Exec, exit *sandboxv1.Exit) error {
	return f.r.copies.End(inst, e.Report, exit)
}

// Keep implements run.Files.
func (f runFiles) Keep(inst *instance.Instance, e *execution.Exec) error { return f.keepEnd(inst, e) }
