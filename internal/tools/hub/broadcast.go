package hub

import (
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// broadcasts tell all listeners of a change.
type broadcasts struct {
	mu sync.Mutex
	by map[sandbox.UpstreamKind]chan struct{}
}

// next returns the channel that the next change closes.
func (b *broadcasts) next(kind sandbox.UpstreamKind) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.by[kind]
	if c == nil {
		if b.by == nil {
			b.by = map[sandbox.UpstreamKind]chan struct{}{}
		}
		c = make(chan struct{})
		b.by[kind] = c
	}
	return c
}

func (b *broadcasts) notify(kind sandbox.UpstreamKind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.by[kind]; c != nil {
		close(c)
		delete(b.by, kind)
	}
}
