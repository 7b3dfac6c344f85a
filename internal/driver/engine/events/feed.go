package events

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
)

// Feed has any number of readers. The zero value has none.
type Feed struct {
	mu      sync.Mutex
	readers map[*reader]bool
}

// Put sends an event to all current watchers. It never waits.
func (f *Feed) Put(e driver.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		r.put(e)
	}
}

// Watch returns all events that are put after it was called, in their order, until ctx or closing ends; then the channel is
// closed. Its goroutine is one of running.
func (f *Feed) Watch(ctx, closing context.Context, running *sync.WaitGroup) <-chan driver.Event {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(closing, cancel)
	r := &reader{more: make(chan struct{}, 1)}
	f.mu.Lock()
	if f.readers == nil {
		f.readers = make(map[*reader]bool)
	}
	f.readers[r] = true
	f.mu.Unlock()
	events := make(chan driver.Event)
	running.Go(func() {
		defer close(events)
		defer cancel()
		defer stop()
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.readers, r)
		}()
		r.run(ctx, events)
	})
	return events
}

// reader queues the events of one call of Watch.
type reader struct {
	mu    sync.Mutex
	queue []driver.Event
	more  chan struct{} // holds a token while the queue may not be empty
}

func (r *reader) put(e driver.Event) {
	r.mu.Lock()
	r.queue = append(r.queue, e)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *reader) take() []driver.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.queue
	r.queue = nil
	return out
}

func (r *reader) run(ctx context.Context, to chan<- driver.Event) {
	for {
		for _, e := range r.take() {
			select {
			case to <- e:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-r.more:
		case <-ctx.Done():
			return
		}
	}
}
