package freeze

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/idlock"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestTo(t *testing.T) {
	for is, want := range map[sandbox.State]struct {
		changed bool
		err     error
	}{
		sandbox.Running: {changed: true}, sandbox.Paused: {}, sandbox.Lost: {err: sandbox.Conflict}, sandbox.Starting: {err: sandbox.Conflict},
	} {
		changed := false
		f := Freezer{Locks: &idlock.Locks{}, Timeout: time.Minute, Inspect: func(_ context.Context, id sandbox.ID) (sandbox.Instance, error) {
			return sandbox.Instance{ID: id, State: is}, nil
		}}
		err := f.To(t.Context(), "a", sandbox.Paused, func(_ context.Context, there sandbox.Instance) error {
			changed = there.ID == "a"
			return nil
		})
		if changed != want.changed || !errors.Is(err, want.err) {
			t.Errorf("%s: changed %v, %v", is, changed, err)
		}
	}
}

// TestBusy: a sandbox that cannot be paused at first is tried again, twice; one that cannot be resumed is not.
func TestBusy(t *testing.T) {
	busy := errors.New("unable to freeze")
	for name, want := range map[string]struct {
		from, to sandbox.State
		fails    int
		err      error
		calls    int
	}{
		"at last":  {sandbox.Running, sandbox.Paused, 2, nil, 3},
		"never":    {sandbox.Running, sandbox.Paused, 9, busy, 3},
		"resuming": {sandbox.Paused, sandbox.Running, 9, busy, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			f := Freezer{Locks: &idlock.Locks{}, Timeout: time.Minute, Inspect: func(_ context.Context, id sandbox.ID) (sandbox.Instance, error) {
				return sandbox.Instance{ID: id, State: want.from}, nil
			}}
			err := f.To(t.Context(), "a", want.to, func(context.Context, sandbox.Instance) error {
				if calls++; calls <= want.fails {
					return busy
				}
				return nil
			})
			if !errors.Is(err, want.err) || calls != want.calls {
				t.Errorf("%s: %d calls, %v", name, calls, err)
			}
		})
	}
}
