// Package cgroup reads and clears the control groups of sandboxes, of both versions. A path is that of a
// sandbox in every hierarchy, "/<id>". Where this process does not see the hierarchies as the
// runtime does, nothing is found there and nothing is done.
//
// Locks: OOMWatch.mu guards what is watched and what was found. It is held for a look at a map, and while the kernel
// adds a watch. No other lock is taken meanwhile.
package cgroup
