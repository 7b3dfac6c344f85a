// Package journal is the file behind the embedded state: its durable records survive the process in it.
//
// Locks: Journal.mu is held over a change and its line, so that the file has the order of the changes.
package journal
