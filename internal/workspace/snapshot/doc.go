// Package snapshot keeps the files of threads in a bucket or a folder: after each change a snapshot, of which only what
// is new is sent. A thread whose folder is not on this disk comes back from there, as a whole or not at all.
//
// Of each thread there are packs, which hold content and the list of its files, and one head, which says what is in which
// pack. Packs are written first and the head last, in the place of the head that was read: so a server that was taken for
// dead cannot put the thread back. No thread refers to a pack of another, so that no tenant learns what another one has.
// docs/workspaces.md describes the format and what is promised.
//
// Locks: Snapshots.mu guards the caches. It is not held during I/O. The mutex of pour guards the packs of
// one restore.
package snapshot
