package copies

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Change calls change, which opens the thread's files with what it is given and changes them. When it returns, a sandbox that
// runs has what was changed.
func (c *Copies) Change(ctx context.Context, t sandbox.Thread, change func(more func(*paths.Options)) error) error {
	if c.o.Remote == nil {
		return change(nil)
	}
	own, err := c.lock(ctx, t)
	if err != nil {
		return err
	}
	inst, release := own.inst, own.release
	var changed []string
	err = change(func(o *paths.Options) {
		o.Changing = func(path string) { changed = append(changed, path) }
		if inst != nil {
			o.Body = func(body io.Reader) (*os.File, error) { return c.arrive(ctx, own, body) }
		}
	})
	now := c.holder(t) // it may have begun to start meanwhile
	if now == nil || len(changed) == 0 {
		release()
		return errors.Join(err, c.o.Volumes.Owe(t, changed))
	}
	fs := now.FileSync
	fs.Files.Add(changed...)
	if now.Main != nil { // it outlives this server, and the second one does not
		defer c.changeToo(ctx, now.Main, changed)
	}
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
		return errors.Join(err, c.o.Volumes.Owe(t, changed))
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

func (c *Copies) lock(ctx context.Context, t sandbox.Thread) (*copyLock, error) {
	o := &copyLock{inst: c.holder(t)}
	if o.inst == nil {
		return o, nil
	}
	if o.inst.FileSync.Files.Full() {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached now, and %d changes wait for it; try again", filesync.MaxDue)
	}
	return o, o.take(ctx)
}

// arrive waits until all of a body is here, in a file that goes with it. Meanwhile execs can end: the sender may be slow.
func (c *Copies) arrive(ctx context.Context, o *copyLock, body io.Reader) (*os.File, error) {
	o.release()
	file, err := os.CreateTemp(c.o.Spool, ".arriving-")
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
