package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// What the use cases do with a box's copies (copies.go). With a driver whose sandboxes see the server's disk all of
// it does nothing.

// attach makes this process the one that the box's sandbox is connected with, by the token of the box's hold. It tries
// again while the sandbox cannot be reached, until ctx ends. fenced: the sandbox was attached with a higher token.
func (r *Orchestrator) attach(ctx context.Context, b *box, labels map[string]string) error {
	c := b.copies
	a := driver.Attachment{ID: b.id, Mounts: r.specOf(b, r.threadDir(b.thread)).Mounts, UID: b.uid, Labels: labels}
	if h := b.held(); h != nil {
		a.Token = h.token.Load()
	}
	for {
		err := c.remote.Attach(ctx, a)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, sandbox.Conflict):
			return &fenced{err}
		case !outOfReach(err) || !wait(ctx, retryPause):
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

// watchContexts lets the copies of a box that has a thread ask for contexts.
func (r *Orchestrator) watchContexts(b *box) {
	if b.copies == nil {
		return
	}
	b.copies.lives = func() bool {
		r.contexts.mu.Lock()
		defer r.contexts.mu.Unlock()
		return r.contexts.living(b.thread) > 0
	}
}

// pull makes the server's copy what the sandbox has. While the sandbox cannot be reached, and nobody has ended it, it is
// tried again for patience.
func (r *Orchestrator) pull(ctx context.Context, b *box, patience time.Duration) error {
	c, began := b.copies, time.Now()
	for {
		err := errNoCopies
		if r.mayPull(b) {
			err = c.pulls.do(ctx, c.spawn, c.pullOnce)
		}
		if err == nil {
			return nil
		}
		if b.endingStatus() != "" { // there is one more pull, before it is removed
			select {
			case <-c.finished:
				return c.final
			case <-ctx.Done():
				return err
			}
		}
		if !outOfReach(err) || time.Since(began) > patience || !wait(ctx, retryPause) {
			return err
		}
	}
}

// mayPull says whether the thread's folder is still ours, and the one that the sandbox was given: a thread that was deleted while
// its sandbox began may be a new one by now.
func (r *Orchestrator) mayPull(b *box) bool {
	uid, err := workspaceUID(r.threadDir(b.thread))
	return err == nil && uid == b.uid && r.stillOurs(b)
}

// bringToRead is called before the server's copy of a thread's files is read or changed. Only when something ran, or runs,
// since the last pull is there another.
func (r *Orchestrator) bringToRead(ctx context.Context, t sandbox.Thread) error {
	if r.remote == nil {
		return nil
	}
	b := r.find(t)
	if b == nil && r.onVolume(t) || b != nil && b.onVolume() {
		ctx, cancel := context.WithTimeout(ctx, readPullTime)
		defer cancel()
		return r.bringKept(ctx, t)
	}
	if b == nil || !b.isReady() || b.copies.same(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readPullTime)
	defer cancel()
	err := r.pull(ctx, b, readPatience)
	if err == nil || b.endingStatus() != "" { // without a sandbox the server's copy is all there is
		return nil
	}
	return unreadable(err)
}

// readPatience is how long somebody who wants to read waits for a sandbox that cannot be reached.
const readPatience = 3 * time.Second

func unreadable(err error) error {
	if errors.Is(err, sandbox.QuotaExceeded) {
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "the sandbox has more files than the thread may have: delete some there")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the thread's files are in its sandbox, which cannot be reached now; try again")
}

// upToDate is called before something begins to run in a box: it does not miss what the server changed.
func (r *Orchestrator) upToDate(ctx context.Context, b *box) error {
	c := b.copies
	if c == nil || !c.views.any() && !c.files.any() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, upToDateTime)
	defer cancel()
	for {
		err := c.pushAll(limited)
		switch {
		case err == nil:
			return nil
		case !outOfReach(err):
			r.o.Log.Warn("a sandbox cannot have what the server changed", "thread", b.thread.String(), "error", err)
			return nil
		case b.endingStatus() != "" || !wait(limited, retryPause):
			return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox cannot be reached now; try again")
		}
	}
}

// begins counts in what is about to run in a box. before says that it will be asked what it changed.
func (r *Orchestrator) begins(ctx context.Context, b *box, e *execution) error {
	c := b.copies
	if c == nil {
		return nil
	}
	if err := r.upToDate(ctx, b); err != nil {
		return err
	}
	if e.report && !c.same(false) { // what others change meanwhile is not this one's
		limited, cancel := context.WithTimeout(ctx, readPullTime)
		defer cancel()
		if err := r.pull(limited, b, readPatience); err != nil && outOfReach(err) {
			return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox cannot be reached now; try again")
		}
	}
	return nil
}

// brought is called when an exec has ended: what it changed is at the server when it returns nil.
func (r *Orchestrator) brought(b *box, e *execution, exit *sandboxv1.Exit) error {
	c := b.copies
	if c == nil {
		return nil
	}
	c.end()
	if exit.GetStatus() == sandboxv1.Exit_STATUS_FAILED_TO_START {
		return nil // nothing ran
	}
	if c.kept && !e.report {
		return nil // they are where they stay
	}
	ctx, cancel := context.WithTimeout(r.ctx, endPullTime)
	defer cancel()
	err := r.pull(ctx, b, unreachableTime)
	if c.kept {
		return err
	}
	if err != nil && exit != nil && outOfReach(err) && b.endingStatus() == "" && r.ctx.Err() == nil {
		// What it has is not what was told: nothing goes on from there.
		r.wg.Go(func() { r.abandon(b, "its files could not be reached") })
	}
	return err
}

// notBrought says in a result that the exec's files are not at the server.
func (e *execution) notBrought(res *sandbox.Result, err error) {
	why := "its sandbox could not be reached any more"
	if !outOfReach(err) {
		why = "they cannot be copied (" + string(sandbox.KindOf(err)) + ")"
	}
	if errors.Is(err, sandbox.QuotaExceeded) {
		why = "the sandbox has more than the thread may have: delete some there"
	}
	ended := "it ended as " + string(res.Status)
	if res.ExitCode != nil {
		ended = fmt.Sprintf("it ended with code %d", *res.ExitCode)
	}
	text := fmt.Sprintf("%s, but what it changed in the thread's files is not kept: %s. They are as at the end of the last run before", ended, why)
	e.endBecause(text)
	if res.Detail != "" {
		text = res.Detail + "; " + text
	}
	if res.Status == sandbox.StatusExited {
		res.Status, res.ExitCode = sandbox.StatusLost, nil
	}
	res.Detail, res.FilesTruncated = text, true
}

// changeFiles gives change a view of the thread's files that it may write. When it returns, a sandbox that runs has what was
// changed.
func (r *Orchestrator) changeFiles(ctx context.Context, t sandbox.Thread, uid int, change func(*paths.FS) error) error {
	if r.remote == nil {
		return r.withFiles(t, &uid, change)
	}
	own, err := r.ownFiles(ctx, t)
	if err != nil {
		return err
	}
	b, release := own.box, own.release
	var changed []string
	err = r.withView(t, &uid, nil, func(o *paths.Options) {
		o.Changing = func(path string) { changed = append(changed, path) }
		if b != nil {
			o.Body = func(body io.Reader) (*os.File, error) { return r.arrive(ctx, own, body) }
		}
	}, change)
	now := r.find(t) // it may have begun to start meanwhile
	if now == nil || len(changed) == 0 {
		release()
		return errors.Join(err, r.owe(t, changed))
	}
	c := now.copies
	c.files.owe(changed...)
	if now != b {
		release()
		c.follow()
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), readPullTime)
	defer cancel()
	pushed := c.push(limited, &c.files)
	release()
	switch {
	case pushed != nil && now.onVolume() && now.endingStatus() != "":
		return errors.Join(err, r.owe(t, changed))
	case pushed == nil || now.endingStatus() != "" || !now.isReady(): // the next one has them, or it has when it begins
		return err
	case outOfReach(pushed):
		c.follow()
		return errors.Join(err, sandbox.Wrap(sandbox.Unavailable, pushed, "the change is kept, and the sandbox, which cannot be reached now, does not have it yet: it does before anything runs there"))
	}
	return errors.Join(err, pushed)
}

// owned keeps pulls from the server's copy until it is released. box is the thread's, nil when it has none.
type owned struct {
	box  *box
	held bool
}

func (o *owned) release() {
	if o.held {
		o.held = false
		o.box.copies.giveTurn()
	}
}

func (o *owned) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	err := o.box.copies.takeTurn(ctx)
	o.held = err == nil
	return err
}

func (r *Orchestrator) ownFiles(ctx context.Context, t sandbox.Thread) (*owned, error) {
	o := &owned{box: r.find(t)}
	if o.box == nil {
		return o, nil
	}
	if o.box.copies.files.full() {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached now, and %d changes wait for it; try again", maxDue)
	}
	return o, o.take(ctx)
}

// arrive waits until all of a body is here, in a file that goes with it. Meanwhile execs can end: whoever sends it may be slow.
func (r *Orchestrator) arrive(ctx context.Context, o *owned, body io.Reader) (*os.File, error) {
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

// lastPull brings what a box that is ending has and the server does not, and ends the copying.
func (r *Orchestrator) lastPull(ctx context.Context, b *box) {
	c := b.copies
	if c == nil {
		return
	}
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	var err error
	if open && !c.same(true) && !c.kept {
		limit := lastPullTime
		if s := b.endingStatus(); s == sandbox.StatusLost || s == sandbox.StatusOOM {
			limit = deadPullTime
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		if err = errNoCopies; r.mayPull(b) {
			err = c.pulls.do(ctx, c.spawn, c.pullOnce)
		}
		if err != nil {
			r.o.Log.Warn("what the sandbox changed after the last run that was told is not kept", "thread", b.thread.String(), "sandbox", string(b.id), "error", err)
		}
	}
	c.close(err)
	if c.kept && c.files.any() {
		if err := r.owe(b.thread, c.files.take()); err != nil {
			r.o.Log.Error("what was changed last is not on the user's volume", "thread", b.thread.String(), "error", err)
		}
	}
}

// detach ends this process's part in a sandbox.
func (b *box) detach() error {
	c := b.copies
	if c == nil {
		return nil
	}
	c.close(errNoCopies)
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	return c.remote.Detach(ctx, b.id)
}

// attachAgain tells the sandbox the token of a lease that was taken again. When it has seen a higher one, because the store lost
// its count, it stays attached by that.
func (r *Orchestrator) attachAgain(ctx context.Context, b *box) {
	if b.copies == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, retryPause)
	defer cancel()
	if err := r.attach(ctx, b, nil); err != nil {
		r.o.Log.Warn("the sandbox does not know the new lease", "thread", b.thread.String(), "error", err)
	}
}

// awaitPushes waits a moment until boxes have what is due to them. Those out of reach get it later.
func (r *Orchestrator) awaitPushes(ctx context.Context, wanted func(*box) bool) {
	if r.remote == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pushWait)
	defer cancel()
	r.eachBox(wanted, func(b *box) {
		if err := b.copies.pushAll(ctx); err != nil {
			r.o.Log.Debug("not pushed yet", "thread", b.thread.String(), "error", err)
		}
	})
}

// pushWait is how long a change of skills waits for the sandboxes that are to show it.
const pushWait = 2 * time.Second
