package keylock

import (
	"context"
	"sync"
)

// Locks holds one lock a key. The zero value is ready.
type Locks[K comparable] struct {
	mu    sync.Mutex
	byKey map[K]*entry
}

type entry struct {
	held chan struct{} // has one place: who puts a token in holds the lock
	refs int           // holders and waiters; the entry goes when it falls to zero
}

// Lock waits for the lock of key and returns what releases it, to be called exactly once. When ctx ends first it
// returns the error of ctx.
func (l *Locks[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	l.mu.Lock()
	if l.byKey == nil {
		l.byKey = make(map[K]*entry)
	}
	e := l.byKey[key]
	if e == nil {
		e = &entry{held: make(chan struct{}, 1)}
		l.byKey[key] = e
	}
	e.refs++
	l.mu.Unlock()

	select {
	case e.held <- struct{}{}:
		return func() { <-e.held; l.leave(key, e) }, nil
	case <-ctx.Done():
		l.leave(key, e)
		return nil, ctx.Err()
	}
}

func (l *Locks[K]) leave(key K, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.refs--
	if e.refs == 0 {
		delete(l.byKey, key)
	}
}
