package memory

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
)

// Watch implements driver.Driver.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	stopWithDriver := context.AfterFunc(d.closing, cancel)
	w := &watcher{more: make(chan struct{}, 1)}
	d.host.mu.Lock()
	d.host.watchers[w] = true
	d.host.mu.Unlock()
	events := make(chan driver.Event)
	d.watches.Go(func() {
		defer close(events)
		defer cancel()
		defer stopWithDriver()
		defer func() {
			d.host.mu.Lock()
			delete(d.host.watchers, w)
			d.host.mu.Unlock()
		}()
		w.run(ctx, events)
	})
	return events, nil
}

// watcher queues the events of one call of Watch, so that whoever ends a sandbox waits for no reader.
type watcher struct {
	mu    sync.Mutex
	queue []driver.Event
	more  chan struct{} // holds a token while the queue may not be empty
}

func (w *watcher) put(e driver.Event) {
	w.mu.Lock()
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watcher) take() []driver.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.queue
	w.queue = nil
	return out
}

func (w *watcher) run(ctx context.Context, to chan<- driver.Event) {
	for {
		for _, e := range w.take() {
			select {
			case to <- e:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-w.more:
		case <-ctx.Done():
			return
		}
	}
}
