package instance

import (
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// diskAge is how old a measured size gets at least before the files are walked again.
	diskAge = 5 * time.Second
	// diskShare of the time is the most that is spent on walks: one in so many.
	diskShare = 20
)

// disk is what the thread's files took when they were last measured. With many files that takes a while, so not each caller
// who asks has them walked.
type disk struct {
	mu        sync.Mutex
	used      *sandbox.DiskUsage // nil: unknown
	at        time.Time          // when they were measured, well or not
	measuring bool
	next      time.Time // before that they are not measured again
}

// Used returns what the thread's files take, by measure when what is known is old; nil: unknown. Callers who come meanwhile get
// what is known.
func (d *disk) Used(measure func() (sandbox.DiskUsage, error)) *sandbox.DiskUsage {
	d.mu.Lock()
	defer d.mu.Unlock()
	began := time.Now()
	if d.measuring || began.Before(d.next) {
		return d.used
	}
	d.measuring = true
	d.mu.Unlock()
	used, err := measure()
	d.mu.Lock()
	d.measuring = false
	d.next = time.Now().Add(max(diskAge, diskShare*time.Since(began)))
	d.at = began
	if d.used = nil; err == nil {
		d.used = &used
	}
	return d.used
}

// Last returns what the thread's files took when they were last measured, and when that was; nil: they could not be, or were not.
func (d *disk) Last() (used *sandbox.DiskUsage, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used, d.at
}
