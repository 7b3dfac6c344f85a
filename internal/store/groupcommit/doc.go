// Package groupcommit makes appended data durable with few fsyncs: one fsync serves all callers who
// waits when it begins. The audit log and the journal of the embedded state use it.
//
// Locks: Committer.mu guards the batch that waits. It is not held during a sync.
package groupcommit
