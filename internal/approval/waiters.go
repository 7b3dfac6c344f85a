package approval

import "sync"

// waiters are the calls of this server that wait for a decision.
type waiters struct {
	mu        sync.Mutex
	byRequest map[string]chan struct{} // holds a token: look again
}

// wake lets the waiter of a request look again; "": all.
func (w *waiters) wake(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, look := range w.byRequest {
		if id != "" && name != id {
			continue
		}
		select {
		case look <- struct{}{}:
		default:
		}
	}
}

// listen makes a waiter of a request, until end is called.
func (w *waiters) listen(id string) (look <-chan struct{}, end func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byRequest[id] = ch
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.byRequest[id] == ch {
			delete(w.byRequest, id)
		}
	}
}
