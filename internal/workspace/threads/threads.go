package threads

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
	"github.com/skerry-sandbox/skerry/internal/workspace/snapshot"
)

const (
	// saveTimeout bounds one snapshot, and restoring one: gigabytes at a few megabytes a second.
	saveTimeout = 10 * time.Minute
	// lastTimeout bounds the snapshot at the end of a sandbox, which is tried again when it fails.
	lastTimeout = time.Minute
	// pendingEvery is how often the server looks for threads that are due. pendingRetry is when a failed one
	// is due again. pendingParallel is how many are saved at once.
	pendingEvery    = 200 * time.Millisecond
	pendingRetry    = 30 * time.Second
	pendingParallel = 4
)

// Forgetter drops what the server knows of threads beside their files.
type Forgetter interface {
	// Forget drops what is known of a thread that no longer exists.
	Forget(ctx context.Context, t sandbox.Thread) error
}

// Options are the parts that Threads work with.
type Options struct {
	Folders     *workspace.Folders
	Disk        *quota.Volume // nil: none
	Specs       *savedspec.Specs
	Live        *instance.Map
	Retirements *instance.Retirements
	Forgetter   Forgetter
	Store       *store.Store
	// Snapshots keep the files of threads elsewhere; nil: they are on this disk alone.
	Snapshots *snapshot.Snapshots
	// Delay is how much later than a change its snapshot may be; 0: before the change is acknowledged.
	Delay time.Duration
	Log   *slog.Logger
}

// Threads are the threads of this server: their records, their folders, and what is kept of both elsewhere.
type Threads struct {
	o       Options
	ctx     context.Context // ends with the server
	pending pendingSnapshots
}

// New returns the threads of a data folder.
func New(ctx context.Context, o Options) *Threads { return &Threads{o: o, ctx: ctx} }

// Restore makes the thread's files on this disk match the last saved ones. own: a sandbox is to have them.
func (h *Threads) Restore(ctx context.Context, t sandbox.Thread, own bool) error {
	if h.o.Snapshots == nil {
		return nil
	}
	if inst := h.o.Live.Find(t); inst != nil {
		if !own || inst.Ending() == "" {
			return nil
		}
		select { // its last snapshot comes first
		case <-inst.Gone:
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox is still stopping")
		}
	}
	ctx, cancel := deadline.Detached(ctx, saveTimeout)
	defer cancel()
	return h.o.Snapshots.Restore(ctx, t, h.o.Folders.Dir(t), own, func(x snapshot.Restored) error { return h.replace(ctx, t, x) })
}

// supersededTimeout bounds CheckSuperseded, which runs for each sandbox that is adopted.
const supersededTimeout = 5 * time.Second

var errSuperseded = errors.New("another server went on with its thread")

// CheckSuperseded returns an error when another server has gone on with the files of a sandbox that still runs,
// which then must not be adopted. A store that does not answer stops no caller: a snapshot is accepted only if
// its parent is the latest one.
func (h *Threads) CheckSuperseded(ctx context.Context, t sandbox.Thread) error {
	if h.o.Snapshots == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, supersededTimeout)
	defer cancel()
	err := h.o.Snapshots.Restore(ctx, t, h.o.Folders.Dir(t), true, func(snapshot.Restored) error { return errSuperseded })
	if errors.Is(err, errSuperseded) {
		return errSuperseded
	}
	if err != nil {
		h.o.Log.Warn("whether another server went on with a thread is unknown", "thread", t.String(), "error", err)
	}
	return nil
}

// Exists is exists for a thread whose files may be elsewhere. One without files that was made on another disk is made.
func (h *Threads) Exists(ctx context.Context, t sandbox.Thread) error {
	if err := h.Restore(ctx, t, false); err != nil {
		return err
	}
	err := h.o.Folders.Exists(t)
	if h.o.Snapshots == nil || !errors.Is(err, sandbox.NotFound) {
		return err
	}
	if _, e := h.o.Store.Thread(ctx, t); e != nil {
		if errors.Is(e, sandbox.NotFound) {
			return err
		}
		return e
	}
	_, err = h.Ensure(ctx, t)
	return err
}

// replace puts what was kept in the place of the thread's folder, by one rename.
func (h *Threads) replace(ctx context.Context, t sandbox.Thread, x snapshot.Restored) error {
	dir := h.o.Folders.Dir(t)
	if x.Fill == nil {
		return errors.Join(h.o.Specs.Forget(t), h.deleteHere(ctx, t))
	}
	filled := 0
	uid, err := h.o.Folders.Make(ctx, dir, func(files string, uid int) error {
		filled = uid
		if err := x.Fill(ctx, files, uid); err != nil {
			return err
		}
		if err := workspace.Fill(files, uid); err != nil {
			return err
		}
		return h.o.Folders.Discard(ctx, dir)
	})
	if err != nil {
		return workspace.NoRoom(err, "the thread's files cannot be restored")
	}
	if uid != filled { // another request made the folder just now
		return sandbox.Errorf(sandbox.Unavailable, "the thread's files are being restored; try again")
	}
	return h.recall(ctx, t, x.About)
}

// about is what comes back with a thread's files.
type about struct {
	Thread sandbox.ThreadInfo `json:"thread"`
	Kept   *savedspec.Spec    `json:"sandbox,omitempty"` // what its sandbox was asked to be
}

// about says what a thread is besides its files. An environment that cannot be encrypted stays here.
func (h *Threads) about(ctx context.Context, t sandbox.Thread) ([]byte, error) {
	info, err := h.o.Store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return nil, err
	}
	info.LastActiveAt = time.Time{}
	a := about{Thread: info, Kept: h.o.Specs.Plain(t)}
	return json.Marshal(a)
}

// recall takes up what comes with files, where nothing else is known.
func (h *Threads) recall(ctx context.Context, t sandbox.Thread, text []byte) error {
	var a about
	if err := json.Unmarshal(text, &a); err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "what is kept of the thread besides its files cannot be read")
	}
	if !a.Thread.CreatedAt.IsZero() {
		a.Thread.Thread, a.Thread.LastActiveAt = t, time.Now().UTC()
		if a.Thread.Labels == nil {
			a.Thread.Labels = map[string]string{}
		}
		_, err := h.o.Store.ChangeThread(ctx, t, func(info *sandbox.ThreadInfo, found bool) error {
			if !found {
				*info = a.Thread
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if a.Kept == nil {
		return nil
	}
	return h.o.Specs.Restore(ctx, t, *a.Kept)
}

// Save saves the thread's files before a change of them is acknowledged, or marks them as pending.
func (h *Threads) Save(ctx context.Context, t sandbox.Thread, uid int) error {
	if h.o.Snapshots == nil {
		return nil
	}
	if h.o.Delay > 0 {
		return h.saveLater(t, h.o.Delay)
	}
	return h.saveNow(ctx, t, uid, false)
}

// SaveChanged is Save for a thread whose folder this server changed.
func (h *Threads) SaveChanged(ctx context.Context, t sandbox.Thread) error {
	if h.o.Snapshots == nil {
		return nil
	}
	uid, err := workspace.UID(h.o.Folders.Dir(t))
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	return h.Save(context.WithoutCancel(ctx), t, uid)
}

// saveNow saves the thread's files. whole: it also saves what is known of the thread when no file has
// changed.
func (h *Threads) saveNow(ctx context.Context, t sandbox.Thread, uid int, whole bool) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	return h.o.Snapshots.Save(ctx, t, snapshot.Thread{
		Dir: h.o.Folders.Dir(t), UID: uid, Whole: whole, About: func() ([]byte, error) { return h.about(ctx, t) },
	})
}

// SaveLast saves what a sandbox that is gone left behind.
func (h *Threads) SaveLast(inst *instance.Instance) {
	if h.o.Snapshots == nil || inst.UID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), lastTimeout)
	defer cancel()
	err := h.saveNow(ctx, inst.Thread, inst.UID, true)
	if err == nil || errors.Is(err, sandbox.Conflict) { // the server that went on with it has it
		return
	}
	h.o.Log.Warn("files not kept at the end of a sandbox; tried again", "thread", inst.Thread.String(), "error", err)
	if err := h.saveLater(inst.Thread, pendingRetry); err != nil {
		h.o.Log.Error("files not kept", "thread", inst.Thread.String(), "error", err)
	}
}

// pendingSnapshots are the threads whose files the server saves later.
type pendingSnapshots struct {
	mu  sync.Mutex
	due map[sandbox.Thread]time.Time
}

// saveLater notes, also for the next process, that a thread's files are to be saved in a while.
func (h *Threads) saveLater(t sandbox.Thread, wait time.Duration) error {
	h.pending.mu.Lock()
	defer h.pending.mu.Unlock()
	if _, ok := h.pending.due[t]; ok {
		return nil
	}
	if err := h.o.Snapshots.MarkPending(t); err != nil {
		return err
	}
	if h.pending.due == nil {
		h.pending.due = map[sandbox.Thread]time.Time{}
	}
	h.pending.due[t] = time.Now().Add(wait)
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

// SavePending saves threads when they are due. Threads that a former process left come first.
func (h *Threads) SavePending() {
	if h.o.Snapshots == nil {
		return
	}
	former, err := h.o.Snapshots.Pending()
	if err != nil {
		h.o.Log.Error("threads that are to be kept are not listed", "error", err)
	}
	for _, t := range former {
		if err := h.saveLater(t, 0); err != nil {
			h.o.Log.Error("files not kept", "thread", t.String(), "error", err)
		}
	}
	for range every.Tick(h.ctx, pendingEvery) {
		h.saveDue(h.ctx, time.Now())
	}
}

// SaveAllPending saves all pending threads before the server stops, as far as ctx lets it. The next process
// does the rest.
func (h *Threads) SaveAllPending(ctx context.Context) {
	if h.o.Snapshots != nil && ctx.Err() == nil {
		h.saveDue(ctx, time.Now().Add(2*saveTimeout))
	}
}

// saveDue saves the threads that are due at a time.
func (h *Threads) saveDue(ctx context.Context, now time.Time) {
	var wg sync.WaitGroup
	free := make(chan struct{}, pendingParallel)
	for _, t := range h.pending.take(now) {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			h.saveOnePending(ctx, t)
		})
	}
	wg.Wait()
}

// AbandonSuperseded ends the sandbox of a thread that another server went on with: its files do not count
// any more.
func (h *Threads) AbandonSuperseded(t sandbox.Thread) {
	if inst := h.o.Live.Find(t); inst != nil {
		h.o.Retirements.Abandon(inst, "another server went on with the thread's files")
	}
}

func (h *Threads) saveOnePending(ctx context.Context, t sandbox.Thread) {
	uid, err := workspace.UID(h.o.Folders.Dir(t))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was deleted
		err = h.o.Snapshots.Sweep(ctx, t)
	case err == nil:
		err = h.saveNow(ctx, t, uid, false)
	}
	if err == nil {
		return
	}
	h.o.Log.Error("files not kept; tried again", "thread", t.String(), "error", err)
	if errors.Is(err, sandbox.Conflict) {
		h.AbandonSuperseded(t)
		return
	}
	if err := h.saveLater(t, pendingRetry); err != nil {
		h.o.Log.Error("files not kept", "thread", t.String(), "error", err)
	}
}

// Ensure makes the thread's record and folders when they are missing, and returns its uid. The
// owner of the workspace folder is the truth of the uid, so the folder appears by one rename, whole.
func (h *Threads) Ensure(ctx context.Context, t sandbox.Thread) (int, error) {
	dir := h.o.Folders.Dir(t)
	if err := h.Restore(ctx, t, false); err != nil {
		return 0, err
	}
	uid, err := workspace.UID(dir)
	if errors.Is(err, fs.ErrNotExist) {
		uid, err = h.o.Folders.Make(ctx, dir, workspace.Fill)
	}
	if err != nil {
		var known *sandbox.Error
		if errors.As(err, &known) {
			return 0, err
		}
		return 0, workspace.NoRoom(err, "the thread's files cannot be opened")
	}
	_, err = h.EnsureRecord(ctx, t)
	return uid, err
}

// EnsureRecord makes the thread's record when it is missing.
func (h *Threads) EnsureRecord(ctx context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error) {
	return h.ChangeRecord(ctx, t, func(*sandbox.ThreadInfo) {})
}

// ChangeRecord changes the thread's record, which it makes when it is missing. change may be called again when
// another request was faster.
func (h *Threads) ChangeRecord(ctx context.Context, t sandbox.Thread, change func(*sandbox.ThreadInfo)) (sandbox.ThreadInfo, error) {
	return h.o.Store.ChangeThread(ctx, t, func(info *sandbox.ThreadInfo, found bool) error {
		if !found {
			now := time.Now().UTC()
			info.Labels, info.CreatedAt, info.LastActiveAt = map[string]string{}, now, now
		}
		change(info)
		return nil
	})
}

// Delete deletes what a thread has besides its sandbox, here and where it is kept.
func (h *Threads) Delete(ctx context.Context, t sandbox.Thread) error {
	if h.o.Snapshots == nil {
		return h.deleteHere(ctx, t)
	}
	ctx, cancel := deadline.Detached(ctx, saveTimeout)
	defer cancel()
	return h.o.Snapshots.Forget(ctx, t, func() error { return h.deleteHere(ctx, t) })
}

func (h *Threads) deleteHere(ctx context.Context, t sandbox.Thread) error {
	dir := h.o.Folders.Dir(t)
	uid, err := workspace.UID(dir)
	if errors.Is(err, fs.ErrNotExist) { // another request was faster
		return sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be deleted")
	}
	h.o.Disk.Forget(dir)
	trash, err := os.MkdirTemp(filepath.Dir(dir), ".deleted-")
	if err == nil {
		err = os.Rename(dir, filepath.Join(trash, "files"))
	}
	if errors.Is(err, fs.ErrNotExist) { // as above
		return errors.Join(sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID), os.Remove(trash))
	}
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = h.o.Forgetter.Forget(ctx, t)
	}
	if err == nil {
		err = h.o.Folders.RemoveDiscarded(ctx, trash, uid)
	}
	if err := h.o.Folders.Homes().RemoveOf(ctx, t); err != nil { // what is left goes at the next start
		h.o.Log.Warn("homes of a deleted thread's MCP servers are not all deleted", "thread", t.String(), "error", err)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be deleted")
	}
	return h.o.Store.DeleteThread(ctx, t)
}
