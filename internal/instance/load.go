package instance

import (
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// load is what is known of the load that an instance is to its neighbours, and who pays for it.
type load struct {
	mu        sync.Mutex
	watched   bool           // a goroutine watches it
	unmetered bool           // the driver cannot measure it: CPU time is what sandboxd says
	billedTo  sandbox.Caller // whose exec began last: its CPU time counts for that one
	cpuShares driver.Weight  // what the sandbox counts for CPU time; 0: unknown
}

// Watch marks the load as watched, and reports whether it was not.
func (l *load) Watch() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.watched
	l.watched = true
	return first
}

// IsWatched reports whether a goroutine watches the load.
func (l *load) IsWatched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched
}

// Unwatch ends the watch if the sandbox counts as usual and idle, called then, agrees. The next exec begins another one.
func (l *load) Unwatch(idle func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cpuShares != driver.UsualWeight || !idle() {
		return false
	}
	l.watched = false
	return true
}

// Stop ends the watch of a sandbox that is gone.
func (l *load) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = false
}

// Bill says whose exec begins: what the sandbox computes from now on counts for that one.
func (l *load) Bill(c sandbox.Caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.billedTo = c
}

// Payer returns whose exec began last. metered: the driver measures the sandbox, and some exec has begun.
func (l *load) Payer() (c sandbox.Caller, metered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.billedTo, l.billedTo.Tenant != "" && !l.unmetered
}

// SetUnmetered says that the driver cannot measure the sandbox.
func (l *load) SetUnmetered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unmetered = true
}

func (l *load) IsUnmetered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unmetered
}

// Shares returns what the sandbox counts for CPU time.
func (l *load) Shares() driver.Weight {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cpuShares
}

func (l *load) SetShares(w driver.Weight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cpuShares = w
}
