// Package journal appends records to the segments of one writer of the audit log, in a chain, and makes them durable.
// It makes room ahead of the records, goes on after failures of the disk, and records what could not be recorded.
//
// Locks: Journal.mu is held from the choice of a record's Seq until its line is written, so that the chain has no gap. The file
// is written under it, and made durable without it. Options.Observe is called under it.
package journal
