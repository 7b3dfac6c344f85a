package hub

import "time"

const (
	breakAfter = 5 // failures in a row
	breakFor   = 10 * time.Second
)

// breaker spares a server that does not answer, and its callers the wait. Its owner locks.
type breaker struct {
	failures int
	until    time.Time
	probing  bool
}

// allow reports whether a call may be made. After the break one call at a time tries it out.
func (b *breaker) allow(now time.Time) bool {
	if b.failures < breakAfter {
		return true
	}
	if now.Before(b.until) || b.probing {
		return false
	}
	b.probing = true
	return true
}

// note takes in how a call that was allowed ended. tripped says that the break begins with it.
func (b *breaker) note(ok bool, now time.Time) (tripped bool) {
	b.probing = false
	if ok {
		b.failures = 0
		return false
	}
	b.failures++
	if b.failures < breakAfter {
		return false
	}
	b.until = now.Add(breakFor)
	return true
}

// pass takes back a call that was allowed and says nothing about the server.
func (b *breaker) pass() { b.probing = false }
