package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// How a thread gets a sandbox of the pool. First its claim names the sandbox, then the folder moves: a server that finds the
// claim after a crash compares the owner of the thread's workspace with the sandbox's uid, which no other
// workspace ever has. The same: it has moved, and the sandbox is the thread's. Another or none: it has not, and
// the sandbox is removed. Nothing has run in it by then, so that nothing is lost.
//
// A thread that has files keeps its folder: they are copied into the sandbox, where that has a disk of its own. When all of
// them are there, a note in the sandbox's folder says whose they are, and only then may anything run. Until the
// note is there the sandbox belongs to no thread, and nothing is ever copied from it. One that got a part of them goes back to no pool.

// aliveTimeout bounds the question whether a sandbox of the pool still answers.
const aliveTimeout = 10 * time.Second

// errNotFilled tells a caller to ask for a sandbox that is made for the thread.
var errNotFilled = sandbox.Errorf(sandbox.Unavailable, "a sandbox that waited could not be given the thread's files; try again")

// takePooled takes a sandbox of the pool for a thread, and makes its place the tenant's; nil: there is none, or the thread
// may have none. Where sandboxes see the server's disk only a thread without files can: its files are those of the
// sandbox from then on. The caller holds Orchestrator.mu.
func (r *Orchestrator) takePooled(t sandbox.Thread, o order) (*instance.Pooled, *capacity.Ticket) {
	if !r.pool.Any() || o.cold {
		return nil, nil
	}
	if _, err := workspace.UID(r.folders.Dir(t)); !errors.Is(err, fs.ErrNotExist) && (err != nil || !r.copies.Apart()) {
		return nil, nil
	}
	x := r.pool.Pick(o.template.Name)
	if x == nil {
		return nil, nil
	}
	place, ok := r.places.Exchange(t.Tenant)
	if !ok { // the tenant waits for a place
		r.pool.PutBack(x)
		return nil, nil
	}
	return x, place
}

// bringUpClaimed makes a sandbox of the pool the thread's, which is held.
func (r *Orchestrator) bringUpClaimed(ctx context.Context, c sandbox.Caller, inst *instance.Instance, queued time.Duration) error {
	began := time.Now()
	x := inst.Pooled
	moved, err := r.passWorkspace(ctx, inst.Thread, x)
	if err != nil {
		return err
	}
	// The disk may take its time; no caller sees the thread before it has.
	synced := make(chan error, 1)
	r.wg.Go(func() { synced <- lockedfile.SyncDir(filepath.Dir(r.folders.Dir(inst.Thread))) })
	uid, err := r.threads.Ensure(ctx, inst.Thread)
	if err != nil {
		return err
	}
	if moved && uid != x.UID { // it was deleted and made anew meanwhile
		return instance.ErrGivenUp
	}
	inst.UID = uid
	if err := r.folders.Bound(inst.Thread, inst.UID, inst.Template.Limits.DiskBytes); err != nil {
		return err
	}
	if err := r.openBridge(inst); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
	}
	if err := r.attachClaimed(ctx, inst); err != nil {
		return err
	}
	if !moved {
		if err := r.fillClaimed(ctx, inst); err != nil {
			return errors.Join(errNotFilled, err)
		}
	}
	if inst.FileSync != nil {
		inst.FileSync.Opened(true)
	}
	r.pool.Forget(x.ID)
	tools := r.firstTools(c, inst)
	err = r.Skills.First(ctx, inst)
	claimed := time.Now()
	if err == nil {
		err = r.answers(ctx, inst)
	}
	if err == nil {
		err = r.copies.UpToDate(ctx, inst)
	}
	if e := <-synced; err == nil && e != nil {
		err = workspace.NoRoom(e, "the thread's files cannot be made")
	}
	if err == nil && !r.owners.Confirm(inst.Ownership) {
		err = ownership.NotHere(&ownership.Elsewhere{})
	}
	if err != nil {
		return errors.Join(err, <-tools) // they write into the instance's folder, which goes now
	}
	return r.markRunning(ctx, inst, sandbox.Timings{Queue: millis(queued), Create: millis(claimed.Sub(began)), Ready: millis(time.Since(claimed))}, tools)
}

// attachClaimed makes a sandbox with a disk of its own the thread's: what it writes goes into the thread's folder. One that
// cannot be reached is given up for another.
func (r *Orchestrator) attachClaimed(ctx context.Context, inst *instance.Instance) error {
	if inst.FileSync == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	err := r.copies.Attach(limited, inst, map[string]string{
		sandbox.LabelTenant: inst.Thread.Tenant, sandbox.LabelUser: inst.Thread.User, sandbox.LabelThread: inst.Thread.ID,
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	r.o.Log.Warn("a sandbox of the pool cannot be reached", "sandbox", string(inst.ID), "error", err)
	return instance.ErrGivenUp
}

// passWorkspace moves the folder. moved is false when the thread has files of its own, which the sandbox can be filled with;
// errGivenUp: it cannot.
func (r *Orchestrator) passWorkspace(ctx context.Context, t sandbox.Thread, x *instance.Pooled) (moved bool, err error) {
	dir := r.folders.Dir(t)
	if _, err := workspace.UID(dir); err == nil && r.copies.Apart() {
		return false, nil
	}
	parent := filepath.Dir(dir)
	err = r.o.Disk.MakeUser(parent)
	if err == nil {
		err = r.o.Disk.Pass(ctx, x.Files, dir)
	}
	if errors.Is(err, fs.ErrExist) {
		if r.copies.Apart() {
			return false, nil
		}
		return false, instance.ErrGivenUp
	}
	if err != nil {
		return false, workspace.NoRoom(err, "the thread's files cannot be made")
	}
	return true, nil
}

// fillClaimed copies the thread's files into a sandbox of the pool, and notes that they are there. The API changes none of them
// meanwhile.
func (r *Orchestrator) fillClaimed(ctx context.Context, inst *instance.Instance) error {
	fs := inst.FileSync
	if err := fs.TakeTurn(ctx); err != nil {
		return err
	}
	defer fs.GiveTurn()
	if err := fs.Remote.Push(ctx, inst.ID, sandbox.UserDataDir); err != nil {
		r.o.Log.Warn("a sandbox of the pool cannot be given a thread's files", "thread", inst.Thread.String(), "sandbox", string(inst.ID), "error", err)
		return err
	}
	if err := r.noteFilled(inst); err != nil {
		return err
	}
	// The folder that it waited with says from now on nothing. One that stays goes with the next sweep after the sandbox.
	if err := r.folders.Drop(inst.Pooled.Files, inst.Pooled.UID); err != nil {
		r.o.Log.Warn("folder of a pooled sandbox not removed; tried again", "sandbox", string(inst.ID), "error", err)
	}
	return nil
}

// filledFile says of a sandbox that waited which workspace's files were copied into it, by the workspace's uid. Nothing of it is seen inside.
func (r *Orchestrator) filledFile(id sandbox.ID) string {
	return filepath.Join(r.runRoot(), string(id), "filled")
}

// noteFilled writes the note in one step.
func (r *Orchestrator) noteFilled(inst *instance.Instance) error {
	path := r.filledFile(inst.ID)
	err := os.WriteFile(path+".new", []byte(strconv.Itoa(inst.UID)), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be made the thread's")
	}
	return nil
}

// filledWith reads the note; 0: there is none.
func (r *Orchestrator) filledWith(id sandbox.ID) int {
	text, err := os.ReadFile(r.filledFile(id))
	if err != nil {
		return 0
	}
	uid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return uid
}

// answers makes sure that a sandbox which waited is still there. One that is not is given up for another.
func (r *Orchestrator) answers(ctx context.Context, inst *instance.Instance) error {
	limited, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	err := inst.Hello(limited)
	if err == nil || ctx.Err() != nil {
		return err
	}
	r.o.Log.Warn("a sandbox of the pool does not answer", "sandbox", string(inst.ID), "error", err)
	return instance.ErrGivenUp
}

// endClaim takes away what a claim that failed has left of the pool.
func (r *Orchestrator) endClaim(inst *instance.Instance, removed bool) {
	if inst.Pooled == nil {
		return
	}
	if removed {
		if err := r.folders.Drop(inst.Pooled.Files, inst.Pooled.UID); err != nil {
			r.o.Log.Warn("folder of a pooled sandbox not removed; tried again", "sandbox", string(inst.ID), "error", err)
		}
	}
	r.pool.Forget(inst.ID)
}

// belongs says whether a sandbox was made for this thread, or was made for the pool and is the thread's now.
func (r *Orchestrator) belongs(entry sandbox.Instance, t sandbox.Thread, uid int) error {
	if entry.Labels[sandbox.LabelRole] != sandbox.RolePool {
		if threadOf(entry) != t {
			return errors.New("its labels name another thread")
		}
		return nil
	}
	if entry.Labels[sandbox.LabelUID] != strconv.Itoa(uid) && r.filledWith(entry.ID) != uid {
		return errors.New("it waited in the pool, and the thread has other files")
	}
	return nil
}

// poolSandboxes are the sandboxes of the orchestrator, as the pool makes them.
type poolSandboxes struct{ r *Orchestrator }

// Draining implements pool.Sandboxes.
func (s poolSandboxes) Draining() bool { return s.r.Draining() }

// NewFileSync implements pool.Sandboxes.
func (s poolSandboxes) NewFileSync(id sandbox.ID) *filesync.Sync { return s.r.copies.Sync(id) }

// OpenLink implements pool.Sandboxes.
func (s poolSandboxes) OpenLink(inst *instance.Instance) error { return s.r.openLink(inst) }

// Spec implements pool.Sandboxes.
func (s poolSandboxes) Spec(inst *instance.Instance, files string) sandbox.Spec {
	return s.r.specOf(inst, files)
}

// Warm implements pool.Sandboxes.
func (s poolSandboxes) Warm(inst *instance.Instance) { s.r.Runs.Warm(inst, nil) }

// Reaped implements pool.Sandboxes.
func (s poolSandboxes) Reaped(t sandbox.Thread, id sandbox.ID, what string, err error) {
	s.r.noteReaped(t, id, what, err)
}

// ClearAway implements pool.Sandboxes.
func (s poolSandboxes) ClearAway(id sandbox.ID) { s.r.clearAway(id) }
