// Package threads makes, keeps and deletes threads: the record in the store, the folder on this disk (package
// workspace), and, where it is configured, what is kept of both elsewhere (package snapshot).
//
// Before anything is done with a thread that has no instance here,
// its folder is made what was kept last; before a change is acknowledged, or soon after, the folder is kept. While a
// thread has an instance, its folder is what counts, and only writing finds out that another server went on with it.
//
// Locks: pendingSnapshots.mu guards which threads are to be kept later, and is held while one is noted on the disk.
package threads
