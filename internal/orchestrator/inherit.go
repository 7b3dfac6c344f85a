package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
)

// Inherit adopts the sandbox of a former replica, or removes it.
func (r *Orchestrator) Inherit(ctx context.Context, own *ownership.Ownership, former ownerrecord.OwnerRecord) error {
	entry, err := r.o.Driver.Inspect(ctx, former.Sandbox)
	if errors.Is(err, sandbox.NotFound) || err == nil && entry.Labels[sandbox.LabelInstall] != r.o.Install {
		r.clearAway(former.Sandbox)
		return nil
	}
	if err != nil { // the engine is away: what became of the sandbox is unknown
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the thread's sandbox cannot be looked at now; try again"), r.owners.GiveBack(ctx, own, former))
	}
	why := errors.New("this server could not remove it before")
	inst := &instance.Instance{Thread: own.Thread, ID: entry.ID, Dir: instance.RunDir(filepath.Join(r.runRoot(), string(entry.ID)))}
	if former.Replica != r.peers.ID() {
		inst, why = r.adopt(ctx, own, entry)
	}
	if why == nil {
		r.restore(ctx, inst, entry.State == sandbox.Paused)
		_, why = r.live.Put(own.Thread, func(other *instance.Instance) (*instance.Instance, error) {
			if other != nil {
				return nil, errors.New("its thread has begun another one")
			}
			inst.Seat.Slot = r.places.Seat(inst.Thread.Tenant) // whatever the limits are now
			inst.Seat.Sit(r.o.Limits.Seat(sandbox.Caller{Owner: inst.Thread.Owner}, inst.ID))
			return inst, nil
		})
	}
	if why == nil {
		r.owners.Retain(own) // by the instance
		r.o.Log.Info("sandbox adopted", "thread", own.Thread.String(), "sandbox", string(entry.ID), "from", former.Replica)
		rec := audit.About(sandbox.Caller{}, own.Thread, audit.ActionSandboxAdopt, audit.PhaseResult)
		rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(entry.ID), inst.Template.Name, "ok", "from "+former.Replica
		if _, err := r.o.Audit.Append(ctx, rec); err != nil {
			r.o.Log.Error("adoption not recorded", "sandbox", string(entry.ID), "error", err)
		}
		return nil
	}
	var higher *copies.FencedError
	if errors.As(why, &higher) && !r.owners.Confirm(own) { // it is another server's by now, to be left alone
		return errors.Join(&ownership.Elsewhere{}, r.hooks.Undo(ctx, inst, true))
	}
	r.o.Log.Info("sandbox of a former server removed", "sandbox", string(entry.ID), "why", why)
	if err := r.hooks.Undo(ctx, inst, false); err != nil {
		ctx, cancel := deadline.Detached(ctx, cleanupTimeout)
		defer cancel()
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the sandbox that the thread had cannot be removed now; try again"), r.owners.GiveBack(ctx, own, former))
	}
	return nil
}

// clearAway removes the run folder of a sandbox that no longer exists.
func (r *Orchestrator) clearAway(id sandbox.ID) {
	if id == "" {
		return
	}
	if err := os.RemoveAll(filepath.Join(r.runRoot(), string(id))); err != nil {
		r.o.Log.Error("run folder not removed", "sandbox", string(id), "error", err)
	}
}

// awake resumes a sandbox that was paused when its server ended: a frozen sandboxd does not dial.
func (r *Orchestrator) awake(ctx context.Context, entry *sandbox.Instance) error {
	p, ok := r.o.Driver.(driver.Pauser)
	if entry.State != sandbox.Paused || !ok {
		return nil
	}
	if err := p.Resume(ctx, entry.ID); err != nil {
		return err
	}
	entry.State = sandbox.Running
	return nil
}

// Settle writes the one result of every action that an ended replica began. Its threads were taken
// before, because that ends what still ran in them.
func (r *Orchestrator) Settle(ctx context.Context, d ownership.ExitedReplica) error {
	if r.o.SweepReplica != nil {
		if err := r.o.SweepReplica(ctx, d.Replica); err != nil {
			return err
		}
	}
	if r.o.OpenAudit == nil {
		return nil
	}
	log, err := r.o.OpenAudit(d.Slot)
	if err != nil {
		return fmt.Errorf("its audit log: %w", err)
	}
	err = r.closeOpenAttempts(ctx, log)
	return errors.Join(err, log.Close())
}

// closeOpenAttempts writes the one result of every action that a log's writer began and did not end.
func (r *Orchestrator) closeOpenAttempts(ctx context.Context, log *audit.Log) error {
	for _, a := range log.OpenAttempts() {
		rec := a
		rec.Parent, rec.Phase, rec.Outcome = a.ID, audit.PhaseResult, string(sandbox.StatusLost)
		rec.Detail = "the server ended before the action did"
		rec.Args, rec.Millis = nil, time.Since(a.Time).Milliseconds()
		if _, err := log.AppendSync(ctx, rec); err != nil {
			return err
		}
		if a.Exec != "" && a.Action != audit.ActionToolCall {
			r.execs.AddLost(a)
		}
	}
	return nil
}
