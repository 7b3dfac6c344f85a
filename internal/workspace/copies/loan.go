package copies

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// A thread's second sandbox has a disk of its own, too. Two sandboxes that change copies of one folder would undo each
// other's changes, for a pull makes the server's copy what one of them has. So the files are in one of them at a time:
// Life.enter lets nothing run in the thread's own meanwhile. Before an end of a script is told, both have what it changed.

// holder returns the instance that has the files of a thread, nil when it has none.
func (c *Copies) holder(t sandbox.Thread) *instance.Instance {
	own := c.o.Live.Find(t)
	if own == nil {
		return nil
	}
	return own.Holder()
}

// Lend makes the server's copy what the thread's own instance has, for a second one to begin with. Nothing runs in main.
func (c *Copies) Lend(ctx context.Context, main *instance.Instance) error {
	if main.FileSync == nil || main.Holder() != main {
		return nil
	}
	if n := c.o.Contexts.Living(main.Thread); n > 0 {
		return sandbox.Errorf(sandbox.Conflict, "%d interpreters of contexts live in the thread's sandbox, and the script needs its files in a second one: delete the contexts first", n)
	}
	if main.FileSync.Same(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, filesync.ReadPullTime)
	defer cancel()
	if err := c.pull(ctx, main, readPatience); err != nil {
		return filesync.Unreadable(err)
	}
	return nil
}

// Hold makes a second instance the holder of the thread's files. One that was made before does not have what changed since its
// last script.
func (c *Copies) Hold(inst *instance.Instance, fresh bool) {
	if inst.FileSync == nil || inst.Main.Holder() == inst {
		return
	}
	if !fresh {
		inst.FileSync.Files.Add(sandbox.UserDataDir)
	}
	inst.Main.Hold(inst)
}

// giveBack makes main have what a script in a second sandbox changed, which the server has by now. A main that cannot have it
// is ended: the next one begins with the server's copy.
func (c *Copies) giveBack(ctx context.Context, main *instance.Instance) {
	main.FileSync.Files.Add(sandbox.UserDataDir)
	if err := main.FileSync.PushAll(ctx); err != nil && main.Ending() == "" && c.ctx.Err() == nil {
		c.o.Log.Warn("the thread's own sandbox cannot have what a script changed", "thread", main.Thread.String(), "error", err)
		c.o.Retirements.Abandon(main, "it could not have what a script in a second sandbox changed")
	}
}

// changeToo makes main have a change of the API, which the server and the second sandbox have. What main cannot have now it
// gets before anything runs there.
func (c *Copies) changeToo(ctx context.Context, main *instance.Instance, changed []string) {
	main.FileSync.Files.Add(changed...)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), filesync.ReadPullTime)
	defer cancel()
	if err := main.FileSync.PushAll(ctx); err != nil {
		c.o.Log.Debug("not pushed yet", "thread", main.Thread.String(), "error", err)
		main.FileSync.Follow()
	}
}
