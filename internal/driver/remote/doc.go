// Package remote starts sandboxes at a service that speaks E2B's API: E2B's own, one that is compatible, or another
// Skerry (docs/decisions/0052-remote.md). The server sees neither the machine nor its disk, so this is a driver.Remote.
//
// A sandbox of ours is one of the service's, in which the daemon of the service starts skerry-bridge. That one starts
// skerry-sandboxd in namespaces of its own (package nest), and is its sidecar. The server reaches it by processes that pass
// bytes on, whose terminals are streams of the service's daemon: each is one attachment, and TLS goes through it from end to
// end.
//
// What a Spec says that a later server must know is metadata of the service's sandbox. Labels that an attachment adds are
// files of the server's data folder, which all servers of an installation share: the service has no call to change
// metadata, and files in the sandbox are not to be believed.
//
// All that the service says is bounded in size and time. What it can do it does: it sees files, code and calls of tools.
//
// Locks: boxes.mu guards the map of the sandboxes that this process knows, and the fields of each. No request is made under
// it. A lock on a file for each sandbox keeps servers from making or removing one at the same time.
package remote
