// Package workspace has the files of threads on this server's disk: each thread's in a folder of its own, which belongs to
// a uid that no other thread ever has.
//
// A folder appears whole, by one rename (Make), and goes by one rename into a folder ".deleted-…" beside it, which
// is then emptied (Discard, RemoveDiscarded). So every thread's folder is complete, and what a server that died left
// is known by its name (Sweep).
// The owner of the folder "workspace" in it is the truth of the thread's uid (UID).
package workspace
