// Package tree copies, bounds and keeps the folders of plugins, whatever is in them: files that cannot be a plugin
// are another package's finding.
//
// Locks: Store.mu guards a map; nothing is taken while it is held.
package tree
