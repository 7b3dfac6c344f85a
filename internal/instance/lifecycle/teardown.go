package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/instance/usage"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
)

// Watcher is told when sandboxes end.
type Watcher interface {
	SandboxEnded(t sandbox.Thread)
}

// Followers are told how the sandbox of a thread changes, once the change is there to see.
type Followers interface {
	SandboxChanged(t sandbox.Thread, kind sandbox.ThreadEventKind, change sandbox.ChangedSandbox)
}

// Teardown ends instances: on request, when their sandbox dies, and when another server takes their thread.
type Teardown struct {
	audit       *audit.Log
	copies      *copies.Copies
	ctx         context.Context
	followers   Followers
	hooks       *hooks.Hooks
	retirements *instance.Retirements
	live        *instance.Map
	log         *slog.Logger
	metrics     *metrics.Metrics
	owners      *ownership.Owners
	pool        *pool.Pool
	startTime   time.Duration
	usage       *usage.Writer
	watches     Watcher
	wg          *sync.WaitGroup
}

// Abandon ends a sandbox that does not keep the contract.
func (d *Teardown) Abandon(inst *instance.Instance, why string) {
	d.retireWithin(hooks.RemoveTimeout, inst, sandbox.StatusLost, why)
}

// Serve ends the instances that other parts want ended.
func (d *Teardown) Serve() {
	d.retirements.Serve(d.ctx, func(x instance.Retirement) {
		d.wg.Go(func() { d.retireWithin(hooks.RemoveTimeout, x.Instance, x.Status, x.Why) })
	})
}

// retireWithin retires an instance for the server itself: no caller waits, so what goes wrong is logged.
func (d *Teardown) retireWithin(most time.Duration, inst *instance.Instance, status sandbox.Status, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), most)
	defer cancel()
	if err := d.Retire(ctx, sandbox.Caller{}, inst, status, why); err != nil {
		d.log.Error("sandbox not retired", "thread", inst.Thread.String(), "why", why, "error", err)
	}
}

// Retire ends the sandbox of an instance, once; its execs end with status. It returns when all of it is gone.
func (d *Teardown) Retire(ctx context.Context, c sandbox.Caller, inst *instance.Instance, status sandbox.Status, why string) error {
	inst.Turn.GiveUp(sandbox.Errorf(sandbox.Conflict, "the sandbox was %s before it started", why)) // an instance that waits for its place
	select {                                                                                        // an instance that is starting is not pulled from under its start
	case <-inst.Ready:
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still starting")
	}
	if inst.Owned() != nil && inst.Main == nil && inst.Err == nil && !d.owners.Confirm(inst.Owned()) {
		return nil // it is another server's now
	}
	if !inst.StopAs(status) {
		select {
		case <-inst.Gone:
			return nil
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
		}
	}
	return d.finish(ctx, c, inst, status, why)
}

// finish records the end of an instance whose ending is set, and removes it.
func (d *Teardown) finish(ctx context.Context, c sandbox.Caller, inst *instance.Instance, status sandbox.Status, why string) error {
	rec := audit.About(c, inst.Thread, audit.ActionSandboxRemove, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(inst.ID), inst.Template.Name, "ok", why
	err := d.audit.AppendResult(context.WithoutCancel(ctx), rec)
	d.metrics.Changed(audit.ActionSandboxRemove, string(status))
	d.Remove(ctx, inst)
	d.tell(inst, sandbox.EventSandboxEnded, why)
	return err
}

// Forgot tells followers of the end of a sandbox that was hibernated.
func (d *Teardown) Forgot(t sandbox.Thread, was sandbox.Info) {
	d.followers.SandboxChanged(t, sandbox.EventSandboxEnded, sandbox.ChangedSandbox{ID: was.ID, Template: was.Template, Why: "released"})
}

// tell tells followers of a change of the thread's own sandbox.
func (d *Teardown) tell(inst *instance.Instance, kind sandbox.ThreadEventKind, why string) {
	if inst.Main == nil {
		d.followers.SandboxChanged(inst.Thread, kind, sandbox.ChangedSandbox{ID: inst.ID, Template: inst.Template.Name, Why: why})
	}
}

// Remove takes away all of an instance whose ending is set, and takes it out of the map.
func (d *Teardown) Remove(ctx context.Context, inst *instance.Instance) {
	d.EndSeconds(inst)
	d.usage.Flush(ctx, inst)
	d.hooks.Down(ctx, inst)
	d.Forget(inst)
	d.usage.Ended(inst)
}

// Watch ends the instances whose sandbox died.
func (d *Teardown) Watch(events <-chan driver.Event) {
	for ev := range events {
		if ev.State != sandbox.Lost {
			continue
		}
		if d.pool.Ended(ev.ID) {
			continue
		}
		if inst := d.live.FindID(ev.ID); inst != nil { // after: a sandbox that was claimed from the pool meanwhile is here
			d.wg.Go(func() { d.Died(inst, ev.OOM) })
		}
	}
}

// Died retires an instance whose sandbox ended by itself. When it ran out of memory, its execs say so.
func (d *Teardown) Died(inst *instance.Instance, oom bool) {
	status, why := sandbox.StatusLost, "the sandbox ended by itself"
	if oom {
		status, why = sandbox.StatusOOM, "the sandbox ran out of memory"
	}
	d.retireWithin(d.startTime+hooks.RemoveTimeout, inst, status, why)
}

// EndSeconds ends the second instances beside an instance whose ending is set, and waits until all of them are gone. What
// runs in them ends as what runs in the instance does.
func (d *Teardown) EndSeconds(main *instance.Instance) {
	if main.Main != nil {
		return
	}
	status := sandbox.StatusKilled
	if main.Ending() != sandbox.StatusKilled {
		status = sandbox.StatusLost
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, inst := range d.live.Seconds(main.Thread) {
		if inst.Main == main {
			wg.Go(func() {
				d.retireWithin(d.startTime+hooks.RemoveTimeout, inst, status, "the thread's own sandbox ends")
			})
		}
	}
}

// Leave takes an instance that is another replica's out of this process and leaves all of it in place.
func (d *Teardown) Leave(inst *instance.Instance) {
	d.EndSeconds(inst)
	d.usage.Flush(d.ctx, inst)
	d.hooks.Leave(d.ctx, inst)
	d.Forget(inst)
}

// Forget takes an instance out of the map, once.
func (d *Teardown) Forget(inst *instance.Instance) {
	if d.live.Remove(inst) && inst.Main == nil {
		d.watches.SandboxEnded(inst.Thread)
	}
}

// Lost ends the instance of a thread that another server has taken. False: this server has none.
func (d *Teardown) Lost(own *ownership.Ownership) bool {
	inst := d.live.Find(own.Thread)
	if inst == nil || inst.Owned() != own {
		return false
	}
	inst.End(sandbox.StatusLost)
	d.wg.Go(func() {
		<-inst.Ready
		d.Leave(inst)
	})
	return true
}

// Renewed tells the thread's sandbox, and other servers, about a new token. The record went with the former lease.
func (d *Teardown) Renewed(ctx context.Context, own *ownership.Ownership) error {
	inst := d.live.Find(own.Thread)
	if inst == nil || !inst.IsReady() || inst.Ending() != "" {
		return nil
	}
	d.copies.AttachAgain(ctx, inst)
	return d.hooks.Publish(ctx, inst)
}
