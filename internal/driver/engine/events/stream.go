package events

import "context"

// Stream is one subscription to the events of an engine.
type Stream[E any] struct {
	Events <-chan E
	Errs   <-chan error       // closed when the client's goroutine has ended
	Cancel context.CancelFunc // ends the subscription
}

// End ends a subscription and waits until the client's goroutine has ended.
func (s Stream[E]) End() {
	s.Cancel()
	for {
		select {
		case <-s.Events:
		case _, open := <-s.Errs:
			if !open {
				return
			}
		}
	}
}

// Each calls handle with every event until the connection is lost, of which it calls lost, or ctx ends. It ends the
// subscription.
func (s Stream[E]) Each(ctx context.Context, handle func(context.Context, E), lost func(error)) {
	defer s.End()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-s.Errs:
			if ctx.Err() == nil {
				lost(err)
			}
			return
		case e := <-s.Events:
			handle(ctx, e)
		}
	}
}
