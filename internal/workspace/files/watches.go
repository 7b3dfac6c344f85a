package files

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxWatches bounds the watches of files, each of which holds what its folder was like.
	maxWatches = 128
	// MaxWatchesOfThread bounds those of one thread.
	MaxWatchesOfThread = 16
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
