package packs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// opening counts the streams that are not registered yet.
type opening struct {
	mu     sync.Mutex
	all    int
	bySite map[string]int
}

func newOpening() *opening { return &opening{bySite: map[string]int{}} }

// enter counts one more, until leave is called.
func (o *opening) enter(source string) (leave func(), err error) {
	name := site(source)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.all >= maxOpening:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d packs are registering at this moment; try again", maxOpening)
	case o.bySite[name] >= openingOfSite:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d packs of this address are registering at this moment; try again", openingOfSite)
	}
	o.all++
	o.bySite[name]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all--
		if o.bySite[name]--; o.bySite[name] == 0 {
			delete(o.bySite, name)
		}
	}, nil
}

// A flood of streams that are refused must not fill the disk with records: so many are written at once, and one more every
// refusedPause. The next that is written says how many were not.
const (
	refusedAtOnce = 200
	refusedPause  = 300 * time.Millisecond
)

// refusals bounds the records of refused streams.
type refusals struct {
	limit *rate.Limiter

	mu      sync.Mutex
	missing int
}

func newRefusals() *refusals {
	return &refusals{limit: rate.NewLimiter(rate.Every(refusedPause), refusedAtOnce)}
}

// next reports whether one more is written, and how many were not before it.
func (f *refusals) next() (missing int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.limit.Allow() {
		f.missing++
		return 0, false
	}
	missing, f.missing = f.missing, 0
	return missing, true
}

// refused records and logs that a stream was refused, unless too many are.
func (r *Registry) refused(ctx context.Context, e Event) {
	missing, ok := r.refusals.next()
	if !ok {
		return
	}
	if missing > 0 {
		e.Detail += fmt.Sprintf(" (and %d others since the record before)", missing)
	}
	r.record(ctx, e)
	r.o.Log.Warn("pack: refused", "pack", e.Pack, "source", e.Source, "error", e.Detail)
}
