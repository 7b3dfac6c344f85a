// Package deadline is a deadline whose clock can be held, for work that waits for a person.
//
// Locks: Clock.mu guards the timer and the holds of one clock. The function that the deadline calls runs
// without it.
package deadline
