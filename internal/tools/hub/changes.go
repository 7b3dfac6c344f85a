package hub

import (
	"sync"
	"sync/atomic"
)

// changes counts what changes, for those who keep something that follows from it.
type changes struct {
	version atomic.Uint64 // of the tools
	epoch   atomic.Uint64 // of anything that a view shows

	upstream broadcasts // of changes of what is not tools

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when version moves
}

func newChanges() *changes { return &changes{changed: make(chan struct{})} }

// bump notes that what views show has changed; tools says that it was a set of tools.
func (c *changes) bump(tools bool) {
	c.epoch.Add(1)
	if !tools {
		return
	}
	c.version.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// next returns a channel that is closed when version moves.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}
