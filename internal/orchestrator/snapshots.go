package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/snapshot"
)

// Files of threads that are kept elsewhere (package snapshot). Before anything is done with a thread that has no instance here,
// its folder is made what was kept last; before a change is acknowledged, or soon after, the folder is kept. While a
// thread has an instance, its folder is what counts, and only writing finds out that another server went on with it.

const (
	// keepTimeout bounds one snapshot, and restoring one: gigabytes at a few megabytes a second.
	keepTimeout = 10 * time.Minute
	// lastTimeout bounds the snapshot at the end of a sandbox, which is tried again when it fails.
	lastTimeout = time.Minute
	// lateEvery is how often it is looked for threads that are due, lateRetry when one that failed is, lateParallel how
	// many are kept at once.
	lateEvery    = 200 * time.Millisecond
	lateRetry    = 30 * time.Second
	lateParallel = 4
)

// restoreSnapshot makes the thread's files on this disk those that were kept last. own: a sandbox is to have them.
func (r *Orchestrator) restoreSnapshot(ctx context.Context, t sandbox.Thread, own bool) error {
	if r.o.Snapshots == nil {
		return nil
	}
	if inst := r.find(t); inst != nil {
		if !own || inst.Ending() == "" {
			return nil
		}
		select { // its last snapshot comes first
		case <-inst.Gone:
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
		}
	}
	ctx, cancel := deadline.Detached(ctx, keepTimeout)
	defer cancel()
	return r.o.Snapshots.Bring(ctx, t, r.folders.Dir(t), own, func(x snapshot.Restored) error { return r.replaceFiles(ctx, t, x) })
}

// outrunTimeout bounds the question of notOutrun, which is asked of each sandbox that is adopted.
const outrunTimeout = 5 * time.Second

var errOutrun = errors.New("another server went on with its thread")

// notOutrun says whether a sandbox that still runs may be taken up: not when other files count by now. A store that does
// not answer stops no caller, because nothing is kept of what does not follow from what is kept.
func (r *Orchestrator) notOutrun(ctx context.Context, t sandbox.Thread) error {
	if r.o.Snapshots == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, outrunTimeout)
	defer cancel()
	err := r.o.Snapshots.Bring(ctx, t, r.folders.Dir(t), true, func(snapshot.Restored) error { return errOutrun })
	if errors.Is(err, errOutrun) {
		return errOutrun
	}
	if err != nil {
		r.o.Log.Warn("nobody knows whether another server went on with a thread", "thread", t.String(), "error", err)
	}
	return nil
}

// there is exists for a thread whose files may be elsewhere. One without files that was made on another disk is made.
func (r *Orchestrator) there(ctx context.Context, t sandbox.Thread) error {
	if err := r.restoreSnapshot(ctx, t, false); err != nil {
		return err
	}
	err := r.folders.Exists(t)
	if r.o.Snapshots == nil || !errors.Is(err, sandbox.NotFound) {
		return err
	}
	if _, e := r.o.Store.Thread(ctx, t); e != nil {
		if errors.Is(e, sandbox.NotFound) {
			return err
		}
		return e
	}
	_, err = r.ensureThread(ctx, t)
	return err
}

// replaceFiles puts what was kept in the place of the thread's folder, by one rename.
func (r *Orchestrator) replaceFiles(ctx context.Context, t sandbox.Thread, x snapshot.Restored) error {
	dir := r.folders.Dir(t)
	if x.Fill == nil {
		return errors.Join(r.Specs.Forget(t), r.deleteHere(ctx, t))
	}
	filled := 0
	uid, err := r.folders.Make(ctx, dir, func(files string, uid int) error {
		filled = uid
		if err := x.Fill(ctx, files, uid); err != nil {
			return err
		}
		if err := workspace.Fill(files, uid); err != nil {
			return err
		}
		return r.folders.Bury(ctx, dir)
	})
	if err != nil {
		return workspace.NoRoom(err, "the thread's files cannot be restored")
	}
	if uid != filled { // another request made the folder just now
		return sandbox.Errorf(sandbox.Unavailable, "the thread's files are being restored; try again")
	}
	return r.recall(ctx, t, x.About)
}

// about is what comes back with a thread's files.
type about struct {
	Thread sandbox.ThreadInfo `json:"thread"`
	Kept   *savedspec.Spec    `json:"sandbox,omitempty"` // what its sandbox was asked to be
}

// about says what a thread is besides its files. An environment that cannot be encrypted stays here.
func (r *Orchestrator) about(ctx context.Context, t sandbox.Thread) ([]byte, error) {
	info, err := r.o.Store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return nil, err
	}
	info.LastActiveAt = time.Time{}
	a := about{Thread: info, Kept: r.Specs.Plain(t)}
	return json.Marshal(a)
}

// recall takes up what comes with files, where nothing else is known.
func (r *Orchestrator) recall(ctx context.Context, t sandbox.Thread, text []byte) error {
	var a about
	if err := json.Unmarshal(text, &a); err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "what is kept of the thread besides its files cannot be read")
	}
	_, err := r.o.Store.Thread(ctx, t)
	if errors.Is(err, sandbox.NotFound) && !a.Thread.CreatedAt.IsZero() {
		a.Thread.Thread, a.Thread.LastActiveAt = t, time.Now().UTC()
		if a.Thread.Labels == nil {
			a.Thread.Labels = map[string]string{}
		}
		err = r.o.Store.PutThread(ctx, a.Thread)
	}
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return err
	}
	if a.Kept == nil {
		return nil
	}
	return r.Specs.Restore(ctx, t, *a.Kept)
}

// keepFiles has the thread's files kept before a change of them is acknowledged, or notes that they are to be.
func (r *Orchestrator) keepFiles(ctx context.Context, t sandbox.Thread, uid int) error {
	if r.o.Snapshots == nil {
		return nil
	}
	if r.o.SnapshotDelay > 0 {
		return r.keepLater(t, r.o.SnapshotDelay)
	}
	return r.keepNow(ctx, t, uid, false)
}

// keepChanged is keepFiles for a thread whose folder was changed by this server.
func (r *Orchestrator) keepChanged(ctx context.Context, t sandbox.Thread) error {
	if r.o.Snapshots == nil {
		return nil
	}
	uid, err := workspace.UID(r.folders.Dir(t))
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	return r.keepFiles(context.WithoutCancel(ctx), t, uid)
}

// keepNow has the thread's files kept; whole: also what is known of the thread, when no file has changed.
func (r *Orchestrator) keepNow(ctx context.Context, t sandbox.Thread, uid int, whole bool) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return r.o.Snapshots.Keep(ctx, t, snapshot.Thread{
		Dir: r.folders.Dir(t), UID: uid, Whole: whole, About: func() ([]byte, error) { return r.about(ctx, t) },
	})
}

// keepEnd keeps what an exec changed. When that fails, its end is not acknowledged.
func (r *Orchestrator) keepEnd(inst *instance.Instance, e *execution.Exec) error {
	err := r.keepFiles(r.ctx, inst.Thread, inst.UID)
	if err == nil {
		return nil
	}
	r.o.Log.Error("files not kept after an exec", "exec", e.ID, "thread", inst.Thread.String(), "error", err)
	e.EndBecause("its files could not be kept")
	r.outrun(inst.Thread, err)
	return sandbox.Wrap(sandbox.KindOf(err), err, "the exec ended, but what it changed could not be kept: %v", err)
}

// outrun ends the sandbox of a thread that another server went on with: it has files that count no more.
func (r *Orchestrator) outrun(t sandbox.Thread, err error) {
	if inst := r.find(t); inst != nil && errors.Is(err, sandbox.Conflict) {
		r.wg.Go(func() { r.abandon(inst, "another server went on with the thread's files") })
	}
}

// keepLast keeps what a sandbox that is gone left behind.
func (r *Orchestrator) keepLast(inst *instance.Instance) {
	if r.o.Snapshots == nil || inst.UID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), lastTimeout)
	defer cancel()
	err := r.keepNow(ctx, inst.Thread, inst.UID, true)
	if err == nil || errors.Is(err, sandbox.Conflict) { // the server that went on with it has it
		return
	}
	r.o.Log.Warn("files not kept at the end of a sandbox; tried again", "thread", inst.Thread.String(), "error", err)
	if err := r.keepLater(inst.Thread, lateRetry); err != nil {
		r.o.Log.Error("files not kept", "thread", inst.Thread.String(), "error", err)
	}
}

// pendingSnapshots are those whose files are to be kept later.
type pendingSnapshots struct {
	mu  sync.Mutex
	due map[sandbox.Thread]time.Time
}

// keepLater notes, also for the next process, that a thread's files are to be kept in a while.
func (r *Orchestrator) keepLater(t sandbox.Thread, wait time.Duration) error {
	r.late.mu.Lock()
	defer r.late.mu.Unlock()
	if _, ok := r.late.due[t]; ok {
		return nil
	}
	if err := r.o.Snapshots.Late(t); err != nil {
		return err
	}
	if r.late.due == nil {
		r.late.due = map[sandbox.Thread]time.Time{}
	}
	r.late.due[t] = time.Now().Add(wait)
	return nil
}

// take returns the threads that are due, and forgets them.
func (l *pendingSnapshots) take(now time.Time) []sandbox.Thread {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []sandbox.Thread
	for t, due := range l.due {
		if !due.After(now) {
			all = append(all, t)
			delete(l.due, t)
		}
	}
	return all
}

// keepLate keeps threads when they are due, those first that a former process left.
func (r *Orchestrator) keepLate() {
	if r.o.Snapshots == nil {
		return
	}
	former, err := r.o.Snapshots.AllLate()
	if err != nil {
		r.o.Log.Error("threads that are to be kept are not listed", "error", err)
	}
	for _, t := range former {
		if err := r.keepLater(t, 0); err != nil {
			r.o.Log.Error("files not kept", "thread", t.String(), "error", err)
		}
	}
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		r.keepDue(r.ctx, time.Now())
	}
}

// keepAllLate keeps what is not kept yet before the server stops, as far as ctx lets it. The next process does the rest.
func (r *Orchestrator) keepAllLate(ctx context.Context) {
	if r.o.Snapshots != nil && ctx.Err() == nil {
		r.keepDue(ctx, time.Now().Add(2*keepTimeout))
	}
}

// keepDue keeps the threads that are due at a time.
func (r *Orchestrator) keepDue(ctx context.Context, now time.Time) {
	var wg sync.WaitGroup
	free := make(chan struct{}, lateParallel)
	for _, t := range r.late.take(now) {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			r.keepOneLate(ctx, t)
		})
	}
	wg.Wait()
}

func (r *Orchestrator) keepOneLate(ctx context.Context, t sandbox.Thread) {
	uid, err := workspace.UID(r.folders.Dir(t))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was deleted
		err = r.o.Snapshots.Sweep(ctx, t)
	case err == nil:
		err = r.keepNow(ctx, t, uid, false)
	}
	if err == nil {
		return
	}
	r.o.Log.Error("files not kept; tried again", "thread", t.String(), "error", err)
	if errors.Is(err, sandbox.Conflict) {
		r.outrun(t, err)
		return
	}
	if err := r.keepLater(t, lateRetry); err != nil {
		r.o.Log.Error("files not kept", "thread", t.String(), "error", err)
	}
}
