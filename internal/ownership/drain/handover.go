package drain

import (
	"context"
	"time"
)

const (
	// handOverParallel is how many threads are handed over side by side.
	handOverParallel = 8
	// lastEntryBefore is how long before the end of a drain a busy sandbox takes its last exec: those that come
	// later wait until it is handed over, so that no short one is ended by the drain.
	lastEntryBefore = 5 * time.Second
)

// Target returns a replica that takes new work, "" when there is none.
func (s *Drain) Target(ctx context.Context) string { return s.targets.One(ctx) }

// LastEntry returns when busy sandboxes take their last exec; zero: at any time, or no drain has begun.
func (s *Drain) LastEntry() time.Time {
	if d := s.draining.Load(); d != nil {
		return d.until
	}
	return time.Time{}
}
