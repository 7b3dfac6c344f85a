// Package volumes keeps the files of threads on volumes of their users (driver.Volumes). The volume is
// ahead of the server's folder of the thread from the first sandbox on: nothing is pulled at the end of an
// exec, or of a sandbox. A file call pulls the files from the sandbox or, without one, from a sandbox that
// has only files. After that the server's folder is ahead, and the next sandbox gets its changes. So at
// each moment one of the two has all.
//
// A thread that has been on a volume stays there. Another moves when it gets its next sandbox.
//
// Locks: turns.mu guards the table of turns, and is never held while a caller waits for a turn.
package volumes
