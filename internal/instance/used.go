package instance

import (
	"sync"
	"time"
)

// Used is what a thread used by way of this instance, as far as the thread's record does not have it yet.
type Used struct {
	mu      sync.Mutex
	rest    Ran // since told was taken
	told    Ran // taken to be written, and not known to be
	batches uint64
	tried   time.Time // when it was taken last
	sized   time.Time // when the files were measured whose size is written
}

// Ran is what ran. Batch numbers it, so that it is not added twice; 0: nothing ran.
type Ran struct {
	Batch uint64
	Execs int64
	Time  time.Duration
}

// Count counts an exec that ended.
func (u *Used) Count(took time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rest.Execs++
	u.rest.Time += took
}

// Take returns what is to be written: what was taken before and is not known to be written, or all that ran since. sized is when
// the files were measured whose size is written.
func (u *Used) Take() (ran Ran, sized time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tried = time.Now()
	if u.told.Batch == 0 && u.rest.Execs > 0 {
		u.batches++
		u.told, u.rest = u.rest, Ran{}
		u.told.Batch = u.batches
	}
	return u.told, u.sized
}

// Written says that what was taken is written, and the size that the files had at a time; zero: none.
func (u *Used) Written(ran Ran, sized time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told.Batch == ran.Batch {
		u.told = Ran{}
	}
	if sized.After(u.sized) {
		u.sized = sized
	}
}

// Rests reports whether something ran that is not known to be written, and when it was last taken.
func (u *Used) Rests() (rests bool, tried time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.told.Batch > 0 || u.rest.Execs > 0, u.tried
}
