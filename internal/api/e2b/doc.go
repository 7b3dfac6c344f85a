// Package e2b answers unmodified clients of E2B with our own use cases. It is a thin translation: a sandbox of E2B is
// a thread that was made here, its metadata are labels, its processes are execs, its code contexts are ours. It knows
// nothing that the thread does not know, but for the time at which one ends. What it cannot do it refuses with 501 and
// the name of what was asked for. See docs/e2b.md.
//
// Locks: knownSandboxes.mu guards a map, watchers.mu the map of the watchers; none is held while a use case is
// called. watcher.mu is held for one look at a folder, so that two callers of a watcher do not get the same change.
// The mutexes of streams are held while one message is written. None is held while another one is taken.
package e2b
