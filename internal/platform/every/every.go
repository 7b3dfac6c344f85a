// Package every repeats work in the pace of a clock. It keeps no state of its own.
package every

import (
	"context"
	"iter"
	"time"
)

// Tick yields the time once a pause, for the first time after one, until ctx ends. A loop that takes longer than
// the pause misses ticks.
func Tick(ctx context.Context, pause time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}
