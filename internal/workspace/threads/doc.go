// Package threads makes, saves and deletes threads: the record in the store, the folder on this disk
// (package workspace), and, where configured, the snapshots of both elsewhere (package snapshot).
//
// Before the server uses a thread without an instance here, it restores the last snapshot into its folder.
// Before it acknowledges a change, or soon after, it saves the folder. While a thread has an instance, its
// folder is what counts, and only writing finds out that another server went on with it.
//
// Locks: pendingSnapshots.mu guards which threads are saved later, and is held while one is marked on the
// disk.
package threads
