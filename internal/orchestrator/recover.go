package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skill"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// recover brings this server to where the one before it stopped, however that was: sandboxes that
// answer are adopted, the others removed with their folders, and each exec that was under way gets
// its one terminal record. An exec cannot be taken over: its token and its callers died with the
// former server, so what still runs of it is killed.
func (r *Orchestrator) recover(ctx context.Context) error {
	highest, err := r.highestUID()
	if err != nil {
		return fmt.Errorf("workspaces: %w", err)
	}
	if highest >= firstUID {
		// Takes the next one and leaves it unused: uids are many.
		if _, err := r.o.Store.NextUID(ctx, highest+1); err != nil {
			return fmt.Errorf("uid counter: %w", err)
		}
	}
	found, err := r.o.Driver.List(ctx, map[string]string{sandbox.LabelInstall: r.o.Install})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	var wg sync.WaitGroup
	for _, inst := range found {
		if inst.Labels[sandbox.LabelRole] != "" { // not of a thread
			continue
		}
		wg.Go(func() { r.adoptOrRemove(ctx, inst) })
	}
	wg.Wait()
	r.sweepRunFolders()
	return r.closeOpenAttempts(ctx)
}

func (r *Orchestrator) adoptOrRemove(ctx context.Context, inst sandbox.Instance) {
	b, err := r.adopt(ctx, inst)
	if err == nil {
		r.mu.Lock()
		r.boxes[b.thread] = b
		r.mu.Unlock()
		r.o.Log.Info("sandbox adopted", "thread", b.thread.String(), "sandbox", string(inst.ID))
		return
	}
	r.o.Log.Info("sandbox of a former server removed", "sandbox", string(inst.ID), "why", err)
	if b != nil {
		if err := b.letGo(); err != nil {
			r.o.Log.Warn("sockets not closed", "error", err)
		}
	}
	ctx, cancel := detached(ctx, removeTimeout)
	defer cancel()
	if err := r.o.Driver.Remove(ctx, inst.ID); err != nil {
		r.o.Log.Error("sandbox not removed; tried again later", "sandbox", string(inst.ID), "error", err)
	}
}

func (r *Orchestrator) adopt(ctx context.Context, inst sandbox.Instance) (*box, error) {
	t := sandbox.Thread{
		Owner: sandbox.Owner{Tenant: inst.Labels[sandbox.LabelTenant], User: inst.Labels[sandbox.LabelUser]},
		ID:    inst.Labels[sandbox.LabelThread],
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
	uid, err := workspaceUID(r.threadDir(t))
	if err != nil {
		return nil, fmt.Errorf("its workspace: %w", err)
	}
	b := &box{
		thread: t, template: tmpl, id: inst.ID, uid: uid, dir: filepath.Join(r.runRoot(), string(inst.ID)),
		ready: make(chan struct{}), gone: make(chan struct{}), lastActive: time.Now(),
		info: sandbox.Info{
			ID: inst.ID, State: sandbox.Running, Template: tmpl.Name, Driver: r.caps.Name, Runtime: inst.Runtime,
			CreatedAt: inst.CreatedAt, IdleTimeoutSeconds: tmpl.IdleSeconds,
		},
	}
	close(b.ready)
	if _, err := os.Stat(b.secretFile()); err != nil {
		return b, errors.New("its run folder is gone")
	}
	if _, err := r.o.Store.AcquireLease(ctx, t, r.o.Install, leaseTime); err != nil {
		return b, err
	}
	if _, err := os.Stat(b.viewDir()); err != nil {
		return b, errors.New("a server of another version made it")
	}
	if b.skills.folder, err = skill.OpenFolder(b.viewDir()); err != nil {
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
	return b, r.o.Store.PutSandbox(ctx, t, store.SandboxRecord{ID: b.id, Info: b.info, Replica: r.o.Install})
}

// sweepRunFolders removes the run folders of sandboxes that are no more.
func (r *Orchestrator) sweepRunFolders() {
	entries, err := os.ReadDir(r.runRoot())
	if err != nil {
		r.o.Log.Error("run folder not read", "error", err)
		return
	}
	keep := map[string]bool{}
	for _, b := range r.all() {
		keep[string(b.id)] = true
	}
	for _, e := range entries {
		if keep[e.Name()] || len(e.Name()) != len(sandbox.NewID()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(r.runRoot(), e.Name())); err != nil {
			r.o.Log.Error("run folder not removed", "folder", e.Name(), "error", err)
		}
	}
}

// closeOpenAttempts gives every action that a former server began and did not end its one result.
func (r *Orchestrator) closeOpenAttempts(ctx context.Context) error {
	for _, a := range r.o.Audit.OpenAttempts() {
		rec := a
		rec.Parent, rec.Phase, rec.Outcome = a.ID, audit.PhaseResult, string(sandbox.StatusLost)
		rec.Detail = "the server ended before the action did"
		rec.Args, rec.Millis = nil, time.Since(a.Time).Milliseconds()
		if err := r.note(ctx, rec); err != nil {
			return err
		}
		if a.Exec != "" && a.Action != audit.ActionToolCall {
			r.execs.addLost(a)
		}
	}
	return nil
}

// housekeeping renews leases, ends idle sandboxes, and removes sandboxes that nobody knows.
func (r *Orchestrator) housekeeping() {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		for _, b := range r.all() {
			r.keep(b)
		}
		r.execs.expire(time.Now())
		r.expireContexts()
		r.reconcile()
	}
}

// keep renews the lease of a box, or ends it when it has been idle for too long. A lease that cannot
// be renewed is no reason to end anything: Redis may be away.
func (r *Orchestrator) keep(b *box) {
	ctx, cancel := context.WithTimeout(r.ctx, removeTimeout)
	defer cancel()
	select {
	case <-b.ready:
	default:
		return
	}
	b.mu.Lock()
	idle := b.running == 0 && b.ending == "" && b.template.IdleSeconds > 0 && time.Since(b.lastActive) > time.Duration(b.template.IdleSeconds)*time.Second
	b.mu.Unlock()
	if idle {
		if err := r.retire(ctx, sandbox.Caller{}, b, sandbox.StatusKilled, "idle"); err != nil {
			r.o.Log.Error("idle sandbox not removed", "thread", b.thread.String(), "error", err)
		}
		return
	}
	err := r.o.Store.RenewLease(ctx, b.thread, r.o.Install, leaseTime)
	if errors.Is(err, sandbox.NotFound) { // Redis lost it, or was away for longer than it lasts
		_, err = r.o.Store.AcquireLease(ctx, b.thread, r.o.Install, leaseTime)
	}
	if err != nil {
		r.o.Log.Warn("lease not renewed", "thread", b.thread.String(), "error", err)
	}
}

// reconcile removes sandboxes of this data folder that no box stands for, for instance because their
// removal failed the first time. One that is young may be in the middle of its creation.
func (r *Orchestrator) reconcile() {
	ctx, cancel := context.WithTimeout(r.ctx, removeTimeout)
	defer cancel()
	found, err := r.o.Driver.List(ctx, map[string]string{sandbox.LabelInstall: r.o.Install})
	if err != nil {
		r.o.Log.Warn("sandboxes not listed", "error", err)
		return
	}
	known := map[sandbox.ID]bool{}
	for _, b := range r.all() {
		known[b.id] = true
	}
	for _, inst := range found {
		if known[inst.ID] || inst.Labels[sandbox.LabelRole] != "" || time.Since(inst.CreatedAt) < r.o.StartTime {
			continue
		}
		r.o.Log.Info("orphan sandbox removed", "sandbox", string(inst.ID))
		if err := r.o.Driver.Remove(ctx, inst.ID); err != nil {
			r.o.Log.Warn("orphan sandbox not removed", "sandbox", string(inst.ID), "error", err)
		}
	}
}
