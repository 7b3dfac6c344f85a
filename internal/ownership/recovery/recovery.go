package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// Recovery adopts what a former server left behind, and removes what no server knows.
type Recovery struct {
	specs      *savedspec.Specs
	audit      *audit.Log
	caps       driver.Capabilities
	copies     *copies.Copies
	runRoot    string
	driver     driver.Driver
	hooks      *hooks.Hooks
	install    string
	limits     *limits.Gate
	live       *instance.Map
	log        *slog.Logger
	orders     *lifecycle.Orders
	owners     *ownership.Owners
	peers      ownership.Peers
	places     *capacity.Places
	takeover   *ownership.Takeover
	settlement *Settlement
	volumes    *volumes.Volumes
	reaper     *Reaper
	seconds    sync.Map // replica that ended -> func() error: its second sandboxes are removed
}

// restore sets on an adopted instance what it was asked to be, and pauses it again when it was. It is not in the map yet.
func (v *Recovery) restore(ctx context.Context, inst *instance.Instance, paused bool) {
	if saved := v.specs.Read(inst.Thread); saved != nil && saved.Template == inst.Template.Name {
		inst.Saved.SetEnv(saved.Env)
	}
	v.orders.Save(inst)
	p, ok := v.driver.(driver.Pauser)
	if !paused || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lifecycle.CleanupTimeout)
	defer cancel()
	err := p.Pause(ctx, inst.ID)
	if err == nil {
		inst.ChangeState(sandbox.Running, sandbox.Paused)
		err = v.hooks.Publish(ctx, inst)
	}
	if err != nil {
		v.log.Warn("adopted sandbox not paused again", "sandbox", string(inst.ID), "error", err)
	}
}

// endSeconds removes second sandboxes before a thread of a former replica goes on: what still runs in them changes its
// files. Of a replica that ended all of them go, once; of one that does not answer those of the thread.
func (v *Recovery) endSeconds(ctx context.Context, t sandbox.Thread, former string) error {
	if former == v.peers.ID() || former == ownership.Nobody { // a handover has ended them
		return nil
	}
	end := func() error {
		found, err := v.driver.List(ctx, map[string]string{sandbox.LabelInstall: v.install, sandbox.LabelRole: sandbox.RoleSecond})
		if err != nil {
			return fmt.Errorf("second sandboxes: %w", err)
		}
		v.reaper.EndSeconds(ctx, found, t)
		return nil
	}
	if v.peers.Alive(former) {
		return end()
	}
	once, _ := v.seconds.LoadOrStore(former, sync.OnceValue(end))
	err := once.(func() error)() //nolint:errcheck,forcetypeassert // stored here alone
	if err != nil {
		v.seconds.Delete(former)
	}
	return err
}

// Inherit adopts the sandbox of a former replica, or removes it.
func (v *Recovery) Inherit(ctx context.Context, own *ownership.Ownership, former ownerrecord.OwnerRecord) error {
	if err := v.endSeconds(ctx, own.Thread, former.Replica); err != nil {
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the thread's sandboxes cannot be looked at now; try again"), v.owners.GiveBack(ctx, own, former))
	}
	entry, err := v.driver.Inspect(ctx, former.Sandbox)
	if errors.Is(err, sandbox.NotFound) || err == nil && entry.Labels[sandbox.LabelInstall] != v.install {
		v.reaper.ClearAway(former.Sandbox)
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
		ctx, cancel := deadline.Detached(ctx, lifecycle.CleanupTimeout)
		defer cancel()
		return errors.Join(sandbox.Wrap(sandbox.Unavailable, err, "the sandbox that the thread had cannot be removed now; try again"), v.owners.GiveBack(ctx, own, former))
	}
	return nil
}

// awake resumes a sandbox that was paused when its server ended: a frozen sandboxd does not dial.
func (v *Recovery) awake(ctx context.Context, entry *sandbox.Instance) error {
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

// Recover continues where the servers before stopped, however they stopped. It adopts sandboxes that no
// living server holds when they answer, else it removes them with their folders. Each exec that was under
// way gets its one terminal record. An exec cannot be taken over: its token and its callers died with the
// former server, so what still runs of it is killed.
func (v *Recovery) Recover(ctx context.Context) error {
	found, err := v.driver.List(ctx, map[string]string{sandbox.LabelInstall: v.install})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	v.reaper.EndSeconds(ctx, found, sandbox.Thread{})
	if err := v.recordFound(ctx, found); err != nil {
		return err
	}
	if err := v.settlement.closeOpenAttempts(ctx, v.audit); err != nil {
		return err
	}
	v.takeover.TakeOverExited(ctx)
	v.reaper.ReapFolders(found)
	return nil
}

// recordFound treats sandboxes that no owner record names as made by a server of an older version.
func (v *Recovery) recordFound(ctx context.Context, found []sandbox.Instance) error {
	var unclaimed []ownerrecord.OwnerRecord
	for _, entry := range found {
		t := hooks.ThreadOf(entry)
		if entry.Labels[sandbox.LabelRole] != "" || sandbox.CheckThreadID(t.ID) != nil { // not of a thread
			continue
		}
		if err := v.owners.RecordFor(ctx, t, entry.ID); err != nil {
			return err
		}
		unclaimed = append(unclaimed, ownerrecord.Of(t, "", 0, entry.ID))
	}
	// Sandboxes that a living server holds stay as they are.
	v.takeover.TakeOver(ctx, unclaimed, "")
	return nil
}

// adopt makes an instance of a sandbox that another server made, for a thread that is held. With an error there may
// be a part of it.
func (v *Recovery) adopt(ctx context.Context, own *ownership.Ownership, entry sandbox.Instance) (*instance.Instance, error) {
	t := own.Thread
	tmpl, ok := v.orders.Templates[entry.Labels[sandbox.LabelTemplate]]
	inst := instance.New(t, tmpl, sandbox.Info{
		ID: entry.ID, State: sandbox.Running, Template: tmpl.Name, Driver: v.caps.Name, Runtime: entry.Runtime,
		Warm: entry.Labels[sandbox.LabelRole] == sandbox.RolePool, CreatedAt: entry.CreatedAt, IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: instance.LoosenedOf(entry.Labels),
	})
	inst.SetOwnership(own)
	inst.Dir = instance.RunDir(filepath.Join(v.runRoot, string(entry.ID)))
	close(inst.Ready)
	if err := v.awake(ctx, &entry); err != nil {
		return inst, err
	}
	switch {
	case entry.State != sandbox.Running:
		return inst, fmt.Errorf("it is %s", entry.State)
	case !ok:
		return inst, errors.New("its template is gone")
	case v.live.Find(t) != nil:
		return inst, errors.New("its thread has another one")
	}
	if inst.FileSync = v.copies.Sync(inst.ID); inst.FileSync != nil {
		onVolume, err := v.volumes.Was(t)
		if err != nil {
			return inst, err
		}
		inst.FileSync.OnVolume = onVolume
	}
	v.copies.AskContexts(inst)
	return inst, v.hooks.Up(ctx, &hooks.Start{Way: hooks.Adopted, Instance: inst, Entry: entry})
}
