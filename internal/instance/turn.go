package instance

import (
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Turn is an instance's part in the queue for a place.
type Turn struct {
	mu       sync.Mutex
	waiters  int           // callers that wait for the instance to be ready
	promised bool          // a caller was told that it starts, and will ask again
	asked    time.Time     // by whom it was last asked for
	placed   bool          // it has its place: it is not given up any more
	refusal  error         // why it was given up
	unwanted chan struct{} // closed when it is given up; nil: it had its place from the start
}

var (
	errUnwanted = sandbox.Errorf(sandbox.CapacityExceeded, "all callers that waited for the sandbox have left")
	// ErrGivenUp tells a caller who came a moment too late to ask for a new instance.
	ErrGivenUp = sandbox.Errorf(sandbox.CapacityExceeded, "the sandbox was given up before it started; try again")
)

// GiveUp ends the wait of an instance that has no place yet, and reports whether it did. Its execs end as lost.
func (t *Turn) GiveUp(why error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.giveUp(why)
}

func (t *Turn) giveUp(why error) bool {
	if t.placed || t.refusal != nil || t.unwanted == nil {
		return false
	}
	t.refusal = why
	close(t.unwanted)
	return true
}

// gaveUp reports whether the instance was given up.
func (t *Turn) gaveUp() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusal != nil
}

// Arrive counts a waiter in; false: the instance was given up.
func (t *Turn) Arrive() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal != nil {
		return false
	}
	t.waiters++
	return true
}

// Depart counts a waiter out, and reports whether that gave the instance up. A waiter that was promised the instance will
// ask again. The instance is given up when the last of the others leaves early.
func (t *Turn) Depart(promised, early bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiters--
	t.asked = time.Now()
	t.promised = t.promised || promised
	return early && t.waiters == 0 && !t.promised && t.giveUp(errUnwanted)
}

// Seat takes the place that the instance was granted, unless it was given up: the error says why.
func (t *Turn) Seat() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal == nil {
		t.placed = true
	}
	return t.refusal
}

// Expire withdraws a promised turn that no caller has asked for since, and reports whether it did.
func (t *Turn) Expire(now time.Time, after time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiters == 0 && t.promised && now.Sub(t.asked) > after && t.giveUp(errUnwanted)
}

// Unwanted returns a channel that is closed when the instance is given up.
func (t *Turn) Unwanted() <-chan struct{} { return t.unwanted }

// Waiters returns how many callers wait for the instance.
func (t *Turn) Waiters() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiters
}
