// Package audit keeps the record of who did what. Each server process writes an append-only,
// hash-chained log on disk; a record is durable before the caller sees the result of the action. A
// shipper copies the records to a Redis stream, which is what List reads.
//
// Package journal writes the files; a Log adds signatures, copies, an archive and queries.
//
// Locks: coverage.mu is taken while the journal's mutex is held, and nothing under it. rowIndex.mu guards the index, for writing
// while rows are added and for reading while a query scans them. shipper.mu, outbox.mu, archiver.mu and notary.mu guard how far
// each is, Log.mu how far Close is. None of these is held while another one is taken. Log.verifying is held while the log is
// verified, and while one segment is removed from this disk, which only tries it; all others may be taken under it.
package audit
