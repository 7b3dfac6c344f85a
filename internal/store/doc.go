// Package store keeps what the server must find again: threads, leases, sandboxes, bearer keys and
// the answers to idempotent requests. It speaks to Redis; without one it runs miniredis in the
// process behind the very same code (embedded mode), and keeps the durable records in a journal file.
//
// Every call has a deadline of two seconds, or ctx's when that is sooner. Errors have a kind of
// package sandbox: Unavailable when Redis does not answer; an error of a write leaves open whether
// it was done. A Store is safe for concurrent use.
//
// Locks: embedded.mu guards the connections of the embedded state and the answers it remembers, and is taken
// after the lock of the journal (package journal) if at all.
package store
