// Package events sends what a driver learns of its sandboxes to all watchers, and waits for none of them.
//
// Locks: Feed.mu guards the readers, reader.mu one queue. reader.mu is taken while Feed.mu is held, never
// the other way. No channel is written that could block.
package events
