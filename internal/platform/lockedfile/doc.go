// Package lockedfile reads and replaces small files that several processes change: configuration,
// indexes. A reader needs no lock and sees a whole file, the old one or the new one. Those who change one
// wait for each other by a lock on its folder, which leaves nothing behind.
//
// Locks: Follower.mu guards what is known of one file. It is held while that file is read and parsed.
package lockedfile
