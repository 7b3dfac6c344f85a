// Package pool keeps sandboxes that are ready before a thread asks for one: template by template, as many as its "pool"
// says. Package hooks makes and removes them, as it does all sandboxes. Each has an empty workspace of its own, and no thread.
// When a new thread claims it, the workspace becomes the thread's by one rename, which the sandbox's mount does not notice.
// What depends on the user is put into folders that it has mounted: no engine is asked.
//
// A server hands out only what it made itself. How many wait is in the store, so that several servers together have what the
// template says. A pooled sandbox ends with its server: the next one removes what a server that was killed left.
//
// Locks: inventory.mu guards what waits and what is being made. The mutex of the places may be taken under it.
package pool
