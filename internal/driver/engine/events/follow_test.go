package events

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestFollow: a connection that is lost is made again, after failures too, and the end of the context ends it.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var seen []int
		dials, failures := 0, 0
		Follow(ctx, 0, func(_ context.Context, s int) {
			if seen = append(seen, s); len(seen) == 3 {
				cancel()
			}
		}, func(context.Context) (int, error) {
			if dials++; dials%3 != 0 {
				return 0, errors.New("away")
			}
			return dials, nil
		}, func(error) { failures++ })
		if len(seen) != 3 || seen[1] != 3 || seen[2] != 6 || failures != 4 {
			t.Errorf("connections %v after %d failures", seen, failures)
		}
	})
}
