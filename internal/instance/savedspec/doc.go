// Package savedspec keeps the request for a thread's sandbox. It outlives the sandbox and the server, in a
// file beside the workspaces. The next call then starts a sandbox of the same template with the same
// environment, after a hibernation as after a crash. The environment may hold secrets, so it is encrypted,
// the file is root's alone, and no part of a thread's view.
//
// Locks: count.mu guards one user's count, also while the user's files are counted. Specs.mu guards the map
// of counts and is held alone.
package savedspec
