package orchestrator

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Each adapter is what one part needs of parts that are built after it.

// poolSandboxes are the sandboxes of the orchestrator, as the pool makes them.
type poolSandboxes struct{ r *Orchestrator }

// Draining implements pool.Sandboxes.
func (s poolSandboxes) Draining() bool { return s.r.Shutdown.Draining() }

// NewFileSync implements pool.Sandboxes.
func (s poolSandboxes) NewFileSync(id sandbox.ID) *filesync.Sync { return s.r.copies.Sync(id) }

// Reaped implements pool.Sandboxes.
func (s poolSandboxes) Reaped(t sandbox.Thread, id sandbox.ID, what string, err error) {
	s.r.reaper.Note(t, id, what, err)
}

// ClearAway implements pool.Sandboxes.
func (s poolSandboxes) ClearAway(id sandbox.ID) { s.r.reaper.ClearAway(id) }

// contextSandboxes are the sandboxes of the orchestrator, as contexts see them.
type contextSandboxes struct {
	*instance.Map
	r *Orchestrator
}

func (s contextSandboxes) Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	return s.r.Starts.Enter(ctx, c, t)
}

func (s contextSandboxes) Leave(inst *instance.Instance) {
	s.r.execs.Cancel()
	s.r.Lifecycle.Left(inst)
}

func (s contextSandboxes) Prepare(ctx context.Context, c sandbox.Caller, inst *instance.Instance) error {
	if err := s.r.wrappers.Refresh(ctx, c, inst); err != nil {
		s.r.o.Log.Warn("wrappers not written", "thread", inst.Thread.String(), "error", err)
	}
	return s.r.copies.UpToDate(ctx, inst)
}

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

// execSandboxes are the sandboxes of the orchestrator, as execs see them.
type execSandboxes struct {
	*instance.Map
	r *Orchestrator
}

// Exists implements execution.Sandboxes.
func (s execSandboxes) Exists(t sandbox.Thread) error { return s.r.folders.Exists(t) }

// ownedSandboxes are the sandboxes of the orchestrator, as their owners see them.
type ownedSandboxes struct{ r *Orchestrator }

// Lost implements ownership.Sandboxes.
func (s ownedSandboxes) Lost(own *ownership.Ownership) bool { return s.r.teardown.Lost(own) }

// Renewed implements ownership.Sandboxes.
func (s ownedSandboxes) Renewed(ctx context.Context, own *ownership.Ownership) error {
	return s.r.teardown.Renewed(ctx, own)
}

// Inherit implements ownership.Sandboxes.
func (s ownedSandboxes) Inherit(ctx context.Context, own *ownership.Ownership, former ownerrecord.OwnerRecord) error {
	return s.r.recovery.Inherit(ctx, own, former)
}

// Settle implements ownership.Sandboxes.
func (s ownedSandboxes) Settle(ctx context.Context, d ownership.ExitedReplica) error {
	return s.r.settlement.Settle(ctx, d)
}

// hookServer is the orchestrator, as hooks see it.
type hookServer struct{ r *Orchestrator }

// StillRuns implements hooks.Server: it reports whether a sandbox that does not answer just now is worth waiting
// for. An engine that does not tell has as much to do as the rest of the machine.
func (s hookServer) StillRuns(ctx context.Context, inst *instance.Instance) bool {
	if inst.Ending() != "" || s.r.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	entry, err := s.r.o.Driver.Inspect(ctx, inst.ID)
	if err != nil {
		return !errors.Is(err, sandbox.NotFound)
	}
	return entry.State == sandbox.Running || entry.State == sandbox.Paused
}

// Warm implements hooks.Server.
func (s hookServer) Warm(inst *instance.Instance, env map[string]string) { s.r.Runs.Warm(inst, env) }

// AdoptContexts implements hooks.Server.
func (s hookServer) AdoptContexts(ctx context.Context, inst *instance.Instance, known []*sandboxv1.ContextStatus) {
	s.r.Contexts.Adopt(ctx, inst, known)
}

// threadSandboxes are the sandboxes of the orchestrator, as threads see them.
type threadSandboxes struct {
	*instance.Map
	r *Orchestrator
}

// Outrun implements threads.Sandboxes.
func (s threadSandboxes) Outrun(t sandbox.Thread) {
	if inst := s.r.live.Find(t); inst != nil {
		s.r.wg.Go(func() { s.r.teardown.Abandon(inst, "another server went on with the thread's files") })
	}
}

// Forget implements threads.Sandboxes.
func (s threadSandboxes) Forget(ctx context.Context, t sandbox.Thread) error {
	s.r.o.Tools.Hub.ForgetThread(t)
	s.r.Skills.Forget(t)
	s.r.Contexts.Forget(t)
	if s.r.o.Tools.ForgetApprovals == nil {
		return nil
	}
	return s.r.o.Tools.ForgetApprovals(ctx, t)
}

// callThreads are the threads of the orchestrator, as tool calls see them.
type callThreads struct{ r *Orchestrator }

// MayCall implements call.Threads.
func (s callThreads) MayCall(t sandbox.Thread) error {
	if err := s.r.Shutdown.Refuse(t); err != nil {
		return err
	}
	s.r.Lifecycle.Active(t, lifecycle.ActivityToolCall)
	return nil
}

// Kept implements call.Threads.
func (s callThreads) Kept(ctx context.Context, t sandbox.Thread) error {
	return s.r.threads.KeepChanged(ctx, t)
}

// KeepResult implements call.Threads.
func (s callThreads) KeepResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
	return s.r.Files.KeepResult(ctx, t, name, result)
}

// runSandboxes are the sandboxes of the orchestrator, as runs see them.
type runSandboxes struct {
	*instance.Map
	r *Orchestrator
}

// Enter implements run.Sandboxes.
func (s runSandboxes) Enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	return s.r.Starts.Enter(ctx, c, t)
}

// Leave implements run.Sandboxes.
func (s runSandboxes) Leave(inst *instance.Instance) { s.r.Lifecycle.Left(inst) }

// Abandon implements run.Sandboxes.
func (s runSandboxes) Abandon(inst *instance.Instance, why string) { s.r.teardown.Abandon(inst, why) }

// Died implements run.Sandboxes.
func (s runSandboxes) Died(inst *instance.Instance, oom bool) { s.r.teardown.Died(inst, oom) }

// Touch implements run.Sandboxes.
func (s runSandboxes) Touch(inst *instance.Instance) { s.r.Lifecycle.Touch(inst) }

// runFiles are the files of threads, as runs see them.
type runFiles struct{ r *Orchestrator }

// With implements run.Files.
func (f runFiles) With(t sandbox.Thread, uid *int, use func(*paths.FS) error) error {
	return f.r.Files.With(t, uid, use)
}

// Change implements run.Files.
func (f runFiles) Change(ctx context.Context, t sandbox.Thread, uid int, change func(*paths.FS) error) error {
	return f.r.Files.Change(ctx, t, uid, change)
}

// Begin implements run.Files.
func (f runFiles) Begin(ctx context.Context, inst *instance.Instance, e *execution.Exec) error {
	return f.r.copies.Begin(ctx, inst, e.Spec.Report)
}

// Pull implements run.Files.
func (f runFiles) Pull(inst *instance.Instance, e *execution.Exec, exit *sandboxv1.Exit) error {
	return f.r.copies.End(inst, e.Spec.Report, exit)
}

// KeepResult implements run.Files.
func (f runFiles) KeepResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
	return f.r.Files.KeepResult(ctx, t, name, result)
}

// Keep implements run.Files: it keeps what an exec changed. When that fails, its end is not acknowledged.
func (f runFiles) Keep(inst *instance.Instance, e *execution.Exec) error {
	err := f.r.threads.Keep(f.r.ctx, inst.Thread, inst.UID)
	if err == nil {
		return nil
	}
	f.r.o.Log.Error("files not kept after an exec", "exec", e.ID, "thread", inst.Thread.String(), "error", err)
	e.EndBecause("its files could not be kept")
	if errors.Is(err, sandbox.Conflict) {
		threadSandboxes{f.r.live, f.r}.Outrun(inst.Thread)
	}
	return sandbox.Wrap(sandbox.KindOf(err), err, "the exec ended, but what it changed could not be kept: %v", err)
}

// skillSandboxes are the sandboxes of the orchestrator, as skills see them.
type skillSandboxes struct {
	*instance.Map
	r *Orchestrator
}

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

// volumeSandboxes are the sandboxes of the orchestrator, as volumes see them.
type volumeSandboxes struct{ r *Orchestrator }

// Has implements volumes.Sandboxes.
func (s volumeSandboxes) Has(t sandbox.Thread) bool { return s.r.live.Find(t) != nil }

// copySandboxes are the sandboxes of the orchestrator, as copies see them.
type copySandboxes struct {
	*instance.Map
	r *Orchestrator
}

// StillOurs implements copies.Sandboxes.
func (s copySandboxes) StillOurs(inst *instance.Instance) bool { return s.r.teardown.StillOurs(inst) }

// Mounts implements copies.Sandboxes.
func (s copySandboxes) Mounts(inst *instance.Instance) []sandbox.Mount {
	return inst.Mounts(s.r.folders.Dir(inst.Thread))
}

// Abandon implements copies.Sandboxes.
func (s copySandboxes) Abandon(inst *instance.Instance, why string) { s.r.teardown.Abandon(inst, why) }

// loadSandboxes are the sandboxes of the orchestrator, as those who watch their load see them.
type loadSandboxes struct{ r *Orchestrator }

// Kill implements load.Sandboxes.
func (s loadSandboxes) Kill(inst *instance.Instance, why string) {
	s.r.wg.Go(func() { s.r.teardown.Kill(inst, why) })
}
