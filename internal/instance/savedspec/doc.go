// Package savedspec keeps what a thread's sandbox was asked to be. It outlives the sandbox, and the server, in a file beside the workspaces: the
// next call brings back a sandbox of the same template with the same environment, after a hibernation as
// after a crash. The environment may hold secrets, so it is encrypted, the file is root's alone, and no part of a thread's view.
package savedspec
