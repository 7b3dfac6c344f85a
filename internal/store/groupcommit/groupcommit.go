package groupcommit

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is what Wait returns after Close.
var ErrClosed = errors.New("groupcommit: closed")

// Committer runs a sync function on behalf of many waiters. Make one with New.
type Committer struct {
	sync func() error
	kick chan struct{} // holds one token: a caller waits
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	next   *batch // what the next sync serves
	closed bool
	failed error // the first failure; it stays
}

type batch struct {
	done chan struct{}
	err  error
}

// New starts a Committer. sync must make all durable that was appended before it was called; it is
// never called twice at once. A failure of sync is final: after one the operating system may have
// dropped the pages that it could not write, so a later success would prove nothing. Close ends the
// Committer.
func New(sync func() error) *Committer {
	c := &Committer{
		sync: sync, kick: make(chan struct{}, 1), done: make(chan struct{}),
		next: &batch{done: make(chan struct{})},
	}
	go c.run()
	return c
}

// Wait returns when all that was appended before the call is durable, or the error of the sync that
// failed, or ctx's error. The sync goes on when ctx ends.
func (c *Committer) Wait(ctx context.Context) error {
	c.mu.Lock()
	switch {
	case c.failed != nil:
		defer c.mu.Unlock()
		return c.failed
	case c.closed:
		c.mu.Unlock()
		return ErrClosed
	}
	b := c.next
	select {
	case c.kick <- struct{}{}:
	default: // the token is there already
	}
	c.mu.Unlock()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close serves those who wait, syncs a last time and ends the goroutine. It may be called twice.
func (c *Committer) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.kick)
	}
	c.mu.Unlock()
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *Committer) run() {
	defer close(c.done)
	for range c.kick {
		c.flush()
	}
	c.flush()
}

func (c *Committer) flush() {
	c.mu.Lock()
	b, err := c.next, c.failed
	c.next = &batch{done: make(chan struct{})}
	c.mu.Unlock()
	if err == nil {
		err = c.sync()
	}
	if err != nil {
		c.mu.Lock()
		if c.failed == nil {
			c.failed = err
		}
		c.mu.Unlock()
	}
	b.err = err
	close(b.done)
}
