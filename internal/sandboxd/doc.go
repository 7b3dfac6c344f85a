// Package sandboxd is the daemon inside every sandbox: PID 1 of it, and the server's hands there.
//
// It dials the server's control socket and serves SandboxService on the connection. It dials again when that
// is lost, while execs go on. It also listens on localhost:9876, where code in the sandbox expects the
// bridge. It passes each connection on to the bridge's socket as it is.
//
// It shares its uid with hostile code. So it is non-dumpable, takes every signal that a process may take,
// and starts every command under the filter of package process. It holds nothing that is worth more than the
// sandbox: the server treats every word of it as data.
//
// Locks: contexts.mu guards the interpreters of contexts, standbys.mu the waiting ones. Neither is taken
// while the other is held. No interpreter is started, asked or ended under one.
package sandboxd
