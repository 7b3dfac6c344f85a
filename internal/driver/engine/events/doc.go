// Package events sends what a driver learns of its sandboxes to all watchers, and waits for none of them.
// A driver that follows an engine keeps in Ends which sandboxes run, so that no end is missed while the engine is away.
//
// Locks: Feed.mu guards the readers, reader.mu one queue. reader.mu is taken while Feed.mu is held, never
// the other way. No channel is written that could block.
package events
