// Package examination is what `skerry doctor` does: it opens the parts of a server, by the same code, on a data folder
// of its own, and says how each is. A server that runs is not disturbed.
//
// Locks: examination.closing guards what is closed at the end, and is held while that is closed;
// noteLog.mu guards the notes of the log, which a part may write while it is closed.
package examination
