package deadline

import (
	"context"
	"sync"
	"time"
)

// Detached returns a context that outlives the request, for what must be finished once it has begun.
func Detached(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// Clock runs down once, and stands still while it is held. Its methods may be called concurrently.
type Clock struct {
	passed func()

	mu    sync.Mutex
	timer *time.Timer // of the deadline, or of the end of a hold
	until time.Time   // the deadline; when it is held, of no meaning
	left  time.Duration
	from  time.Time     // beginning of the hold of now
	most  time.Duration // of all holds to come, together
	held  bool
	over  bool
}

// Start starts a clock that calls passed after d, in a goroutine of its own, once. All holds together last
// at most most.
func Start(d, most time.Duration, passed func()) *Clock {
	c := &Clock{passed: passed, until: time.Now().Add(d), most: most}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(d, c.ring)
	return c
}

// Hold stops the clock for at most d from now on, then it goes on by itself. Another Hold counts d anew.
func (c *Clock) Hold(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.over || !c.held && !c.timer.Stop() { // it passes just now
		return
	}
	if !c.held {
		c.held, c.from, c.left = true, now, c.until.Sub(now)
	}
	c.timer.Reset(max(min(d, c.most-now.Sub(c.from)), 0))
}

// Go lets a clock go on that is held.
func (c *Clock) Go() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held && !c.over {
		c.goOn()
	}
}

// Stop ends the clock: passed is not called any more, but a call may be under way.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
}

func (c *Clock) goOn() {
	now := time.Now()
	c.held = false
	c.most -= now.Sub(c.from)
	c.until = now.Add(c.left)
	c.timer.Reset(max(c.left, 0))
}

func (c *Clock) ring() {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	if c.held {
		c.goOn()
		c.mu.Unlock()
		return
	}
	if wait := c.until.Sub(now); wait > 0 { // a ring of a hold that was ended meanwhile
		c.timer.Reset(wait)
		c.mu.Unlock()
		return
	}
	c.over = true
	c.mu.Unlock()
	c.passed()
}

type contextKey struct{}

// Context returns a context that ends after d, by the cause context.DeadlineExceeded, and whose clock Hold holds. All
// holds together last at most most.
func Context(ctx context.Context, d, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := Start(d, most, func() { cancel(context.DeadlineExceeded) })
	return context.WithValue(ctx, contextKey{}, c), func() {
		c.Stop()
		cancel(nil)
	}
}

// Hold holds the clock of a context until release. A context without one has none to hold.
func Hold(ctx context.Context) (release func()) {
	c, ok := ctx.Value(contextKey{}).(*Clock)
	if !ok {
		return func() {}
	}
	c.Hold(1<<63 - 1) // most bounds it
	return c.Go
}
