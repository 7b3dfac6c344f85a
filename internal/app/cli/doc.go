// Package cli is the commands of the program: their flags, what they do, and what they print. Status returns the
// exit code of each error.
//
// Locks: examination.closing guards what doctor closes at its end, and is held while that is closed;
// noteLog.mu guards the notes of the log, which a part may write while it is closed.
package cli
