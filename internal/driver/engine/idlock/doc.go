// Package idlock serialises what a driver does with one sandbox, while other sandboxes go on. A
// driver needs it so that two calls to Create for one id start one container.
//
// Locks: Locks.mu guards the table of ids, and is never held while a caller waits for an id. A caller that
// holds one id does not lock another.
package idlock
