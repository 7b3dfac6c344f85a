// Package breaker spares a server that does not answer, and its callers the wait.
package breaker

import "time"

const (
	// After so many failures in a row calls are refused, for a while.
	After = 5
	// pause is how long.
	pause = 10 * time.Second
)

// Breaker counts the failures of one server. Its owner locks.
type Breaker struct {
	failures int
	until    time.Time
	probing  bool
}

// Allow reports whether a call may be made. After the pause one call at a time tries the server.
func (b *Breaker) Allow(now time.Time) bool {
	if b.failures < After {
		return true
	}
	if now.Before(b.until) || b.probing {
		return false
	}
	b.probing = true
	return true
}

// Note takes in how a call that was allowed ended. tripped says that the pause begins with it.
func (b *Breaker) Note(ok bool, now time.Time) (tripped bool) {
	b.probing = false
	if ok {
		b.failures = 0
		return false
	}
	b.failures++
	if b.failures < After {
		return false
	}
	b.until = now.Add(pause)
	return true
}

// Pass takes back a call that was allowed and says nothing about the server.
func (b *Breaker) Pass() { b.probing = false }
