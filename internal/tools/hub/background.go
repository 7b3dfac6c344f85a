package hub

import (
	"context"
	"sync"
)

// background runs the goroutines of a hub, and ends with all of them.
type background struct {
	ctx    context.Context // ends with the hub
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines that end with the hub

	mu       sync.Mutex
	stopping bool
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// spawn runs f in a goroutine that wait waits for. It reports false when the hub is closing: then f
// does not run.
func (b *background) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return false
	}
	b.wg.Go(f)
	return true
}

// stop lets no other goroutine begin, and tells the running ones to end.
func (b *background) stop() {
	b.mu.Lock()
	b.stopping = true
	b.mu.Unlock()
	b.cancel()
}
