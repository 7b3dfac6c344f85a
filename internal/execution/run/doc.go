// Package run starts execs and sees them to their ends.
//
// RunCommand, RunCode and RunScript check the request and then share one path. It has a sandbox, a record of
// the attempt, the decision of the policy, and a token at the bridge. A goroutine streams the events of
// sandboxd until the exit, whatever becomes of the caller. At the exit it copies the changed files to this
// disk, asks the bridge for the tool calls, and records the end. Only then callers see the end.
//
// sandboxd is hostile ground: the server has a deadline of its own (UnansweredGrace), and what sandboxd says is data.
// While calls of an exec wait for people its deadline is held, by leases (Holds, decision 0029).
package run
