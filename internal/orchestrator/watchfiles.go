package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/vpath"
)

const (
	// maxWatches and maxWatchesOfThread bound the watches of files, each of which holds what its folder was like.
	maxWatches         = 128
	maxWatchesOfThread = 16
	// watchEvery is how often a watch looks, whatever the kernel says; watchFar, while the files are in a sandbox elsewhere.
	watchEvery = 5 * time.Second
	watchFar   = time.Second
)

// fileWatches counts the watches of files.
type fileWatches struct {
	mu  sync.Mutex
	all int
	of  map[sandbox.Thread]int
}

func (w *fileWatches) begin(t sandbox.Thread) (done func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.of[t] >= maxWatchesOfThread:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d watches follow the files of this thread already", maxWatchesOfThread)
	case w.all >= maxWatches:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d watches follow files of this server already", maxWatches)
	}
	if w.of == nil {
		w.of = map[sandbox.Thread]int{}
	}
	w.all++
	w.of[t]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.all--; w.of[t] > 1 {
			w.of[t]--
		} else {
			delete(w.of, t)
		}
	}, nil
}

var errSandboxEnded = errors.New("the sandbox has ended")

// WatchFiles tells emit what changes in a folder of the thread: first nothing, when it has begun, and then each time one or more
// changes. It returns nil when the sandbox that the thread has, or gets meanwhile, has ended and its last changes are told, else what
// ended it: NotFound when the thread is deleted, Unavailable when this server stops. It starts no sandbox, and keeps none from
// being idle.
func (r *Orchestrator) WatchFiles(ctx context.Context, c sandbox.Caller, id, path string, recursive bool, emit func([]vpath.Change) error) error {
	t, err := thread(c, id)
	if err != nil {
		return err
	}
	done, err := r.watches.begin(t)
	if err != nil {
		return err
	}
	defer done()
	w := vpath.NewWatch(path, recursive)
	defer w.Close()
	look := func(ctx context.Context) (changes []vpath.Change, err error) {
		if err := r.there(ctx, t); err != nil {
			return nil, err
		}
		err = r.readFiles(ctx, t, func(f *vpath.FS) error { changes, err = w.Look(ctx, f); return err })
		return changes, err
	}
	most := watchEvery
	if r.remote != nil {
		most = watchFar
	}
	w.Listen()
	lives, cancel := context.WithCancelCause(ctx)
	var ends sync.WaitGroup
	defer ends.Wait()
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(sandbox.Errorf(sandbox.Unavailable, "the server stops: watch again")) })()
	var seen *box
	for first := true; ; first = false {
		if b := r.find(t); b != nil && seen == nil {
			seen = b
			ends.Go(func() {
				select {
				case <-b.gone:
					cancel(errSandboxEnded)
				case <-lives.Done():
				}
			})
		}
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
