package orchestrator

import (
	"context"
	"log/slog"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/execution/rootfs"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/start"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/threadevents"
	"github.com/skerry-sandbox/skerry/internal/tools/channels"
	"github.com/skerry-sandbox/skerry/internal/tools/wrappers"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/files"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// ownedSandboxes are the sandboxes that owners adopt and lose. It is the one cycle among the parts: taking a thread adopts its
// sandbox, and the hooks that adopt it work with the owners. No thread is taken before all parts are there.
type ownedSandboxes struct{ r *Orchestrator }

// Lost implements ownership.Sandboxes.
func (s ownedSandboxes) Lost(own *ownership.Ownership) bool { return s.r.teardown.Lost(own) }

// Inherit implements ownership.Sandboxes.
func (s ownedSandboxes) Inherit(ctx context.Context, own *ownership.Ownership, former ownerrecord.OwnerRecord) error {
	return s.r.recovery.Inherit(ctx, own, former)
}

// Files is what callers do with files: those of threads, and those that only a running sandbox has.
type Files struct {
	*files.Files
	*rootfs.Roots
}

// contextSandboxes are the sandboxes in which contexts live, and whose own files callers see.
type contextSandboxes struct {
	*instance.Map
	*start.Starts
	*threads.Threads
	lifecycle *lifecycle.Lifecycle
	execs     *execution.Registry
	wrappers  *wrappers.Wrappers
	copies    *copies.Copies
	log       *slog.Logger
}

// Leave implements contexts.Sandboxes.
func (s contextSandboxes) Leave(inst *instance.Instance) {
	s.execs.Cancel()
	s.lifecycle.Left(inst)
}

// Prepare implements contexts.Sandboxes.
func (s contextSandboxes) Prepare(ctx context.Context, c sandbox.Caller, inst *instance.Instance) error {
	if err := s.wrappers.Refresh(ctx, c, inst); err != nil {
		s.log.Warn("wrappers not written", "thread", inst.Thread.String(), "error", err)
	}
	return s.copies.UpToDate(ctx, inst)
}

// WaitBegun implements contexts.Sandboxes.
func (s contextSandboxes) WaitBegun(ctx context.Context, t sandbox.Thread, exec string) error {
	e, err := s.execs.Get(t, exec)
	if err != nil {
		return err
	}
	return e.WaitBegun(ctx)
}

// forgetter drops what the parts know of a thread beside its files.
type forgetter struct {
	hub       toolHub
	virtuals  *skills.Virtuals
	contexts  *contexts.Registry
	approvals func(ctx context.Context, t sandbox.Thread) error // nil: there are none
	feeds     *threadevents.Feeds
}

// channelThreads are the records of threads, as the channels of their skills need them.
type channelThreads struct {
	channels.Records
	*threads.Threads
}

// Forget implements threads.Forgetter.
func (f forgetter) Forget(ctx context.Context, t sandbox.Thread) error {
	f.hub.ForgetThread(t)
	f.virtuals.Forget(t)
	f.contexts.Forget(t)
	f.feeds.End(t)
	if f.approvals == nil {
		return nil
	}
	return f.approvals(ctx, t)
}

// callThreads are the threads whose agents call tools.
type callThreads struct {
	*files.Files
	drain     *drain.Drain
	lifecycle *lifecycle.Lifecycle
	threads   *threads.Threads
}

// MayCall implements call.Threads.
func (s callThreads) MayCall(t sandbox.Thread) error {
	if err := s.drain.Refuse(t); err != nil {
		return err
	}
	s.lifecycle.Active(t, lifecycle.ActivityToolCall)
	return nil
}

// Kept implements call.Threads.
func (s callThreads) Kept(ctx context.Context, t sandbox.Thread) error {
	return s.threads.SaveChanged(ctx, t)
}
