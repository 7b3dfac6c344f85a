// Package socketpair connects the embedded state with its client. No other process of the host can reach it.
//
// Locks: serverEnd.mu is held for a write that does not block.
package socketpair
