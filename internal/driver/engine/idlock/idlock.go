package idlock

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Locks holds one lock an id. The zero value is ready.
type Locks struct {
	mu   sync.Mutex
	byID map[sandbox.ID]*entry
}

type entry struct {
	held chan struct{} // has one place: who puts a token in holds the lock
	refs int           // holders and waiters; the entry goes when it falls to zero
}

// Lock waits for the lock of id and returns what releases it. When ctx ends first it returns a
// Timeout error; a second holder is impossible, so unlock must be called exactly once.
func (l *Locks) Lock(ctx context.Context, id sandbox.ID) (unlock func(), err error) {
	l.mu.Lock()
	if l.byID == nil {
		l.byID = make(map[sandbox.ID]*entry)
	}
	e := l.byID[id]
	if e == nil {
		e = &entry{held: make(chan struct{}, 1)}
		l.byID[id] = e
	}
	e.refs++
	l.mu.Unlock()

	select {
	case e.held <- struct{}{}:
		return func() { <-e.held; l.leave(id, e) }, nil
	case <-ctx.Done():
		l.leave(id, e)
		return nil, sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox is busy")
	}
}

func (l *Locks) leave(id sandbox.ID, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.refs--
	if e.refs == 0 {
		delete(l.byID, id)
	}
}
