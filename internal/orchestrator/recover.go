package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// recovery adopts what a former server left behind, and removes what no server knows.
type recovery struct {
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
	orders     *orders
	owners     *ownership.Owners
	peers      ownership.Peers
	places     *capacity.Places
	takeover   *ownership.Takeover
	templates  map[string]instance.Template
	volumes    *volumes.Volumes
	reaper     *reaper
	settlement *settlement
}

// recover continues where the servers before stopped, however that was: sandboxes that no living
// server holds are adopted when they answer, else removed with their folders, and each exec that was under
// way gets its one terminal record. An exec cannot be taken over: its token and its callers died with the
// former server, so what still runs of it is killed.
func (v *recovery) recover(ctx context.Context) error {
	found, err := v.driver.List(ctx, map[string]string{sandbox.LabelInstall: v.install})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	if err := v.recordFound(ctx, found); err != nil {
		return err
	}
	if err := v.settlement.closeOpenAttempts(ctx, v.audit); err != nil {
		return err
	}
	v.takeover.TakeOverExited(ctx)
	v.reaper.reapFolders(found)
	return nil
}

// recordFound takes the sandboxes that no owner record names, as those that a server of an older version made.
func (v *recovery) recordFound(ctx context.Context, found []sandbox.Instance) error {
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
	// Those that a living server holds stay as they are.
	v.takeover.TakeOver(ctx, unclaimed, "")
	return nil
}

// adopt makes an instance of a sandbox that another server made, for a thread that is held. With an error there may
// be a part of it.
func (v *recovery) adopt(ctx context.Context, own *ownership.Ownership, entry sandbox.Instance) (*instance.Instance, error) {
	t := own.Thread
	tmpl, ok := v.templates[entry.Labels[sandbox.LabelTemplate]]
	inst := instance.New(t, tmpl, sandbox.Info{
		ID: entry.ID, State: sandbox.Running, Template: tmpl.Name, Driver: v.caps.Name, Runtime: entry.Runtime,
		Warm: entry.Labels[sandbox.LabelRole] == sandbox.RolePool, CreatedAt: entry.CreatedAt, IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: instance.LoosenedOf(entry.Labels),
	})
	inst.Ownership, inst.Dir = own, instance.RunDir(filepath.Join(v.runRoot, string(entry.ID)))
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

// housekeeping forgets what is old, and removes what no server knows.
func (r *reaper) housekeeping() {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	orphans := map[sandbox.ID]time.Time{}
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		r.execs.Expire(time.Now())
		r.contexts.Expire(r.ctx)
		r.reconcile(orphans)
	}
}

// reconcile removes sandboxes of this data folder that no owner record names, for instance because their
// removal failed the first time. A young one may be in the middle of its creation, and a folder that was not
// an orphan before may be in the middle of a take-over: each is seen as one for a whole lease time first.
func (r *reaper) reconcile(orphans map[sandbox.ID]time.Time) {
	ctx, cancel := context.WithTimeout(r.ctx, removeTimeout)
	defer cancel()
	found, err := r.driver.List(ctx, map[string]string{sandbox.LabelInstall: r.install})
	if err != nil {
		r.log.Warn("sandboxes not listed", "error", err)
		return
	}
	strays := r.strayPooled(found)
	there := map[sandbox.ID]bool{}
	for _, entry := range found {
		if r.volumes.Left(entry) {
			if err := r.driver.Remove(ctx, entry.ID); err != nil {
				r.log.Warn("a sandbox for files alone was not removed", "sandbox", string(entry.ID), "error", err)
			}
			continue
		}
		if r.live.FindID(entry.ID) != nil || entry.Labels[sandbox.LabelRole] != "" && !strays[entry.ID] || time.Since(entry.CreatedAt) < r.startTime {
			continue
		}
		c, ok, err := r.owners.Book.Read(hooks.ThreadOf(entry)) // after the list: an owner record comes before its sandbox
		if err != nil {
			r.log.Error("owner record not read", "sandbox", string(entry.ID), "error", err)
		}
		if err != nil || ok && c.Sandbox == entry.ID {
			continue
		}
		there[entry.ID] = true
		since, seen := orphans[entry.ID]
		if !seen {
			orphans[entry.ID] = time.Now()
		} else if time.Since(since) > ownership.LeaseTime {
			r.removeOrphan(ctx, entry)
		}
	}
	for id := range orphans {
		if !there[id] {
			delete(orphans, id)
		}
	}
	r.reapFolders(found)
}

// strayPooled returns the sandboxes made for the pool that neither wait in it nor have an owner record. Their labels do not
// say which thread's owner record that could be, so all are read, when there is one to look for.
func (r *reaper) strayPooled(found []sandbox.Instance) map[sandbox.ID]bool {
	strays := map[sandbox.ID]bool{}
	for _, entry := range found {
		if entry.Labels[sandbox.LabelRole] == sandbox.RolePool && r.live.FindID(entry.ID) == nil {
			strays[entry.ID] = true
		}
	}
	if len(strays) == 0 {
		return nil
	}
	waiting, err := pool.RootIn(r.dataDir).List()
	if err != nil {
		r.log.Warn("pool not read", "error", err)
		return nil
	}
	for _, f := range waiting {
		delete(strays, f.ID)
	}
	if len(strays) == 0 {
		return nil
	}
	claims, err := r.owners.Book.All() // after the pool: an owner record comes before its folder moves
	if err != nil {
		r.log.Error("claims not read", "error", err)
		return nil
	}
	for _, c := range claims {
		delete(strays, c.Sandbox)
	}
	return strays
}

// removeOrphan removes a sandbox that no owner record names, while no replica can claim it.
func (r *reaper) removeOrphan(ctx context.Context, entry sandbox.Instance) {
	page, err := r.owners.LockPage(ctx, hooks.ThreadOf(entry))
	if err != nil {
		r.log.Warn("orphan sandbox not removed", "sandbox", string(entry.ID), "error", err)
		return
	}
	defer page.Close()
	if c, ok, err := page.Record(); err != nil || ok && c.Sandbox == entry.ID {
		return
	}
	err = r.driver.Remove(ctx, entry.ID)
	if err == nil {
		r.clearAway(entry.ID)
	}
	r.noteReaped(hooks.ThreadOf(entry), entry.ID, "a sandbox without a record", err)
}
