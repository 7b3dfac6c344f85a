package files

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxSearches is how many searches of one owner run at once: each may keep a processor busy for as long as it may take.
	maxSearches = 4
	// searchWait is how long another one waits for its turn.
	searchWait = 15 * time.Second
)

// searches counts those that run.
type searches struct {
	mu sync.Mutex
	of map[sandbox.Owner]*ownSearches
}

// ownSearches are those of one owner.
type ownSearches struct {
	slots chan struct{}
	users int // that run or wait
}

// begin waits until another search of the owner may run, and returns what ends it. CapacityExceeded: none may for long.
func (s *searches) begin(ctx context.Context, o sandbox.Owner) (end func(), err error) {
	own := s.enter(o)
	wait := time.NewTimer(searchWait)
	defer wait.Stop()
	select {
	case own.slots <- struct{}{}:
		return func() { <-own.slots; s.leave(o) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-wait.C:
		err = sandbox.Errorf(sandbox.CapacityExceeded, "%d searches of files run already, the most at once: try again when one has ended", maxSearches)
	}
	s.leave(o)
	return nil, err
}

func (s *searches) enter(o sandbox.Owner) *ownSearches {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[o]
	if own == nil {
		if s.of == nil {
			s.of = map[sandbox.Owner]*ownSearches{}
		}
		own = &ownSearches{slots: make(chan struct{}, maxSearches)}
		s.of[o] = own
	}
	own.users++
	return own
}

func (s *searches) leave(o sandbox.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[o].users--; s.of[o].users == 0 {
		delete(s.of, o)
	}
}
