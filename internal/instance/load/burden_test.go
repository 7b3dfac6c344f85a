package load

import (
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
)

func TestBurden(t *testing.T) {
	type step struct {
		cores float64       // since the step before
		for_  time.Duration // in looks of 100 ms
		low   bool          // afterwards
	}
	for name, c := range map[string]struct {
		limit int64
		steps []step
	}{
		"a short burst":              {2000, []step{{2, 100 * time.Millisecond, false}, {0, time.Second, false}}},
		"computes on":                {2000, []step{{1, 300 * time.Millisecond, true}, {1, time.Minute, true}}},
		"a little all the time":      {2000, []step{{0.3, time.Minute, false}}},
		"half of a small limit":      {40, []step{{0.04, 300 * time.Millisecond, true}}},
		"stops for a moment":         {2000, []step{{1, time.Second, true}, {0, 500 * time.Millisecond, true}, {1, time.Second, true}, {0, 500 * time.Millisecond, true}}},
		"stops":                      {2000, []step{{1, time.Second, true}, {0, 1200 * time.Millisecond, false}, {0.1, time.Second, false}}},
		"less, but not much less":    {2000, []step{{1, time.Second, true}, {0.3, time.Minute, true}}},
		"bursts with pauses between": {2000, []step{{1, 100 * time.Millisecond, false}, {0, 200 * time.Millisecond, false}, {1, 100 * time.Millisecond, false}}},
	} {
		u := burden{limit: c.limit}
		now, load := time.Now(), driver.Load{}
		u.look(now, load)
		for i, s := range c.steps {
			for range s.for_ / loadEvery {
				now = now.Add(loadEvery)
				load.CPU += time.Duration(s.cores * float64(loadEvery))
				u.look(now, load)
			}
			if got := u.weight() == driver.LowWeight; got != s.low {
				t.Errorf("%s: after step %d it counts little: %v", name, i, got)
			}
		}
	}
}

func TestForks(t *testing.T) {
	for name, c := range map[string]struct {
		refused func(ms int) uint64 // in all, after so long
		want    bool
	}{
		"a bomb":                    {func(ms int) uint64 { return uint64(ms) * 20 }, true},
		"a slow bomb":               {func(ms int) uint64 { return uint64(ms) / 2 }, true},
		"none":                      {func(int) uint64 { return 0 }, false},
		"none, after a bomb before": {func(int) uint64 { return 1e6 }, false},
		"a few":                     {func(ms int) uint64 { return min(20, uint64(ms)) }, false},
		"many at once":              {func(ms int) uint64 { return 10_000 * uint64(ms/500) / max(1, uint64(ms/500)) }, false},
		"one in each second":        {func(ms int) uint64 { return uint64(ms / 1000) }, false},
		"a hundred, now and then":   {func(ms int) uint64 { return 100 * uint64(ms/1000) }, false},
		"one in each look":          {func(ms int) uint64 { return uint64(ms / 100) }, false},
	} {
		var u burden
		now, got := time.Now(), false
		for ms := 0; ms <= 10_000; ms += int(loadEvery.Milliseconds()) {
			u.look(now.Add(time.Duration(ms)*time.Millisecond), driver.Load{Refused: c.refused(ms)})
			got = got || u.forks.bomb()
		}
		if got != c.want {
			t.Errorf("%s: a bomb: %v", name, got)
		}
	}
}
