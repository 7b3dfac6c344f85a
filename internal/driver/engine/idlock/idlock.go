package idlock

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/platform/keylock"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Locks holds one lock an id. The zero value is ready.
type Locks struct{ byID keylock.Locks[sandbox.ID] }

// Lock waits for the lock of id and returns what releases it. When ctx ends first it returns a
// Timeout error; a second holder is impossible, so unlock must be called exactly once.
func (l *Locks) Lock(ctx context.Context, id sandbox.ID) (unlock func(), err error) {
	unlock, err = l.byID.Lock(ctx, id)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox is busy")
	}
	return unlock, nil
}
