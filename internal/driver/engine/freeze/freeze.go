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

// A busy machine may not stop all processes of a sandbox in the time that runc has for it ("unable to freeze"); runc then lets
// them go on.
const (
	tries = 3
	pause = 200 * time.Millisecond
)

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
	for try := 1; ; try++ {
		err := change(ctx, there)
		if err == nil || want != sandbox.Paused || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
