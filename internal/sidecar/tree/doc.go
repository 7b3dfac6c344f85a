// Package tree reads and changes trees of files for both ends of the tunnel: it lists them, remembers what they were,
// and puts other content in their place.
//
// The trees in a sandbox are changed by hostile code at the same time. So every step takes one name, relative to an open folder, and
// no step follows a link (Dir): there is no path that could be swapped under a look-up, and none that leads out. Only regular files are
// opened, and never so that the open could wait. Specials are neither copied nor read. What is listed is bounded (Limits).
//
// Paths are relative to the tree's root, with any bytes but NUL in their names. A List is in the order of the walk.
//
// Locks: Digests.mu guards the digests. No other lock is taken while it is held.
package tree
