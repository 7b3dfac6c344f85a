package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// How a thread gets a sandbox of the pool. First its claim names the sandbox, then the folder moves: whoever finds the
// claim after a crash compares the owner of the thread's workspace with the sandbox's uid, which no other
// workspace ever has. The same: it has moved, and the sandbox is the thread's. Another or none: it has not, and
// the sandbox is removed. Nothing has run in it by then, so that nothing is lost.

// aliveTimeout bounds the question whether a sandbox of the pool still answers.
const aliveTimeout = 2 * time.Second

// takePooled gives a box a sandbox of the pool. Only a thread without files can have one: its files are those of the
// sandbox from then on. The caller holds Orchestrator.mu, and the box has its place.
func (r *Orchestrator) takePooled(b *box) {
	if len(r.pool.shelves) == 0 {
		return
	}
	if _, err := workspaceUID(r.threadDir(b.thread)); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	x := r.pool.pick(b.template.Name)
	if x == nil {
		return
	}
	r.places.LeaveSpare()
	b.pooled, b.id, b.dir, b.info.Warm = x, x.id, x.dir, true
}

// bringUpClaimed makes a sandbox of the pool the thread's, which is held.
func (r *Orchestrator) bringUpClaimed(ctx context.Context, b *box, queued time.Duration) error {
	began := time.Now()
	x := b.pooled
	b.uid, b.link, b.client, b.skills.folder = x.uid, x.link, x.client, x.skills.folder
	if err := r.passWorkspace(ctx, b.thread, x); err != nil {
		return err
	}
	r.pool.forget(x.id)
	if uid, err := r.ensureThread(ctx, b.thread); err != nil {
		return err
	} else if uid != x.uid { // it was deleted and made anew meanwhile
		return errGivenUp
	}
	if err := r.bound(b.thread, b.uid, b.template.Limits.DiskBytes); err != nil {
		return err
	}
	if err := r.openBridge(b); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
	}
	tools := r.firstTools(b)
	err := r.firstSkills(ctx, b)
	claimed := time.Now()
	if err == nil {
		err = r.answers(ctx, b)
	}
	if err == nil && !r.confirm(b.hold) {
		err = notHere(&elsewhere{})
	}
	if err != nil {
		<-tools // they write into the box's folder, which goes now
		return err
	}
	return r.broughtUp(ctx, b, sandbox.Timings{Queue: millis(queued), Create: millis(claimed.Sub(began)), Ready: millis(time.Since(claimed))}, tools)
}

// passWorkspace moves the folder. errGivenUp: the thread has got files of its own meanwhile.
func (r *Orchestrator) passWorkspace(ctx context.Context, t sandbox.Thread, x *pooled) error {
	dir := r.threadDir(t)
	parent := filepath.Dir(dir)
	err := r.o.Disk.MakeUser(parent)
	if err == nil {
		err = r.o.Disk.Pass(ctx, x.files, dir)
	}
	if errors.Is(err, fs.ErrExist) {
		return errGivenUp
	}
	if err == nil {
		err = lockedfile.SyncDir(parent)
	}
	if err != nil {
		return noRoom(err, "the thread's files cannot be made")
	}
	return nil
}

// answers makes sure that a sandbox which waited is still there. One that is not is given up for another.
func (r *Orchestrator) answers(ctx context.Context, b *box) error {
	limited, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	err := b.hello(limited)
	if err == nil || ctx.Err() != nil {
		return err
	}
	r.o.Log.Warn("a sandbox of the pool does not answer", "sandbox", string(b.id), "error", err)
	return errGivenUp
}

// endClaim takes away what a claim that failed has left of the pool.
func (r *Orchestrator) endClaim(b *box, removed bool) {
	if b.pooled == nil {
		return
	}
	if removed {
		if err := r.dropFiles(b.pooled.files, b.pooled.uid); err != nil {
			r.o.Log.Warn("folder of a pooled sandbox not removed; tried again", "sandbox", string(b.id), "error", err)
		}
	}
	r.pool.forget(b.id)
}

// belongs says whether a sandbox was made for this thread, or was made for the pool and is the thread's now.
func belongs(inst sandbox.Instance, t sandbox.Thread, uid int) error {
	if inst.Labels[sandbox.LabelRole] != sandbox.RolePool {
		if threadOf(inst) != t {
			return errors.New("its labels name another thread")
		}
		return nil
	}
	if inst.Labels[sandbox.LabelUID] != strconv.Itoa(uid) {
		return errors.New("it waited in the pool, and the thread has other files")
	}
	return nil
}
