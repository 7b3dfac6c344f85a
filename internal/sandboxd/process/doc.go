// Package process runs execs inside a sandbox and keeps what they print.
//
// Every exec has a supervisor of its own while it runs: this binary, started again as
// "skerry-sandboxd supervise" (see Supervise), which is the sub-reaper of the exec's process tree.
// So a daemon that forked twice or made a session of its own is still found, and ended, with its
// exec. A supervisor whose tree is gone serves the next exec; one or two always wait, so that an exec
// pays for no process start but its own.
//
// The parts: Manager holds the execs and the supervisors; Exec is one exec with its numbered events;
// capture bounds one output stream (head kept as events, tail in a ring, the whole in a spill file);
// supervise.go and tree.go run in the supervisor; filter.go is the seccomp filter that every command
// lives under, which keeps it from reaching PID 1 and its supervisor.
//
// A Standby is a command that was started before its exec is known. A Zygote is a command that forks itself for each
// exec: its supervisor keeps it, and serves its forks one after the other.
//
// A Session is a command that outlives execs and serves them one after the other, such as an
// interpreter that keeps its variables. It has a supervisor for as long as it lives.
//
// Processes that outlive a command whose Request says Leave stay with its supervisor: left has these trees, at most MaxLeft.
// They are reaped there, can be listed and killed, and end with the Manager. Every other exec ends all that it started.
//
// Commands share the uid of sandboxd. One can kill the supervisor of another exec: that exec ends as
// killed, its orphans fall to PID 1, and PID 1 kills them.
//
// Locks: Manager.mu guards what there is of execs, sessions, standbys and zygotes. Exec.mu, then Session.mu; a message to a
// supervisor is sent under either, with a deadline. wardens.forkMu is held for reading while a supervisor is started, and
// for writing while children are reaped or looked over; then wardens.mu, which guards the lists of supervisors. tap.mu
// is held while a piece of output is read and put where it belongs. eventLog.mu may be taken under all of them, and
// takes none; left.mu may be taken under Exec.mu. stdin.mu and terminal.mu are taken last, for a few fields or one call of the terminal.
package process
