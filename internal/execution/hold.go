package execution

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxApprovalEvents bounds those of one exec.
	maxApprovalEvents = 1000
	// beginTimeout bounds the wait for the event that says that an exec started, which those about its calls follow.
	beginTimeout = 4 * time.Second
)

// Hold is how the deadline of an exec is held while calls of it wait for people.
type Hold struct {
	mu      sync.Mutex
	clock   *deadline.Clock // of this server's own deadline; nil before the exec runs
	waits   int             // calls that wait for people
	kept    bool            // a goroutine keeps the deadline held
	over    bool            // the exec ended
	spent   time.Duration
	changed chan struct{} // holds a token: waits is another one
}

func (h *Hold) notify() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// SetClock names the clock of this server's own deadline.
func (h *Hold) SetClock(clock *deadline.Clock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = clock
}

// Begin counts a call that waits. keep: the caller keeps the deadline held from now on.
func (h *Hold) Begin() (keep bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{}, 1)
	}
	h.waits++
	if keep = !h.kept && h.clock != nil && !h.over; keep {
		h.kept = true
	}
	h.notify()
	return keep
}

// End counts out a call that waited.
func (h *Hold) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits--
	h.notify()
}

// Holds reports whether the deadline is to be held, and how much of most, which all holds of the exec may take, is left.
func (h *Hold) Holds(most time.Duration) (clock *deadline.Clock, left time.Duration, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left = most - h.spent
	return h.clock, left, h.waits > 0 && left > 0 && !h.over
}

// Changed returns a channel that holds a token when another number of calls waits. Only the goroutine that keeps the
// deadline held may ask for it.
func (h *Hold) Changed() <-chan struct{} { return h.changed }

// Spend counts how long the deadline was held.
func (h *Hold) Spend(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spent += d
}

// Spent returns how long the deadline was held altogether.
func (h *Hold) Spent() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spent
}

// Renew reports whether the deadline must be held again, by the same goroutine.
func (h *Hold) Renew(most time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = h.waits > 0 && h.spent < most && !h.over
	return h.kept
}

// finish says that the exec ended.
func (h *Hold) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

// ApprovalEvent adds an event about a request, after the exec's start event.
func (e *Exec) ApprovalEvent(ctx context.Context, typ sandbox.EventType, a sandbox.Approval) {
	ctx, cancel := deadline.Detached(ctx, beginTimeout)
	defer cancel()
	_ = e.WaitBegun(ctx) // it has: its code makes the call
	a.Arguments, a.Annotations = nil, nil
	e.log.addApproval(sandbox.Event{Type: typ, Time: time.Now().UTC(), Approval: &a})
}
