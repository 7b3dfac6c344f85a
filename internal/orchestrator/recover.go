package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
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
	if err := r.claimFound(ctx, found); err != nil {
		return err
	}
	if err := r.closeOpenAttempts(ctx, r.o.Audit); err != nil {
		return err
	}
	r.takeOverDead(ctx)
	r.reapFolders(found)
	return nil
}

// claimFound takes the sandboxes that no claim names, as those that a server of an older version made.
func (r *Orchestrator) claimFound(ctx context.Context, found []sandbox.Instance) error {
	var unclaimed []ownerrecord.Claim
	for _, inst := range found {
		t := threadOf(inst)
		if inst.Labels[sandbox.LabelRole] != "" || sandbox.CheckThreadID(t.ID) != nil { // not of a thread
			continue
		}
		if err := r.claimFor(ctx, t, inst.ID); err != nil {
			return err
		}
		unclaimed = append(unclaimed, ownerrecord.Of(t, "", 0, inst.ID))
	}
	// Those that a living server holds stay as they are.
	r.takeOver(ctx, unclaimed, "")
	return nil
}

// claimFor writes a claim of nobody for a sandbox, when its thread has none.
func (r *Orchestrator) claimFor(ctx context.Context, t sandbox.Thread, id sandbox.ID) error {
	page, err := r.lockPage(ctx, t)
	if err != nil {
		return err
	}
	defer page.Close()
	if _, ok, err := page.Claim(); err != nil || ok {
		return err
	}
	return page.Write(ownerrecord.Of(t, nobody, 0, id))
}

// nobody is in a claim the replica that never was.
const nobody = "nobody"

// threadOf reads the labels of a sandbox.
func threadOf(inst sandbox.Instance) sandbox.Thread {
	return sandbox.Thread{
		Owner: sandbox.Owner{Tenant: inst.Labels[sandbox.LabelTenant], User: inst.Labels[sandbox.LabelUser]},
		ID:    inst.Labels[sandbox.LabelThread],
	}
}

// adopt makes a box of a sandbox that another server made, for a thread that is held. With an error there may
// be a part of it.
func (r *Orchestrator) adopt(ctx context.Context, h *hold, inst sandbox.Instance) (*box, error) {
	t := h.thread
	if err := r.awake(ctx, &inst); err != nil {
		return nil, err
	}
	tmpl, ok := r.o.Templates[inst.Labels[sandbox.LabelTemplate]]
	switch {
	case inst.State != sandbox.Running:
		return nil, fmt.Errorf("it is %s", inst.State)
	case !ok:
		return nil, errors.New("its template is gone")
	case r.find(t) != nil:
		return nil, errors.New("its thread has another one")
	}
	if err := r.notOutrun(ctx, t); err != nil {
		return nil, err
	}
	uid, err := workspaceUID(r.threadDir(t))
	if err != nil {
		return nil, fmt.Errorf("its workspace: %w", err)
	}
	if err := r.belongs(inst, t, uid); err != nil {
		return nil, err
	}
	b := &box{
		thread: t, template: tmpl, id: inst.ID, uid: uid, hold: h, dir: filepath.Join(r.runRoot(), string(inst.ID)),
		ready: make(chan struct{}), gone: make(chan struct{}), lastActive: time.Now(),
		info: sandbox.Info{
			ID: inst.ID, State: sandbox.Running, Template: tmpl.Name, Driver: r.caps.Name, Runtime: inst.Runtime,
			Warm: inst.Labels[sandbox.LabelRole] == sandbox.RolePool, CreatedAt: inst.CreatedAt, IdleTimeoutSeconds: tmpl.IdleSeconds, Loosened: loosenedOf(inst.Labels),
		},
	}
	close(b.ready)
	if b.copies = r.newCopies(b.id); b.copies != nil {
		state, err := r.volumeState(t)
		if err != nil {
			return b, err
		}
		b.copies.kept = state != nil
	}
	r.watchContexts(b)
	if _, err := os.Stat(b.secretFile()); err != nil {
		return b, errors.New("its run folder is gone")
	}
	if _, err := os.Stat(b.viewDir()); err != nil {
		return b, errors.New("a server of another version made it")
	}
	if b.skills.folder, err = skills.OpenFolder(b.viewDir()); err != nil {
		return b, err
	}
	if err := r.firstSkills(ctx, b); err != nil {
		return b, err
	}
	if err := r.bound(t, uid, tmpl.Limits.DiskBytes); err != nil {
		return b, err
	}
	if err := r.open(b); err != nil {
		return b, err
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	if err := r.attachAdopted(ctx, b); err != nil {
		return b, err
	}
	if _, err := b.link.Conn(ctx); err != nil { // a call of its own waits for less
		return b, fmt.Errorf("it does not dial: %w", err)
	}
	st, err := b.client.Status(ctx)
	if err != nil {
		return b, fmt.Errorf("it does not answer: %w", err)
	}
	b.languages = st.GetLanguages()
	for _, e := range st.GetExecs() {
		if !e.GetRunning() {
			continue
		}
		if err := b.client.Kill(ctx, e.GetExecId()); err != nil {
			return b, fmt.Errorf("an exec that still runs in it cannot be ended: %w", err)
		}
	}
	r.adoptContexts(ctx, b, st.GetContexts())
	if err := r.publish(ctx, b); err != nil {
		return b, err
	}
	r.watchLoad(b) // and weigh it: the server before may have died while it counted little
	return b, nil
}

// attachAdopted connects this server with a sandbox whose disk is elsewhere. What the server before it changed last may
// not have come there, and what ran last may not have come from there: the next who looks sees to that.
func (r *Orchestrator) attachAdopted(ctx context.Context, b *box) error {
	if b.copies == nil {
		return nil
	}
	if err := r.attach(ctx, b, nil); err != nil {
		return err
	}
	b.copies.views.owe(sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir)
	b.copies.opened(false)
	return nil
}

// housekeeping forgets what is old, and removes what nobody knows.
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
		r.execs.expire(time.Now())
		r.expireContexts()
		r.reconcile(orphans)
	}
}

// reconcile removes sandboxes of this data folder that no claim names, for instance because their
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
	for _, inst := range found {
		if r.leftForFiles(inst) {
			if err := r.o.Driver.Remove(ctx, inst.ID); err != nil {
				r.o.Log.Warn("a sandbox for files alone was not removed", "sandbox", string(inst.ID), "error", err)
			}
			continue
		}
		if r.findSandbox(inst.ID) != nil || inst.Labels[sandbox.LabelRole] != "" && !strays[inst.ID] || time.Since(inst.CreatedAt) < r.o.StartTime {
			continue
		}
		c, ok, err := r.claims.Read(threadOf(inst)) // after the list: a claim comes before its sandbox
		if err != nil {
			r.o.Log.Error("claim not read", "sandbox", string(inst.ID), "error", err)
		}
		if err != nil || ok && c.Sandbox == inst.ID {
			continue
		}
		there[inst.ID] = true
		since, seen := orphans[inst.ID]
		if !seen {
			orphans[inst.ID] = time.Now()
		} else if time.Since(since) > leaseTime {
			r.removeOrphan(ctx, inst)
		}
	}
	for id := range orphans {
		if !there[id] {
			delete(orphans, id)
		}
	}
	r.reapFolders(found)
}

// strayPooled gives the sandboxes made for the pool that neither wait in it nor have a claim. Their labels do not
// say which thread's claim that could be, so all are read, when there is one to look for.
func (r *Orchestrator) strayPooled(found []sandbox.Instance) map[sandbox.ID]bool {
	strays := map[sandbox.ID]bool{}
	for _, inst := range found {
		if inst.Labels[sandbox.LabelRole] == sandbox.RolePool && r.findSandbox(inst.ID) == nil {
			strays[inst.ID] = true
		}
	}
	if len(strays) == 0 {
		return nil
	}
	waiting, err := r.poolFolders()
	if err != nil {
		r.o.Log.Warn("pool not read", "error", err)
		return nil
	}
	for _, f := range waiting {
		delete(strays, f.id)
	}
	if len(strays) == 0 {
		return nil
	}
	claims, err := r.claims.All() // after the pool: a claim comes before its folder moves
	if err != nil {
		r.o.Log.Error("claims not read", "error", err)
		return nil
	}
	for _, c := range claims {
		delete(strays, c.Sandbox)
	}
	return strays
}

// removeOrphan removes a sandbox that no claim names, while nobody can claim it.
func (r *Orchestrator) removeOrphan(ctx context.Context, inst sandbox.Instance) {
	page, err := r.lockPage(ctx, threadOf(inst))
	if err != nil {
		r.o.Log.Warn("orphan sandbox not removed", "sandbox", string(inst.ID), "error", err)
		return
	}
	defer page.Close()
	if c, ok, err := page.Claim(); err != nil || ok && c.Sandbox == inst.ID {
		return
	}
	err = r.o.Driver.Remove(ctx, inst.ID)
	if err == nil {
		r.clearAway(ctx, inst.ID)
	}
	r.noteReaped(threadOf(inst), inst.ID, "a sandbox that nobody knew", err)
}
