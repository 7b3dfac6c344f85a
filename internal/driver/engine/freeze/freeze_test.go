package freeze

import (
	"context"
	"errors"
	"testing"
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
