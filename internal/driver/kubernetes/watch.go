package kubernetes

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
)

// Watch implements driver.Driver. A pod that is evicted, deleted or lost with its node is reported when the API server
// says so; of a program that ended, the kubelet tells it, which looks once a second.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.closing, cancel)
	fail := func(err error) (<-chan driver.Event, error) {
		stop()
		cancel()
		return nil, err
	}
	if err := d.pods.synced(ctx); err != nil {
		return fail(err)
	}
	w := &watcher{more: make(chan struct{}, 1)}
	d.pods.mu.Lock()
	d.pods.watchers[w] = true
	d.pods.mu.Unlock()
	events := make(chan driver.Event)
	d.running.Go(func() {
		defer close(events)
		defer cancel()
		defer stop()
		defer func() {
			d.pods.mu.Lock()
			delete(d.pods.watchers, w)
			d.pods.mu.Unlock()
		}()
		w.run(ctx, events)
	})
	return events, nil
}

// watcher queues the events of one call of Watch, so that the informer waits for no reader.
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
