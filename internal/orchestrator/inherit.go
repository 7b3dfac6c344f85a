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
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
)

// settlement writes the results that servers which exited still owe.
type settlement struct {
	execs        *execution.Registry
	openAudit    func(slot int) (*audit.Log, error)
	sweepReplica func(ctx context.Context, replica string) error
}

// Inherit adopts the sandbox of a former replica, or removes it.
func (v *recovery) Inherit(ctx context.Context, own *ownership.Ownership, former ownerrecord.OwnerRecord) error {
	entry, err := v.driver.Inspect(ctx, former.Sandbox)
	if errors.Is(err, sandbox.NotFound) || err == nil && entry.Labels[sandbox.LabelInstall] != v.install {
		v.reaper.clearAway(former.Sandbox)
		return nil
	}
	if err != nil { // the engine is away: what became of the sandbox is unknown
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the thread's sandbox cannot be looked at now; try again"), v.owners.GiveBack(ctx, own, former))
	}
	why := errors.New("this server could not remove it before")
	inst := &instance.Instance{Thread: own.Thread, ID: entry.ID, Dir: instance.RunDir(filepath.Join(v.runRoot, string(entry.ID)))}
	if former.Replica != v.peers.ID() {
		inst, why = v.adopt(ctx, own, entry)
	}
	if why == nil {
		v.restore(ctx, inst, entry.State == sandbox.Paused)
		_, why = v.live.Put(own.Thread, func(other *instance.Instance) (*instance.Instance, error) {
			if other != nil {
				return nil, errors.New("its thread has begun another one")
			}
			inst.Seat.Slot = v.places.Seat(inst.Thread.Tenant) // whatever the limits are now
			inst.Seat.Sit(v.limits.Seat(sandbox.Caller{Owner: inst.Thread.Owner}, inst.ID))
			return inst, nil
		})
	}
	if why == nil {
		v.owners.Retain(own) // by the instance
		v.log.Info("sandbox adopted", "thread", own.Thread.String(), "sandbox", string(entry.ID), "from", former.Replica)
		rec := audit.About(sandbox.Caller{}, own.Thread, audit.ActionSandboxAdopt, audit.PhaseResult)
		rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(entry.ID), inst.Template.Name, "ok", "from "+former.Replica
		if _, err := v.audit.Append(ctx, rec); err != nil {
			v.log.Error("adoption not recorded", "sandbox", string(entry.ID), "error", err)
		}
		return nil
	}
	var higher *copies.FencedError
	if errors.As(why, &higher) && !v.owners.Confirm(own) { // it is another server's by now, to be left alone
		return errors.Join(&ownership.Elsewhere{}, v.hooks.Undo(ctx, inst, true))
	}
	v.log.Info("sandbox of a former server removed", "sandbox", string(entry.ID), "why", why)
	if err := v.hooks.Undo(ctx, inst, false); err != nil {
		ctx, cancel := deadline.Detached(ctx, cleanupTimeout)
		defer cancel()
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the sandbox that the thread had cannot be removed now; try again"), v.owners.GiveBack(ctx, own, former))
	}
	return nil
}

// clearAway removes the run folder of a sandbox that no longer exists.
func (r *reaper) clearAway(id sandbox.ID) {
	if id == "" {
		return
	}
	if err := os.RemoveAll(filepath.Join(r.runRoot, string(id))); err != nil {
		r.log.Error("run folder not removed", "sandbox", string(id), "error", err)
	}
}

// awake resumes a sandbox that was paused when its server ended: a frozen sandboxd does not dial.
func (v *recovery) awake(ctx context.Context, entry *sandbox.Instance) error {
	p, ok := v.driver.(driver.Pauser)
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
func (s *settlement) Settle(ctx context.Context, d ownership.ExitedReplica) error {
	if s.sweepReplica != nil {
		if err := s.sweepReplica(ctx, d.Replica); err != nil {
			return err
		}
	}
	if s.openAudit == nil {
		return nil
	}
	log, err := s.openAudit(d.Slot)
	if err != nil {
		return fmt.Errorf("its audit log: %w", err)
	}
	err = s.closeOpenAttempts(ctx, log)
	return errors.Join(err, log.Close())
}

// closeOpenAttempts writes the one result of every action that a log's writer began and did not end.
func (s *settlement) closeOpenAttempts(ctx context.Context, log *audit.Log) error {
	for _, a := range log.OpenAttempts() {
		rec := a
		rec.Parent, rec.Phase, rec.Outcome = a.ID, audit.PhaseResult, string(sandbox.StatusLost)
		rec.Detail = "the server ended before the action did"
		rec.Args, rec.Millis = nil, time.Since(a.Time).Milliseconds()
		if _, err := log.AppendSync(ctx, rec); err != nil {
			return err
		}
		if a.Exec != "" && a.Action != audit.ActionToolCall {
			s.execs.AddLost(a)
		}
	}
	return nil
}

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
