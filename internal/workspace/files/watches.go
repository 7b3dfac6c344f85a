package files

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

const (
	// maxWatches bounds the watches of files, each of which holds what its folder was like.
	maxWatches = 128
	// MaxWatchesOfThread bounds those of one thread.
	MaxWatchesOfThread = 16
	// maxWatchesOfOwner leaves some for other users of the server.
	maxWatchesOfOwner = 64
	// watchEvery is how often a watch looks, whatever the kernel says; watchFar, while the files are in a sandbox elsewhere.
	watchEvery = 5 * time.Second
	watchFar   = time.Second
)

// Watches are the watches of files that go on.
type Watches struct {
	mu  sync.Mutex
	all int
	of  map[sandbox.Thread]map[*fileWatch]bool
}

// fileWatch is one: end ends it.
type fileWatch struct{ end context.CancelCauseFunc }

// begin counts a watch, which is told of the end of the thread's sandbox from now on, and returns what ends that.
func (w *Watches) begin(t sandbox.Thread, one *fileWatch) (done func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.of[t]) >= MaxWatchesOfThread:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d watches follow the files of this thread already", MaxWatchesOfThread)
	case w.ofOwner(t.Owner) >= maxWatchesOfOwner:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d watches follow files of this user already", maxWatchesOfOwner)
	case w.all >= maxWatches:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d watches follow files of this server already", maxWatches)
	}
	if w.of == nil {
		w.of = map[sandbox.Thread]map[*fileWatch]bool{}
	}
	if w.of[t] == nil {
		w.of[t] = map[*fileWatch]bool{}
	}
	w.all++
	w.of[t][one] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all--
		if delete(w.of[t], one); len(w.of[t]) == 0 {
			delete(w.of, t)
		}
	}, nil
}

// ofOwner counts the watches of an owner. The caller holds w.mu.
func (w *Watches) ofOwner(o sandbox.Owner) int {
	n := 0
	for t, those := range w.of {
		if t.Owner == o {
			n += len(those)
		}
	}
	return n
}

// SandboxEnded tells the watches of a thread: a sandbox may begin and end between two looks.
func (w *Watches) SandboxEnded(t sandbox.Thread) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.of[t] {
		one.end(errSandboxEnded)
	}
}

var errSandboxEnded = errors.New("the sandbox has ended")

// Watching returns how many watches of files are open.
func (f *Files) Watching() int {
	f.watches.mu.Lock()
	defer f.watches.mu.Unlock()
	return f.watches.all
}

// WatchFiles tells emit what changes in a folder of the thread: first nothing, when it has begun, and then each time one or more
// changes. It returns nil when the sandbox that the thread has, or gets meanwhile, has ended and its last changes are told, else what
// ended it: NotFound when the thread is deleted, Unavailable when this server stops. It starts no sandbox, and keeps none from
// being idle.
func (f *Files) WatchFiles(ctx context.Context, c sandbox.Caller, id, path string, recursive bool, emit func([]paths.Change) error) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	lives, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, err := f.watches.begin(t, &fileWatch{end: cancel})
	if err != nil {
		return err
	}
	defer done()
	w := paths.NewWatch(path, recursive)
	defer w.Close()
	look := func(ctx context.Context) (changes []paths.Change, err error) {
		if err := f.threads.Exists(ctx, t); err != nil {
			return nil, err
		}
		err = f.read(ctx, t, func(fs *paths.FS) error { changes, err = w.Look(ctx, fs); return err })
		return changes, err
	}
	most := watchEvery
	if f.copies.Apart() {
		most = watchFar
	}
	w.Listen()
	defer context.AfterFunc(f.ctx, func() { cancel(sandbox.Errorf(sandbox.Unavailable, "the server stops: watch again")) })()
	for first := true; ; first = false {
		ended := errors.Is(context.Cause(lives), errSandboxEnded)
		changes, err := look(ctx)
		if err == nil && (first || len(changes) > 0) {
			err = emit(changes)
		}
		switch {
		case err != nil:
			return err
		case ended:
			return nil
		}
		if err := w.Wait(lives, most); err != nil && !errors.Is(context.Cause(lives), errSandboxEnded) {
			return context.Cause(lives)
		}
	}
}
