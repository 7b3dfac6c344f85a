package volumes

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// turns let one goroutine at a time work on the folder of a thread.
type turns struct {
	mu  sync.Mutex
	now map[sandbox.Thread]*turn
}

// turn is one use of a thread's folder on its volume.
type turn struct {
	done chan struct{}
	err  error
}

// begin returns the round that goes on, or a new one, which the caller ends.
func (w *turns) begin(t sandbox.Thread) (x *turn, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.now[t]; x != nil {
		return x, false
	}
	if w.now == nil {
		w.now = map[sandbox.Thread]*turn{}
	}
	x = &turn{done: make(chan struct{})}
	w.now[t] = x
	return x, true
}

func (w *turns) end(t sandbox.Thread, x *turn, err error) {
	w.mu.Lock()
	delete(w.now, t)
	w.mu.Unlock()
	x.err = err
	close(x.done)
}

// alone calls do while no other goroutine works on the folder.
func (w *turns) alone(ctx context.Context, t sandbox.Thread, do func() error) error {
	for {
		x, mine := w.begin(t)
		if mine {
			err := do()
			w.end(t, x, err)
			return err
		}
		if err := x.wait(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
}

func (x *turn) wait(ctx context.Context) error {
	select {
	case <-x.done:
		return x.err
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the thread's files are being copied from its user's volume; try again")
	}
}
