// Package containerdtest starts a containerd of its own for tests: in a folder that is its own, apart
// from any that runs on the machine, and stopped at the end.
//
// Locks: buffer.mu guards the output of the daemon; no other lock is taken while it is held.
package containerdtest
