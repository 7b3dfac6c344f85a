package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testPool: servers share the target, never go beyond it, and a silent one does not count.
func testPool(t *testing.T, s *Store) {
	share := func(replica string, have, want, target int, ttl time.Duration) int {
		t.Helper()
		n, err := s.SharePool(t.Context(), "base", replica, PoolCount{Have: have, Want: want, Target: target}, ttl)
		must(t, err)
		return n
	}
	if n := share("a", 0, 2, 3, time.Minute); n != 2 {
		t.Errorf("the first gets %d", n)
	}
	if n := share("a", 2, 2, 3, time.Minute); n != 1 {
		t.Errorf("up to the target: %d", n)
	}
	if n := share("b", 0, 3, 3, time.Minute); n != 0 {
		t.Errorf("there are enough: %d", n)
	}
	if n := share("a", 1, 3, 3, time.Minute); n != 1 { // two were handed out; half of three is two
		t.Errorf("its share: %d", n)
	}
	if n := share("b", 0, 3, 3, time.Minute); n != 1 {
		t.Errorf("the rest: %d", n)
	}
	must(t, s.LeavePool(t.Context(), "base", "a"))
	if n := share("b", 1, 9, 3, time.Minute); n != 2 {
		t.Errorf("after the other left: %d", n)
	}
	share("c", 3, 0, 3, time.Minute)
	share("c", 3, 0, 3, time.Millisecond)
	time.Sleep(20 * time.Millisecond)
	if n := share("d", 0, 3, 3, time.Millisecond); n != 3 { // what they said is too old
		t.Errorf("after the others fell silent: %d", n)
	}
	var all atomic.Int32
	var wg sync.WaitGroup
	for _, replica := range []string{"a", "b", "c", "d", "e"} {
		wg.Go(func() {
			have := 0
			for range 20 {
				n, err := s.SharePool(t.Context(), "race", replica, PoolCount{Have: have, Want: 1, Target: 7}, time.Minute)
				if err != nil {
					t.Error(err)
				}
				have += n
			}
			all.Add(int32(have)) //nolint:gosec // small
		})
	}
	wg.Wait()
	if all.Load() != 7 {
		t.Errorf("%d of 7", all.Load())
	}
	if _, err := s.SharePool(t.Context(), "", "a", PoolCount{}, time.Minute); err == nil {
		t.Error("no template")
	}
}
