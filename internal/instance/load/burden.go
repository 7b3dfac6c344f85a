package load

import (
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
)

// burden is what is remembered of an instance between two looks.
type burden struct {
	limit      int64 // thousandths of a core
	last       driver.Load
	at         time.Time // of last; zero: there was none
	heavySince time.Time // zero: it is not
	lightSince time.Time // zero: it is not
	heavy      bool
	forks      forks
	notBefore  time.Time // it is not weighed
}

func (u *burden) look(now time.Time, load driver.Load) {
	before, last := u.at, u.last
	u.at, u.last = now, load
	if before.IsZero() {
		u.forks.last = load.Refused
		return
	}
	u.forks.look(now, load.Refused)
	cores := float64(load.CPU-last.CPU) / float64(max(now.Sub(before), 1))
	most := min(heavyCores, float64(u.limit)/2000)
	switch {
	case cores >= most:
		u.lightSince = time.Time{}
		if u.heavySince.IsZero() {
			u.heavySince = before
		}
		// Half a look less: the clock of the looks is not exact.
		u.heavy = u.heavy || now.Sub(u.heavySince) > heavyTime-loadEvery/2
	case cores < most/2:
		u.heavySince = time.Time{}
		if u.lightSince.IsZero() {
			u.lightSince = before
		}
		u.heavy = u.heavy && now.Sub(u.lightSince) < lightTime
	default:
		u.heavySince, u.lightSince = time.Time{}, time.Time{}
	}
}

// weight is what the instance is to count. While it forks beyond its limit it is not held back: its processes queue for locks
// of the kernel that neighbours need, too, and each must have run before the next one gets its turn.
func (u *burden) weight() driver.Weight {
	if u.heavy && u.forks.since.IsZero() {
		return driver.LowWeight
	}
	return driver.UsualWeight
}

// forks is what is remembered of the processes that a sandbox was refused.
type forks struct {
	last  uint64    // the kernel's count
	seen  uint64    // refusals since
	since time.Time // zero: there was none
	until time.Time // the newest one
}

func (f *forks) look(now time.Time, count uint64) {
	fresh := count - min(count, f.last)
	f.last = count
	switch {
	case fresh == 0 && now.Sub(f.until) > forkPause:
		f.since, f.seen = time.Time{}, 0
	case fresh > 0:
		if f.since.IsZero() {
			f.since = now
		}
		f.until = now
		f.seen += fresh
	}
}

// bomb reports whether they were too many for too long.
func (f *forks) bomb() bool {
	return !f.since.IsZero() && f.until.Sub(f.since) >= forkTime && f.seen >= forkRefusals
}
