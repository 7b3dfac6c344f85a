package e2b

import (
	"context"
	"io"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// threadTree is paths.Tree of the thread's files, which need no sandbox.
type threadTree struct{ files *paths.FS }

func (t threadTree) Stat(_ context.Context, at string) (paths.Entry, error) { return t.files.Stat(at) }

func (t threadTree) List(ctx context.Context, at string, depth, limit int) (paths.Listing, error) {
	return t.files.List(ctx, at, depth, limit)
}

func (t threadTree) Read(_ context.Context, at string, w io.Writer) error {
	file, err := t.files.Open(at)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // read-only
	_, err = io.Copy(w, file)
	return err
}

func (t threadTree) Write(ctx context.Context, at string, r io.Reader) (int64, error) {
	return t.writeDescribed(ctx, at, r, nil)
}

// writeDescribed is Write with metadata.
func (t threadTree) writeDescribed(ctx context.Context, at string, r io.Reader, described map[string]string) (int64, error) {
	w, err := t.files.WriteWith(ctx, at, r, paths.Writing{Described: described})
	return w.Added, err
}

func (t threadTree) Mkdir(_ context.Context, at string) (paths.Entry, error) {
	return t.files.Mkdir(at)
}

func (t threadTree) Move(_ context.Context, from, to string) (paths.Entry, error) {
	return t.files.Move(from, to)
}

func (t threadTree) Remove(ctx context.Context, at string) error {
	return t.files.Remove(ctx, at, true)
}

// readTree calls read with the files among which a path is: those of the thread, or of its sandbox.
func (a *Adapter) readTree(ctx context.Context, q request, at string, read func(paths.Tree) error) error {
	if !ofThread(at) {
		return a.o.Files.ReadSandbox(ctx, q.caller, q.thread, read)
	}
	return a.o.Files.ReadFiles(ctx, q.caller, q.thread, func(files *paths.FS) error { return read(threadTree{files}) })
}

// changeTree does the same for a change, which is recorded. What goes from one to the other is the sandbox's matter.
func (a *Adapter) changeTree(ctx context.Context, q request, action, subject string, at []string, change func(paths.Tree) (int64, error)) error {
	for _, one := range at {
		if !ofThread(one) {
			return a.o.Files.ChangeSandbox(ctx, q.caller, q.thread, action, subject, change)
		}
	}
	return a.o.Files.ChangeFiles(ctx, q.caller, q.thread, action, subject, func(files *paths.FS) (int64, error) { return change(threadTree{files}) })
}

// listed is what a folder of the sandbox alone holds now.
func (a *Adapter) listed(ctx context.Context, q request, at string, recursive bool) (items []paths.Entry, err error) {
	depth := 1
	if recursive {
		depth = maxDepth
	}
	err = a.readTree(ctx, q, at, func(t paths.Tree) error {
		l, err := t.List(ctx, at, depth, paths.MaxEntries)
		if err == nil && l.Truncated {
			err = sandbox.Errorf(sandbox.QuotaExceeded, "%s: more than %d entries: watch a folder of it", at, paths.MaxEntries)
		}
		items = l.Items
		return err
	})
	return items, err
}

// lookAgain is the pause between two looks at a folder that only the sandbox has.
const lookAgain = 500 * time.Millisecond

// watchListed is service.Files.WatchFiles for a folder that only the sandbox has. It looks now and then, while the sandbox
// runs, and starts none. It counts as a watcher: each holds what its folder was like.
func (a *Adapter) watchListed(ctx context.Context, q request, at string, recursive bool, emit func([]paths.Change) error) error {
	id, err := a.watchers.add(&watcher{thread: threadOf(q)})
	if err != nil {
		return err
	}
	defer a.watchers.get(threadOf(q), id, true)
	w := paths.NewWatch(at, recursive)
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		a.watchers.get(threadOf(q), id, false) // it is not idle
		t, err := a.o.Threads.Thread(ctx, q.caller, q.thread)
		if err != nil {
			return err
		}
		if t.Sandbox == nil || t.Sandbox.State != sandbox.Running && t.Sandbox.State != sandbox.Paused {
			return nil
		}
		if t.Sandbox.State == sandbox.Running {
			items, err := a.listed(ctx, q, at, recursive)
			if err == nil {
				err = emit(w.Update(items))
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
