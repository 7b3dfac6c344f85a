package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/capacity"
	"github.com/skerry-sandbox/skerry/internal/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// How a thread gets a sandbox of the pool. First its claim names the sandbox, then the folder moves: whoever finds the
// claim after a crash compares the owner of the thread's workspace with the sandbox's uid, which no other
// workspace ever has. The same: it has moved, and the sandbox is the thread's. Another or none: it has not, and
// the sandbox is removed. Nothing has run in it by then, so that nothing is lost.

// aliveTimeout bounds the question whether a sandbox of the pool still answers.
const aliveTimeout = 10 * time.Second

// takePooled takes a sandbox of the pool for a thread, and makes its place the tenant's; nil: there is none, or the thread
// may have none. Only a thread without files can: its files are those of the sandbox from then on. The caller
// holds Orchestrator.mu.
func (r *Orchestrator) takePooled(t sandbox.Thread, template string) (*pooled, *capacity.Ticket) {
	if len(r.pool.shelves) == 0 {
		return nil, nil
	}
	if _, err := workspaceUID(r.threadDir(t)); !errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	x := r.pool.pick(template)
	if x == nil {
		return nil, nil
	}
	place, ok := r.places.Exchange(t.Tenant)
	if !ok { // the tenant waits for a place
		r.pool.putBack(x)
		return nil, nil
	}
	return x, place
}

// bringUpClaimed makes a sandbox of the pool the thread's, which is held.
func (r *Orchestrator) bringUpClaimed(ctx context.Context, c sandbox.Caller, b *box, queued time.Duration) error {
	began := time.Now()
	x := b.pooled
	b.uid, b.link, b.client, b.skills.folder = x.uid, x.link, x.client, x.skills.folder
	if err := r.passWorkspace(ctx, b.thread, x); err != nil {
		return err
	}
	r.pool.forget(x.id)
	// The disk may take its time; nobody sees the thread before it has.
	synced := make(chan error, 1)
	r.wg.Go(func() { synced <- lockedfile.SyncDir(filepath.Dir(r.threadDir(b.thread))) })
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
	if err := r.attachClaimed(ctx, b); err != nil {
		return err
	}
	tools := r.firstTools(c, b)
	err := r.firstSkills(ctx, b)
	claimed := time.Now()
	if err == nil {
		err = r.answers(ctx, b)
	}
	if err == nil {
		err = r.upToDate(ctx, b)
	}
	if e := <-synced; err == nil && e != nil {
		err = noRoom(e, "the thread's files cannot be made")
	}
	if err == nil && !r.confirm(b.hold) {
		err = notHere(&elsewhere{})
	}
	if err != nil {
		return errors.Join(err, <-tools) // they write into the box's folder, which goes now
	}
	return r.broughtUp(ctx, b, sandbox.Timings{Queue: millis(queued), Create: millis(claimed.Sub(began)), Ready: millis(time.Since(claimed))}, tools)
}

// attachClaimed makes a sandbox with a disk of its own the thread's: what it writes goes into the thread's folder. One that
// cannot be reached is given up for another.
func (r *Orchestrator) attachClaimed(ctx context.Context, b *box) error {
	if b.copies == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	err := r.attach(limited, b, map[string]string{
		sandbox.LabelTenant: b.thread.Tenant, sandbox.LabelUser: b.thread.User, sandbox.LabelThread: b.thread.ID,
	})
	if err == nil {
		b.copies.opened(true)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	r.o.Log.Warn("a sandbox of the pool cannot be reached", "sandbox", string(b.id), "error", err)
	return errGivenUp
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
