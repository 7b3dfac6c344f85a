package orchestrator

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// What the use cases do with an instance's copies (filesync.go). With a driver whose sandboxes see the server's disk all of
// it does nothing.

// attach makes this process the one that the instance's sandbox is connected with, by the token of the instance's ownership. It tries
// again while the sandbox cannot be reached, until ctx ends. fenced: the sandbox was attached with a higher token.
func (r *Orchestrator) attach(ctx context.Context, inst *instance.Instance, labels map[string]string) error {
	fs := inst.FileSync
	a := driver.Attachment{ID: inst.ID, Mounts: r.specOf(inst, r.folders.Dir(inst.Thread)).Mounts, UID: inst.UID, Labels: labels}
	if own := inst.Owned(); own != nil {
		a.Token = own.Token.Load()
	}
	for {
		err := fs.Remote.Attach(ctx, a)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, sandbox.Conflict):
			return &fenced{err}
		case !filesync.OutOfReach(err) || !wait(ctx, filesync.RetryPause):
			return err
		}
	}
}

// fenced says that a sandbox was attached with a higher token than ours.
type fenced struct{ err error }

func (f *fenced) Error() string { return "another server has its sandbox: " + f.err.Error() }
func (f *fenced) Unwrap() error { return f.err }

// wait pauses, and reports whether ctx still goes on.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// newFileSync returns nil when the driver shares the server's disk.
func (r *Orchestrator) newFileSync(id sandbox.ID) *filesync.Sync {
	if r.remote == nil {
		return nil
	}
	return filesync.New(r.ctx, r.remote, id, r.follows, r.o.Log)
}

// watchContexts lets the copies of an instance that has a thread ask for contexts.
func (r *Orchestrator) watchContexts(inst *instance.Instance) {
	if inst.FileSync == nil {
		return
	}
	inst.FileSync.Lives = func() bool { return r.Contexts.Living(inst.Thread) > 0 }
}

// pull makes the server's copy what the sandbox has. While the sandbox cannot be reached, and the server has not ended it, it is
// tried again for patience.
func (r *Orchestrator) pull(ctx context.Context, inst *instance.Instance, patience time.Duration) error {
	fs, began := inst.FileSync, time.Now()
	for {
		err := filesync.ErrSyncEnded
		if r.mayPull(inst) {
			err = fs.Pull(ctx)
		}
		if err == nil {
			return nil
		}
		if inst.Ending() != "" { // there is one more pull, before it is removed
			select {
			case <-fs.Last.Done:
				return fs.Last.Err
			case <-ctx.Done():
				return err
			}
		}
		if !filesync.OutOfReach(err) || time.Since(began) > patience || !wait(ctx, filesync.RetryPause) {
			return err
		}
	}
}

// mayPull says whether the thread's folder is still ours, and the one that the sandbox was given: a thread that was deleted while
// its sandbox began may be a new one by now.
func (r *Orchestrator) mayPull(inst *instance.Instance) bool {
	uid, err := workspace.UID(r.folders.Dir(inst.Thread))
	return err == nil && uid == inst.UID && r.stillOurs(inst)
}

// restoreToRead is called before the server's copy of a thread's files is read or changed. Only when something ran, or runs,
// since the last pull is there another.
func (r *Orchestrator) restoreToRead(ctx context.Context, t sandbox.Thread) error {
	if r.remote == nil {
		return nil
	}
	inst := r.find(t)
	if inst == nil && r.onVolume(t) || inst != nil && inst.OnVolume() {
		ctx, cancel := context.WithTimeout(ctx, filesync.ReadPullTime)
		defer cancel()
		return r.bringKept(ctx, t)
	}
	if inst == nil || !inst.IsReady() || inst.FileSync.Same(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, filesync.ReadPullTime)
	defer cancel()
	err := r.pull(ctx, inst, readPatience)
	if err == nil || inst.Ending() != "" { // without a sandbox the server's copy is all there is
		return nil
	}
	return filesync.Unreadable(err)
}

// readPatience is how long a reader waits for a sandbox that cannot be reached.
const readPatience = 3 * time.Second

// upToDate is called before something begins to run in an instance: it does not miss what the server changed.
func (r *Orchestrator) upToDate(ctx context.Context, inst *instance.Instance) error {
	fs := inst.FileSync
	if fs == nil || !fs.Views.Any() && !fs.Files.Any() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, filesync.UpToDateTime)
	defer cancel()
	for {
		err := fs.PushAll(limited)
		switch {
		case err == nil:
			return nil
		case !filesync.OutOfReach(err):
			r.o.Log.Warn("a sandbox cannot have what the server changed", "thread", inst.Thread.String(), "error", err)
			return nil
		case inst.Ending() != "" || !wait(limited, filesync.RetryPause):
			return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox cannot be reached now; try again")
		}
	}
}

// begins counts in what is about to run in an instance. before says that it will be asked what it changed.
func (r *Orchestrator) begins(ctx context.Context, inst *instance.Instance, e *execution.Exec) error {
	fs := inst.FileSync
	if fs == nil {
		return nil
	}
	if err := r.upToDate(ctx, inst); err != nil {
		return err
	}
	if e.Report && !fs.Same(false) { // what others change meanwhile is not this one's
		limited, cancel := context.WithTimeout(ctx, filesync.ReadPullTime)
		defer cancel()
		if err := r.pull(limited, inst, readPatience); err != nil && filesync.OutOfReach(err) {
			return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox cannot be reached now; try again")
		}
	}
	return nil
}

// pullAfterExec is called when an exec has ended: what it changed is at the server when it returns nil.
func (r *Orchestrator) pullAfterExec(inst *instance.Instance, e *execution.Exec, exit *sandboxv1.Exit) error {
	fs := inst.FileSync
	if fs == nil {
		return nil
	}
	fs.End()
	if exit.GetStatus() == sandboxv1.Exit_STATUS_FAILED_TO_START {
		return nil // nothing ran
	}
	if fs.OnVolume && !e.Report {
		return nil // they are where they stay
	}
	ctx, cancel := context.WithTimeout(r.ctx, filesync.EndPullTime)
	defer cancel()
	err := r.pull(ctx, inst, filesync.UnreachableTime)
	if fs.OnVolume {
		return err
	}
	if err != nil && exit != nil && filesync.OutOfReach(err) && inst.Ending() == "" && r.ctx.Err() == nil {
		// What it has is not what was told: nothing goes on from there.
		r.wg.Go(func() { r.abandon(inst, "its files could not be reached") })
	}
	return err
}

// changeFiles calls change with a view of the thread's files that it may write. When it returns, a sandbox that runs has what was
// changed.
func (r *Orchestrator) changeFiles(ctx context.Context, t sandbox.Thread, uid int, change func(*paths.FS) error) error {
	if r.remote == nil {
		return r.withFiles(t, &uid, change)
	}
	own, err := r.ownFiles(ctx, t)
	if err != nil {
		return err
	}
	inst, release := own.inst, own.release
	var changed []string
	err = r.withView(t, &uid, nil, func(o *paths.Options) {
		o.Changing = func(path string) { changed = append(changed, path) }
		if inst != nil {
			o.Body = func(body io.Reader) (*os.File, error) { return r.arrive(ctx, own, body) }
		}
	}, change)
	now := r.find(t) // it may have begun to start meanwhile
	if now == nil || len(changed) == 0 {
		release()
		return errors.Join(err, r.volumes.Owe(t, changed))
	}
	fs := now.FileSync
	fs.Files.Add(changed...)
	if now != inst {
		release()
		fs.Follow()
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), filesync.ReadPullTime)
	defer cancel()
	pushed := fs.Push(limited, &fs.Files)
	release()
	switch {
	case pushed != nil && now.OnVolume() && now.Ending() != "":
		return errors.Join(err, r.volumes.Owe(t, changed))
	case pushed == nil || now.Ending() != "" || !now.IsReady(): // the next one has them, or it has when it begins
		return err
	case filesync.OutOfReach(pushed):
		fs.Follow()
		return errors.Join(err, sandbox.Wrap(sandbox.Unavailable, pushed, "the change is kept, and the sandbox, which cannot be reached now, does not have it yet: it does before anything runs there"))
	}
	return errors.Join(err, pushed)
}

// copyLock keeps pulls from the server's copy until it is released. instance is the thread's, nil when it has none.
type copyLock struct {
	inst *instance.Instance
	held bool
}

func (o *copyLock) release() {
	if o.held {
		o.held = false
		o.inst.FileSync.GiveTurn()
	}
}

func (o *copyLock) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, filesync.PullTime)
	defer cancel()
	err := o.inst.FileSync.TakeTurn(ctx)
	o.held = err == nil
	return err
}

func (r *Orchestrator) ownFiles(ctx context.Context, t sandbox.Thread) (*copyLock, error) {
	o := &copyLock{inst: r.find(t)}
	if o.inst == nil {
		return o, nil
	}
	if o.inst.FileSync.Files.Full() {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached now, and %d changes wait for it; try again", filesync.MaxDue)
	}
	return o, o.take(ctx)
}

// arrive waits until all of a body is here, in a file that goes with it. Meanwhile execs can end: the sender may be slow.
func (r *Orchestrator) arrive(ctx context.Context, o *copyLock, body io.Reader) (*os.File, error) {
	o.release()
	file, err := os.CreateTemp(r.runRoot(), ".arriving-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = io.Copy(file, body)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = o.take(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lastPull brings what an instance that is ending has and the server does not, and ends the copying.
func (r *Orchestrator) lastPull(ctx context.Context, inst *instance.Instance) {
	fs := inst.FileSync
	if fs == nil {
		return
	}
	var err error
	if fs.IsOpen() && !fs.Same(true) && !fs.OnVolume {
		limit := filesync.LastPullTime
		if s := inst.Ending(); s == sandbox.StatusLost || s == sandbox.StatusOOM {
			limit = filesync.DeadPullTime
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		if err = filesync.ErrSyncEnded; r.mayPull(inst) {
			err = fs.Pull(ctx)
		}
		if err != nil {
			r.o.Log.Warn("what the sandbox changed after the last run that was told is not kept", "thread", inst.Thread.String(), "sandbox", string(inst.ID), "error", err)
		}
	}
	fs.Close(err)
	if fs.OnVolume && fs.Files.Any() {
		if err := r.volumes.Owe(inst.Thread, fs.Files.Take()); err != nil {
			r.o.Log.Error("what was changed last is not on the user's volume", "thread", inst.Thread.String(), "error", err)
		}
	}
}

// attachAgain tells the sandbox the token of a lease that was taken again. When it has seen a higher one, because the store lost
// its count, it stays attached by that.
func (r *Orchestrator) attachAgain(ctx context.Context, inst *instance.Instance) {
	if inst.FileSync == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, filesync.RetryPause)
	defer cancel()
	if err := r.attach(ctx, inst, nil); err != nil {
		r.o.Log.Warn("the sandbox does not know the new lease", "thread", inst.Thread.String(), "error", err)
	}
}

// awaitPushes waits a moment until instances have what is due to them. Those out of reach get it later.
func (r *Orchestrator) awaitPushes(ctx context.Context, wanted func(*instance.Instance) bool) {
	if r.remote == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pushWait)
	defer cancel()
	instance.Each(r.all(), wanted, func(inst *instance.Instance) {
		if err := inst.FileSync.PushAll(ctx); err != nil {
			r.o.Log.Debug("not pushed yet", "thread", inst.Thread.String(), "error", err)
		}
	})
}

// pushWait is how long a change of skills waits for the sandboxes that are to show it.
const pushWait = 2 * time.Second
