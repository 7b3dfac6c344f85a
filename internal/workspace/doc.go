// Package workspace has the files of threads on this server's disk: each thread's in a folder of its own, which belongs to
// a uid that no other thread ever has.
//
// A folder appears whole, by one rename (Make), and goes by one rename into a grave beside it, which is emptied then
// (Bury, RemoveGrave). So a folder that is there is complete, and the rest of a server that died is known by its name (Sweep).
// The owner of the folder "workspace" in it is the truth of the thread's uid (UID).
package workspace
