package summary

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestManyValues: a facet names some values, and counts the others.
func TestManyValues(t *testing.T) {
	t.Parallel()
	var f facet
	f.values = map[string]*Tally{}
	for i := range maxFacet + 5 {
		f.add(fmt.Sprint(i), Tally{Count: 1})
	}
	if most := f.most(); len(most.Values) != Values || most.Other != maxFacet+5-Values {
		t.Errorf("%d values, %d others", len(most.Values), most.Other)
	}
}

// TestHistogram: buckets lie on round times, are at most as many as asked for, and no record is lost when they grow.
func TestHistogram(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 34, 56, 0, time.UTC)
	for _, c := range []struct {
		since   time.Time
		until   time.Time
		most    int
		seconds int64
		n       int
	}{
		{time.Time{}, time.Time{}, 60, 1, 1},
		{now.Add(-time.Hour), time.Time{}, 60, 300, 13},
		{now.Add(-7 * 24 * time.Hour), time.Time{}, 60, 3 * 3600, 57},
		{now.Add(-24 * time.Hour), now.Add(-23 * time.Hour), 500, 15, 241},
		{now.Add(time.Hour), now.Add(-time.Hour), 60, 1, 1},
		{time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 1, 0, 1},
		{time.Time{}, time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), 60, 1, 1},
	} {
		h := newHistogram(c.since, c.until, c.most, now)
		from, until, seconds, all := h.buckets()
		if c.seconds != 0 && seconds != c.seconds || len(all) != c.n || !until.Equal(from.Add(time.Duration(len(all))*time.Duration(seconds)*time.Second)) {
			t.Errorf("%s to %s: %d buckets of %d s from %s to %s, want %d of %d s", c.since, c.until, len(all), seconds, from, until, c.n, c.seconds)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		h := newHistogram(time.Time{}, time.Time{}, 1+rng.IntN(100), now)
		times := map[int64]int64{}
		for range 100 {
			ms := now.Add(-time.Duration(rng.Int64N(int64(1) << (20 + rng.IntN(40))))).UnixMilli()
			times[ms]++
			h.at(ms).Add(Tally{Count: 1})
		}
		from, _, seconds, all := h.buckets()
		if int64(len(all)) > h.most || from.Unix()%seconds != 0 {
			t.Fatalf("%d buckets of %d, from %s", len(all), h.most, from)
		}
		for i, b := range all {
			var want int64
			for ms, n := range times {
				if ms >= b.Start.UnixMilli() && ms < b.Start.UnixMilli()+1000*seconds {
					want += n
				}
			}
			if b.Count != want {
				t.Fatalf("bucket %d of %s has %d, want %d", i, b.Start, b.Count, want)
			}
		}
	}
}
