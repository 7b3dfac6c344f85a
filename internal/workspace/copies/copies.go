package copies

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// Owners knows which server has a thread.
type Owners interface {
	// Current reports whether the thread is still this server's. A nil Ownership is.
	Current(own *ownership.Ownership) bool
}

// Contexts are the interpreters that keep their variables between runs.
type Contexts interface {
	// Living is how many a thread has.
	Living(t sandbox.Thread) int
}

// Options are all needed, but for what may be nil.
type Options struct {
	// Remote is the driver, when its sandboxes do not see the server's disk; else nil, and there are no copies.
	Remote driver.Remote
	// Volumes keep the files of threads; nil when the driver keeps none.
	Volumes     *volumes.Volumes
	Live        *instance.Map
	Owners      Owners
	Retirements *instance.Retirements
	Contexts    Contexts
	Folders     *workspace.Folders
	Spool       string // a folder for bodies that arrive
	Log         *slog.Logger
}

// Copies keeps the files of threads the same at the server and in sandboxes.
type Copies struct {
	o       Options
	ctx     context.Context // ends with the server
	follows chan struct{}   // places of pushes that no caller waits for
}

// New returns the copies of a server.
func New(ctx context.Context, o Options) *Copies {
	return &Copies{o: o, ctx: ctx, follows: filesync.NewSlots()}
}

// Apart reports whether sandboxes have disks of their own.
func (c *Copies) Apart() bool { return c.o.Remote != nil }

// Attach connects the instance's sandbox with this process, by the token of the instance's ownership. It tries
// again while the sandbox cannot be reached, until ctx ends. A *FencedError: the sandbox was attached with a higher token.
func (c *Copies) Attach(ctx context.Context, inst *instance.Instance, labels map[string]string) error {
	fs := inst.FileSync
	a := driver.Attachment{ID: inst.ID, Mounts: inst.Mounts(c.o.Folders.Dir(inst.Thread)), UID: inst.UID, Labels: labels}
	if own := inst.Owned(); own != nil {
		a.Token = own.Token.Load()
	}
	for {
		err := fs.Remote.Attach(ctx, a)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, sandbox.Conflict):
			return &FencedError{err}
		case !filesync.OutOfReach(err) || !wait(ctx, filesync.RetryPause):
			return err
		}
	}
}

// FencedError says that a sandbox was attached with a higher token than ours.
type FencedError struct{ err error }

func (f *FencedError) Error() string { return "another server has its sandbox: " + f.err.Error() }
func (f *FencedError) Unwrap() error { return f.err }

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

// Sync returns what keeps the copies of a sandbox the same; nil when the driver shares the server's disk.
func (c *Copies) Sync(id sandbox.ID) *filesync.Sync {
	if c.o.Remote == nil {
		return nil
	}
	return filesync.New(c.ctx, c.o.Remote, id, c.follows, c.o.Log)
}

// AskContexts lets the copies of an instance that has a thread ask for contexts.
func (c *Copies) AskContexts(inst *instance.Instance) {
	if inst.FileSync == nil {
		return
	}
	inst.FileSync.Lives = func() bool { return c.o.Contexts.Living(inst.Thread) > 0 }
}

// pull makes the server's copy what the sandbox has. While the sandbox cannot be reached, and the server has not ended it, it is
// tried again for patience.
func (c *Copies) pull(ctx context.Context, inst *instance.Instance, patience time.Duration) error {
	fs, began := inst.FileSync, time.Now()
	for {
		err := filesync.ErrSyncEnded
		if c.mayPull(inst) {
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

// mayPull says whether the thread's folder is still ours, and the sandbox's own: a thread that was deleted while
// its sandbox began may be a new one by now.
func (c *Copies) mayPull(inst *instance.Instance) bool {
	uid, err := workspace.UID(c.o.Folders.Dir(inst.Thread))
	return err == nil && uid == inst.UID && c.o.Owners.Current(inst.Owned())
}

// Restore is called before the server's copy of a thread's files is read or changed. Only when something ran, or runs,
// since the last pull is there another.
func (c *Copies) Restore(ctx context.Context, t sandbox.Thread) error {
	if c.o.Remote == nil {
		return nil
	}
	inst := c.holder(t)
	if inst == nil && c.o.Volumes.On(t) || inst != nil && inst.OnVolume() {
		ctx, cancel := context.WithTimeout(ctx, filesync.ReadPullTime)
		defer cancel()
		return c.restoreFromVolume(ctx, t)
	}
	if inst == nil || !inst.IsReady() || inst.FileSync.Same(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, filesync.ReadPullTime)
	defer cancel()
	err := c.pull(ctx, inst, readPatience)
	if err == nil || inst.Ending() != "" { // without a sandbox the server's copy is all there is
		return nil
	}
	return filesync.Unreadable(err)
}

// readPatience is how long a reader waits for a sandbox that cannot be reached.
const readPatience = 3 * time.Second

// UpToDate is called before something begins to run in an instance: it does not miss what the server changed.
func (c *Copies) UpToDate(ctx context.Context, inst *instance.Instance) error {
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
			c.o.Log.Warn("a sandbox cannot have what the server changed", "thread", inst.Thread.String(), "error", err)
			return nil
		case inst.Ending() != "" || !wait(limited, filesync.RetryPause):
			return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox cannot be reached now; try again")
		}
	}
}

// Begin counts in what is about to run in an instance. report says that it will be asked what it changed.
func (c *Copies) Begin(ctx context.Context, inst *instance.Instance, report bool) error {
	fs := inst.FileSync
	if fs == nil {
		return nil
	}
	if err := c.UpToDate(ctx, inst); err != nil {
		return err
	}
	if report && !fs.Same(false) { // what others change meanwhile is not this one's
		limited, cancel := context.WithTimeout(ctx, filesync.ReadPullTime)
		defer cancel()
		if err := c.pull(limited, inst, readPatience); err != nil && filesync.OutOfReach(err) {
			return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox cannot be reached now; try again")
		}
	}
	return nil
}

// End is called when an exec has ended: what it changed is at the server when it returns nil. report is as for Begin.
func (c *Copies) End(inst *instance.Instance, report bool, exit *sandboxv1.Exit) error {
	fs := inst.FileSync
	if fs == nil {
		return nil
	}
	fs.End()
	if exit.GetStatus() == sandboxv1.Exit_STATUS_FAILED_TO_START {
		return nil // nothing ran
	}
	if fs.OnVolume && !report {
		return nil // they are where they stay
	}
	ctx, cancel := context.WithTimeout(c.ctx, filesync.EndPullTime)
	defer cancel()
	err := c.pull(ctx, inst, filesync.UnreachableTime)
	if fs.OnVolume {
		return err
	}
	if err == nil && inst.Main != nil {
		c.giveBack(ctx, inst.Main)
	}
	if err != nil && exit != nil && filesync.OutOfReach(err) && inst.Ending() == "" && c.ctx.Err() == nil {
		// What it has is not what was told: nothing goes on from there.
		c.o.Retirements.Abandon(inst, "its files could not be reached")
	}
	return err
}

// restoreFromVolume is Restore for a thread that is on a volume.
func (c *Copies) restoreFromVolume(ctx context.Context, t sandbox.Thread) error {
	for {
		inst := c.o.Live.Find(t)
		if inst == nil {
			if again, err := c.o.Volumes.Fetch(ctx, t); !again || err != nil {
				return err
			}
			continue
		}
		ended := inst.Gone
		select {
		case <-inst.Ready:
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the thread's files are on its user's volume, and its sandbox is still starting; try again")
		}
		if inst.Err == nil && inst.Ending() == "" {
			if inst.FileSync.Same(true) {
				return nil
			}
			err := c.pull(ctx, inst, readPatience)
			if inst.Ending() == "" {
				if err != nil {
					return filesync.Unreadable(err)
				}
				return nil
			}
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the thread's files are on its user's volume, and its sandbox is still stopping; try again")
		}
	}
}

// Last copies what an ending instance has and the server does not, and ends the copying.
func (c *Copies) Last(ctx context.Context, inst *instance.Instance) {
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
		if err = filesync.ErrSyncEnded; c.mayPull(inst) {
			err = fs.Pull(ctx)
		}
		if err != nil {
			c.o.Log.Warn("what the sandbox changed after the last run that was told is not kept", "thread", inst.Thread.String(), "sandbox", string(inst.ID), "error", err)
		}
	}
	fs.Close(err)
	if fs.OnVolume && fs.Files.Any() {
		if err := c.o.Volumes.Owe(inst.Thread, fs.Files.Take()); err != nil {
			c.o.Log.Error("what was changed last is not on the user's volume", "thread", inst.Thread.String(), "error", err)
		}
	}
}

// AttachAgain tells the sandbox the token of a lease that was taken again. When it has seen a higher one, because the store lost
// its count, it stays attached by that.
func (c *Copies) AttachAgain(ctx context.Context, inst *instance.Instance) {
	if inst.FileSync == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, filesync.RetryPause)
	defer cancel()
	if err := c.Attach(ctx, inst, nil); err != nil {
		c.o.Log.Warn("the sandbox does not know the new lease", "thread", inst.Thread.String(), "error", err)
	}
}

// Await waits a moment until instances have what is due to them. Those out of reach get it later.
func (c *Copies) Await(ctx context.Context, wanted func(*instance.Instance) bool) {
	if c.o.Remote == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pushWait)
	defer cancel()
	instance.Each(c.o.Live.All(), wanted, func(inst *instance.Instance) {
		if err := inst.FileSync.PushAll(ctx); err != nil {
			c.o.Log.Debug("not pushed yet", "thread", inst.Thread.String(), "error", err)
		}
	})
}

// pushWait is how long a change of skills waits for the sandboxes that are to show it.
const pushWait = 2 * time.Second
