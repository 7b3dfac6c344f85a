// Package freeze pauses and resumes sandboxes, one change of a sandbox at a time, whatever engine runs them.
package freeze

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/idlock"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Freezer is what an engine has to know.
type Freezer struct {
	Locks   *idlock.Locks
	Timeout time.Duration // of one change
	Inspect func(context.Context, sandbox.ID) (sandbox.Instance, error)
}

// To makes a sandbox Paused or Running by change, unless it is so already. Conflict: it is neither.
func (f Freezer) To(ctx context.Context, id sandbox.ID, want sandbox.State, change func(context.Context, sandbox.Instance) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	unlock, err := f.Locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	there, err := f.Inspect(ctx, id)
	switch {
	case err != nil:
		return err
	case there.State == want:
		return nil
	case there.State != sandbox.Running && there.State != sandbox.Paused:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is %s", id, there.State)
	}
	return change(ctx, there)
}
