package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// recover brings this server to where those before it stopped, however that was: sandboxes that no living
// server holds are adopted when they answer, else removed with their folders, and each exec that was under
// way gets its one terminal record. An exec cannot be taken over: its token and its callers died with the
// former server, so what still runs of it is killed.
func (r *Orchestrator) recover(ctx context.Context) error {
	found, err := r.o.Driver.List(ctx, map[string]string{sandbox.LabelInstall: r.o.Install})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	if err := r.recordFound(ctx, found); err != nil {
		return err
	}
	if err := r.closeOpenAttempts(ctx, r.o.Audit); err != nil {
		return err
	}
	r.takeover.TakeOverExited(ctx)
	r.reapFolders(found)
	return nil
}

// recordFound takes the sandboxes that no owner record names, as those that a server of an older version made.
func (r *Orchestrator) recordFound(ctx context.Context, found []sandbox.Instance) error {
	var unclaimed []ownerrecord.OwnerRecord
	for _, entry := range found {
		t := threadOf(entry)
		if entry.Labels[sandbox.LabelRole] != "" || sandbox.CheckThreadID(t.ID) != nil { // not of a thread
			continue
		}
		if err := r.owners.RecordFor(ctx, t, entry.ID); err != nil {
			return err
		}
		unclaimed = append(unclaimed, ownerrecord.Of(t, "", 0, entry.ID))
	}
	// Those that a living server holds stay as they are.
	r.takeover.TakeOver(ctx, unclaimed, "")
	return nil
}

// threadOf reads the labels of a sandbox.
func threadOf(entry sandbox.Instance) sandbox.Thread {
	return sandbox.Thread{
		Owner: sandbox.Owner{Tenant: entry.Labels[sandbox.LabelTenant], User: entry.Labels[sandbox.LabelUser]},
		ID:    entry.Labels[sandbox.LabelThread],
	}
}

// adopt makes an instance of a sandbox that another server made, for a thread that is held. With an error there may
// be a part of it.
func (r *Orchestrator) adopt(ctx context.Context, own *ownership.Ownership, entry sandbox.Instance) (*instance.Instance, error) {
	t := own.Thread
	if err := r.awake(ctx, &entry); err != nil {
		return nil, err
	}
	tmpl, ok := r.o.Templates[entry.Labels[sandbox.LabelTemplate]]
	switch {
	case entry.State != sandbox.Running:
		return nil, fmt.Errorf("it is %s", entry.State)
	case !ok:
		return nil, errors.New("its template is gone")
	case r.find(t) != nil:
		return nil, errors.New("its thread has another one")
	}
	if err := r.threads.NotOutrun(ctx, t); err != nil {
		return nil, err
	}
	uid, err := workspace.UID(r.folders.Dir(t))
	if err != nil {
		return nil, fmt.Errorf("its workspace: %w", err)
	}
	if err := r.belongs(entry, t, uid); err != nil {
		return nil, err
	}
	inst := instance.New(t, tmpl, sandbox.Info{
		ID: entry.ID, State: sandbox.Running, Template: tmpl.Name, Driver: r.caps.Name, Runtime: entry.Runtime,
		Warm: entry.Labels[sandbox.LabelRole] == sandbox.RolePool, CreatedAt: entry.CreatedAt, IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: instance.LoosenedOf(entry.Labels),
	})
	inst.UID, inst.Ownership, inst.Dir = uid, own, instance.RunDir(filepath.Join(r.runRoot(), string(entry.ID)))
	close(inst.Ready)
	if inst.FileSync = r.copies.Sync(inst.ID); inst.FileSync != nil {
		onVolume, err := r.volumes.Was(t)
		if err != nil {
			return inst, err
		}
		inst.FileSync.OnVolume = onVolume
	}
	r.copies.AskContexts(inst)
	if _, err := os.Stat(inst.Dir.SecretFile()); err != nil {
		return inst, errors.New("its run folder is gone")
	}
	if _, err := os.Stat(inst.Dir.View()); err != nil {
		return inst, errors.New("a server of another version made it")
	}
	if inst.Skills.Folder, err = skills.OpenFolder(inst.Dir.View()); err != nil {
		return inst, err
	}
	if err := r.Skills.First(ctx, inst); err != nil {
		return inst, err
	}
	if err := r.folders.Bound(t, uid, tmpl.Limits.DiskBytes); err != nil {
		return inst, err
	}
	if err := r.open(inst); err != nil {
		return inst, err
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	if err := r.attachAdopted(ctx, inst); err != nil {
		return inst, err
	}
	if _, err := inst.Link.Conn(ctx); err != nil { // a call of its own waits for less
		return inst, fmt.Errorf("it does not dial: %w", err)
	}
	st, err := inst.Client.Status(ctx)
	if err != nil {
		return inst, fmt.Errorf("it does not answer: %w", err)
	}
	inst.SetRuntimes(st.GetLanguages())
	for _, e := range st.GetExecs() {
		if !e.GetRunning() {
			continue
		}
		if err := inst.Client.Kill(ctx, e.GetExecId()); err != nil {
			return inst, fmt.Errorf("an exec that still runs in it cannot be ended: %w", err)
		}
	}
	r.Contexts.Adopt(ctx, inst, st.GetContexts())
	if err := r.publish(ctx, inst); err != nil {
		return inst, err
	}
	r.loads.Watch(inst) // and weigh it: the server before may have died while it counted little
	return inst, nil
}

// attachAdopted connects this server with a sandbox whose disk is elsewhere. What the server before it changed last may
// not have come there, and what ran last may not have come from there: the next who looks sees to that.
func (r *Orchestrator) attachAdopted(ctx context.Context, inst *instance.Instance) error {
	if inst.FileSync == nil {
		return nil
	}
	if err := r.copies.Attach(ctx, inst, nil); err != nil {
		return err
	}
	inst.FileSync.Views.Add(sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir)
	inst.FileSync.Opened(false)
	return nil
}

// housekeeping forgets what is old, and removes what no server knows.
func (r *Orchestrator) housekeeping() {
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
		r.Contexts.Expire(r.ctx)
		r.reconcile(orphans)
	}
}

// reconcile removes sandboxes of this data folder that no owner record names, for instance because their
// removal failed the first time. One that is young may be in the middle of its creation, and one that was not
// an orphan before may be in the middle of a take-over: each is seen as one for a whole lease time first.
func (r *Orchestrator) reconcile(orphans map[sandbox.ID]time.Time) {
	ctx, cancel := context.WithTimeout(r.ctx, removeTimeout)
	defer cancel()
	found, err := r.o.Driver.List(ctx, map[string]string{sandbox.LabelInstall: r.o.Install})
	if err != nil {
		r.o.Log.Warn("sandboxes not listed", "error", err)
		return
	}
	strays := r.strayPooled(found)
	there := map[sandbox.ID]bool{}
	for _, entry := range found {
		if r.volumes.Left(entry) {
			if err := r.o.Driver.Remove(ctx, entry.ID); err != nil {
				r.o.Log.Warn("a sandbox for files alone was not removed", "sandbox", string(entry.ID), "error", err)
			}
			continue
		}
		if r.findSandbox(entry.ID) != nil || entry.Labels[sandbox.LabelRole] != "" && !strays[entry.ID] || time.Since(entry.CreatedAt) < r.o.StartTime {
			continue
		}
		c, ok, err := r.owners.Book.Read(threadOf(entry)) // after the list: an owner record comes before its sandbox
		if err != nil {
			r.o.Log.Error("owner record not read", "sandbox", string(entry.ID), "error", err)
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
func (r *Orchestrator) strayPooled(found []sandbox.Instance) map[sandbox.ID]bool {
	strays := map[sandbox.ID]bool{}
	for _, entry := range found {
		if entry.Labels[sandbox.LabelRole] == sandbox.RolePool && r.findSandbox(entry.ID) == nil {
			strays[entry.ID] = true
		}
	}
	if len(strays) == 0 {
		return nil
	}
	waiting, err := pool.RootIn(r.o.DataDir).List()
	if err != nil {
		r.o.Log.Warn("pool not read", "error", err)
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
		r.o.Log.Error("claims not read", "error", err)
		return nil
	}
	for _, c := range claims {
		delete(strays, c.Sandbox)
	}
	return strays
}

// removeOrphan removes a sandbox that no owner record names, while no replica can claim it.
func (r *Orchestrator) removeOrphan(ctx context.Context, entry sandbox.Instance) {
	page, err := r.owners.LockPage(ctx, threadOf(entry))
	if err != nil {
		r.o.Log.Warn("orphan sandbox not removed", "sandbox", string(entry.ID), "error", err)
		return
	}
	defer page.Close()
	if c, ok, err := page.Record(); err != nil || ok && c.Sandbox == entry.ID {
		return
	}
	err = r.o.Driver.Remove(ctx, entry.ID)
	if err == nil {
		r.clearAway(entry.ID)
	}
	r.noteReaped(threadOf(entry), entry.ID, "a sandbox that nobody knew", err)
}
