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
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
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
	x := &instance.Pooled{Made: now, Instance: instance.New(sandbox.Thread{}, tp.template, sandbox.Info{
		ID: sandbox.NewID(), State: sandbox.Starting, Template: tp.template.Name, Driver: r.caps.Name, Runtime: tp.template.Runtime, Warm: true,
	})}
	x.Asked = now
	x.FileSync = r.newFileSync(x.ID)
	x.Dir = instance.RunDir(filepath.Join(r.runRoot(), string(x.ID)))
	x.Files = filepath.Join(r.poolRoot(), string(x.ID)+"."+r.peers.ID())
	ctx, cancel := context.WithTimeout(r.ctx, r.o.StartTime)
	x.Cancel = cancel
	r.pool.mu.Lock()
	r.pool.known[x.ID] = true
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
func (r *Orchestrator) addIdle(tp *templatePool, x *instance.Pooled, err error) bool {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	tp.making = slices.DeleteFunc(tp.making, func(y *instance.Pooled) bool { return x == y })
	if err == nil && !x.Unwanted && r.ctx.Err() == nil {
		tp.idle, tp.pause = append(tp.idle, x), 0
		return true
	}
	if !x.Unwanted {
		r.pool.leaving++
		tp.pause = min(max(2*tp.pause, firstPause), lastPause)
		tp.until = time.Now().Add(tp.pause)
	}
	return false
}

// attemptPooled makes one between the record of the attempt and that of its outcome.
func (r *Orchestrator) attemptPooled(ctx context.Context, x *instance.Pooled) error {
	rec := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxPool, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(x.ID), x.Template.Name
	recordLoosened(&rec, x.Template.Loosened)
	attempt, err := r.o.Audit.Append(ctx, rec)
	if err != nil {
		return err
	}
	err = r.bringUpPooled(ctx, x)
	result := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxPool, audit.PhaseResult)
	result.Sandbox, result.Subject, result.Parent, result.Outcome = string(x.ID), x.Template.Name, attempt.ID, "ok"
	result.Millis = time.Since(x.Made).Milliseconds()
	if err != nil {
		result.Outcome, result.Detail = "error", string(sandbox.KindOf(err))
	}
	_, e := r.o.Audit.Append(context.WithoutCancel(ctx), result)
	return errors.Join(err, e)
}

func (r *Orchestrator) bringUpPooled(ctx context.Context, x *instance.Pooled) (err error) {
	if x.UID, err = r.folders.Make(ctx, x.Files, workspace.Fill); err != nil {
		return err
	}
	if err := os.MkdirAll(string(x.Dir), 0o711); err != nil {
		return err
	}
	if x.Skills.Folder, err = r.o.Views.Folder(x.Dir.View()); err != nil {
		return err
	}
	// What most users see; a claim changes what its own does not.
	if err := x.Show(r.o.Skills.Everybody()); err != nil {
		return err
	}
	if err := r.openLink(x.Instance); err != nil {
		return err
	}
	if x.Image, err = r.preparedImage(ctx, x.Template); err != nil { // before: a newer one counts as the older
		return err
	}
	if _, err := r.o.Driver.Create(ctx, r.pooledSpec(x)); err != nil {
		return err
	}
	if x.FileSync != nil {
		x.FileSync.Opened(true)
	}
	if err := x.Hello(ctx); err != nil {
		return err
	}
	r.Runs.Warm(x.Instance, nil)
	return nil
}

// pooledSpec is as that of a thread's sandbox, but for the labels: they cannot be changed later.
func (r *Orchestrator) pooledSpec(x *instance.Pooled) sandbox.Spec {
	spec := r.specOf(x.Instance, x.Files)
	spec.Labels = map[string]string{
		sandbox.LabelInstall: r.o.Install, sandbox.LabelRole: sandbox.RolePool, sandbox.LabelUID: strconv.Itoa(x.UID),
		sandbox.LabelTemplate: x.Template.Name, sandbox.LabelReplica: r.peers.ID(),
	}
	loosen(&spec, x.Template.Loosened)
	return spec
}

// discard removes one that no thread gets, which counts as leaving. What cannot be removed now the sweep tries again.
func (r *Orchestrator) discard(x *instance.Pooled, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), removeTimeout)
	defer cancel()
	if err := x.Close(); err != nil {
		r.o.Log.Warn("sockets not closed", "sandbox", string(x.ID), "error", err)
	}
	err := r.o.Driver.Remove(ctx, x.ID)
	r.Skills.End(x.Instance, err == nil)
	if err == nil {
		err = errors.Join(os.RemoveAll(string(x.Dir)), r.folders.Drop(x.Files, x.UID))
	}
	r.places.LeaveSpare()
	r.pool.mu.Lock()
	r.pool.leaving--
	delete(r.pool.known, x.ID)
	r.pool.mu.Unlock()
	if err != nil {
		r.o.Log.Warn("a sandbox of the pool is not removed; tried again", "sandbox", string(x.ID), "error", err)
	}
	r.o.Metrics.Changed(audit.ActionSandboxPool, why)
	rec := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxRemove, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(x.ID), x.Template.Name, "ok", "pool: "+why
	if _, err := r.o.Audit.Append(ctx, rec); err != nil {
		r.o.Log.Error("the audit log cannot be written", "error", err)
	}
}

// sweepPool removes what servers that ended had waiting, and what this one could not remove before. What a claim names is
// left to the server that takes that over.
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

// stale reports whether no server hands a sandbox out any more. Of ours the folder is looked at last: one that is
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
	uid, err := workspace.UID(f.path)
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
	return r.folders.Drop(f.path, uid)
}
