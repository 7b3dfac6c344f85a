// Package filesync copies a thread's files between the server and a sandbox that does not see the server's disk
// (driver.Remote). The server's folders and the sandbox's are copies of each other. Two rules keep them equal for
// everyone who looks:
//
//   - The server pulls what the sandbox changed before it reports the end of the exec that changed it, and before it
//     reads or changes the files itself.
//   - What the server changed is pending until it is pushed. The server pushes before it pulls, because a pull would
//     undo the change, and before anything begins to run, which would miss it.
//
// So the server's copy is that of the last end that was reported. It is read when there is no sandbox, and the next
// sandbox begins with it.
//
// Locks: Sync.turn is held while the server's copy is changed: a pull, or the API with the push of its change. Then
// Sync.mu (open, closed, runs) and the mutexes of the pending paths and of the coalescers may be taken; none of those
// is held while another one is taken. Sync.Showing serialises changes of the view and is taken before pending paths.
package filesync
