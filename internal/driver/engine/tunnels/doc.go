// Package tunnels keeps the attachments of a process to sandboxes that do not see the server's disk: what drivers of the
// kind driver.Remote have in common.
//
// Locks: Set.mu guards the map. No attachment is made or closed under it.
package tunnels
