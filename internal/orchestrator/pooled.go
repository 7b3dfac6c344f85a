package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// poolRoot holds a folder for each sandbox that waits, "<sandbox>.<replica>", in the form of those of a user's
// threads. It is there before anything else of the sandbox is, and as long as no claim names it: so it says
// whose the run folder and the container are after a crash. No tenant's name begins with a dot.
func (r *Orchestrator) poolRoot() string {
	return filepath.Join(r.o.DataDir, "tenants", ".pool", "users", "pool", "threads")
}

// poolFolder is such a folder.
type poolFolder struct {
	path    string
	id      sandbox.ID
	replica string
}

// poolFolders lists what waits, or waited, on any server.
func (r *Orchestrator) poolFolders() ([]poolFolder, error) {
	entries, err := os.ReadDir(r.poolRoot())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	var list []poolFolder
	for _, e := range entries {
		id, replica, ok := strings.Cut(e.Name(), ".")
		if ok && len(id) == len(sandbox.NewID()) {
			list = append(list, poolFolder{path: filepath.Join(r.poolRoot(), e.Name()), id: sandbox.ID(id), replica: replica})
		}
	}
	return list, nil
}

// makePooled begins to make one, whose place is taken.
func (r *Orchestrator) makePooled(tp *templatePool) {
	now := time.Now().UTC()
	x := &pooled{made: now, instance: &instance{
		template: tp.template, id: sandbox.NewID(), ready: make(chan struct{}), gone: make(chan struct{}), asked: now,
		info: sandbox.Info{State: sandbox.Starting, Template: tp.template.Name, Driver: r.caps.Name, Runtime: tp.template.Runtime, Warm: true},
	}}
	x.fileSync = r.newFileSync(x.id)
	x.dir = filepath.Join(r.runRoot(), string(x.id))
	x.files = filepath.Join(r.poolRoot(), string(x.id)+"."+r.peers.ID())
	ctx, cancel := context.WithTimeout(r.ctx, r.o.StartTime)
	x.cancel = cancel
	r.pool.mu.Lock()
	r.pool.known[x.id] = true
	tp.making = append(tp.making, x)
	r.pool.mu.Unlock()
	r.wg.Go(func() {
		defer cancel()
		err := r.attemptPooled(ctx, x)
		if err != nil && r.ctx.Err() == nil {
			r.o.Log.Warn("no sandbox for the pool; tried again", "template", tp.template.Name, "error", err)
		}
		if !r.addIdle(tp, x, err) {
			r.discard(x, "unfinished")
		}
		r.pool.nudge()
	})
}

// addIdle puts one that is made where threads find it, if it is wanted. When not, it counts as leaving.
func (r *Orchestrator) addIdle(tp *templatePool, x *pooled, err error) bool {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	tp.making = slices.DeleteFunc(tp.making, func(y *pooled) bool { return x == y })
	if err == nil && !x.unwanted && r.ctx.Err() == nil {
		tp.idle, tp.pause = append(tp.idle, x), 0
		return true
	}
	if !x.unwanted {
		r.pool.leaving++
		tp.pause = min(max(2*tp.pause, firstPause), lastPause)
		tp.until = time.Now().Add(tp.pause)
	}
	return false
}

// attemptPooled makes one between the record of the attempt and that of its outcome.
func (r *Orchestrator) attemptPooled(ctx context.Context, x *pooled) error {
	rec := record(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxPool, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(x.id), x.template.Name
	recordLoosened(&rec, x.template.Loosened)
	attempt, err := r.o.Audit.Append(ctx, rec)
	if err != nil {
		return err
	}
	err = r.bringUpPooled(ctx, x)
	result := record(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxPool, audit.PhaseResult)
	result.Sandbox, result.Subject, result.Parent, result.Outcome = string(x.id), x.template.Name, attempt.ID, "ok"
	result.Millis = time.Since(x.made).Milliseconds()
	if err != nil {
		result.Outcome, result.Detail = "error", string(sandbox.KindOf(err))
	}
	_, e := r.o.Audit.Append(context.WithoutCancel(ctx), result)
	return errors.Join(err, e)
}

func (r *Orchestrator) bringUpPooled(ctx context.Context, x *pooled) (err error) {
	if x.uid, err = r.makeWorkspace(ctx, x.files, makeFolders); err != nil {
		return err
	}
	if err := os.MkdirAll(x.dir, 0o711); err != nil {
		return err
	}
	if x.skills.folder, err = r.o.Views.Folder(x.viewDir()); err != nil {
		return err
	}
	// What most users see; a claim changes what its own does not.
	if err := x.show(r.o.Skills.Everybody()); err != nil {
		return err
	}
	if err := r.openLink(x.instance); err != nil {
		return err
	}
	if x.image, err = r.preparedImage(ctx, x.template); err != nil { // before: a newer one counts as the older
		return err
	}
	if _, err := r.o.Driver.Create(ctx, r.pooledSpec(x)); err != nil {
		return err
	}
	if x.fileSync != nil {
		x.fileSync.Opened(true)
	}
	if err := x.hello(ctx); err != nil {
		return err
	}
	r.warm(x.instance, nil)
	return nil
}

// pooledSpec is as that of a thread's sandbox, but for the labels: they cannot be changed later.
func (r *Orchestrator) pooledSpec(x *pooled) sandbox.Spec {
	spec := r.specOf(x.instance, x.files)
	spec.Labels = map[string]string{
		sandbox.LabelInstall: r.o.Install, sandbox.LabelRole: sandbox.RolePool, sandbox.LabelUID: strconv.Itoa(x.uid),
		sandbox.LabelTemplate: x.template.Name, sandbox.LabelReplica: r.peers.ID(),
	}
	loosen(&spec, x.template.Loosened)
	return spec
}

// discard removes one that nobody gets, which counts as leaving. What cannot be removed now the sweep tries again.
func (r *Orchestrator) discard(x *pooled, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), removeTimeout)
	defer cancel()
	if err := x.letGo(); err != nil {
		r.o.Log.Warn("sockets not closed", "sandbox", string(x.id), "error", err)
	}
	err := r.o.Driver.Remove(ctx, x.id)
	r.endSkills(x.instance, err == nil)
	if err == nil {
		err = errors.Join(os.RemoveAll(x.dir), r.dropFiles(x.files, x.uid))
	}
	r.places.LeaveSpare()
	r.pool.mu.Lock()
	r.pool.leaving--
	delete(r.pool.known, x.id)
	r.pool.mu.Unlock()
	if err != nil {
		r.o.Log.Warn("a sandbox of the pool is not removed; tried again", "sandbox", string(x.id), "error", err)
	}
	r.o.Metrics.Changed(audit.ActionSandboxPool, why)
	rec := record(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxRemove, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(x.id), x.template.Name, "ok", "pool: "+why
	if _, err := r.o.Audit.Append(ctx, rec); err != nil {
		r.o.Log.Error("the audit log cannot be written", "error", err)
	}
}

// dropFiles removes the folder of one that waited: there is nothing in it. A missing one is no error.
func (r *Orchestrator) dropFiles(files string, uid int) error {
	if _, err := os.Lstat(files); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return r.o.Disk.Drop(files, uid)
}

// sweepPool removes what servers that ended had waiting, and what this one could not remove before. What a claim names is
// left to whoever takes that over.
func (r *Orchestrator) sweepPool() {
	folders, err := r.poolFolders()
	if err != nil {
		r.o.Log.Warn("pool not swept", "error", err)
		return
	}
	folders = slices.DeleteFunc(folders, func(f poolFolder) bool { return !r.stale(f) })
	if len(folders) == 0 {
		return
	}
	claims, err := r.owners.Book.All() // last: who could claim one of these now?
	if err != nil {
		r.o.Log.Error("claims not read", "error", err)
		return
	}
	claimed := map[sandbox.ID]bool{}
	for _, c := range claims {
		claimed[c.Sandbox] = true
	}
	for _, f := range folders {
		if r.ctx.Err() != nil {
			return
		}
		if !claimed[f.id] {
			r.noteReaped(sandbox.Thread{}, f.id, "a sandbox that waited in the pool of a server that ended", r.reapPooled(f))
		}
	}
}

// stale says whether nobody hands a sandbox out any more. Of ours the folder is looked at last: one that is
// not known any more because a thread has it has moved before.
func (r *Orchestrator) stale(f poolFolder) bool {
	if f.replica != r.peers.ID() {
		return !r.peers.Alive(f.replica)
	}
	if r.pool.isKnown(f.id) {
		return false
	}
	_, err := os.Lstat(f.path)
	return err == nil
}

func (r *Orchestrator) reapPooled(f poolFolder) error {
	ctx, cancel := context.WithTimeout(r.ctx, removeTimeout)
	defer cancel()
	uid, err := workspaceUID(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		uid, err = 0, nil // another server is removing it, or had begun to
	}
	if err != nil {
		return err
	}
	if err := r.o.Driver.Remove(ctx, f.id); err != nil {
		return err
	}
	r.clearAway(ctx, f.id)
	return r.dropFiles(f.path, uid)
}
