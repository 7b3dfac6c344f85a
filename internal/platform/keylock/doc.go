// Package keylock serialises what must not be done twice at once with one key, while other keys go on.
//
// Locks: Locks.mu guards the table of keys, and is never held while a caller waits for a key. A caller may hold several
// keys, in an order of its own.
package keylock
