// Package skerry is the client of a Skerry server: a sandbox for every conversation of an agent.
//
//	c := skerry.New("http://127.0.0.1:8080", skerry.Options{Key: key})
//	res, err := c.Thread("demo").Exec(ctx, skerry.Command{Command: "ls -la"})
//
// A thread needs no making: its first call that needs a sandbox starts one. A command that fails is a
// result with its exit code; an error is what could not be done, as an *Error with a Code.
//
// # What is sent again
//
// A request without an answer, or with an answer that says to try again, is sent again for as long as
// Options.Patience. Its pauses grow, or are the ones that the server asks for. How often a thing is done
// does not change by that:
//
//   - Reading, writing a file whole, deleting: these may be done twice.
//   - Other requests go with an Idempotency-Key, by which the server answers a second one as it did the first.
//   - Commands, code, scripts of skills, calls of tools, input, signals and appending to files are never
//     done twice, and neither are writes with a Condition. They are sent again only when nothing was done: no
//     connection was made, or the server says so (429, capacity_exceeded, not_started).
//
// Exec, ExecuteCode and RunSkill follow the events of what they started. When the connection is lost
// they take it up again behind the last event, so that a long run outlives a proxy that does not.
//
// # Deadlines
//
// Every call ends: by its context, and without a deadline there after Options.Timeout. What takes as
// long as it takes (runs, streams, uploads, downloads) ends when nothing came for Options.Silence; the
// server sends a sign of life every 15 s.
//
// A Client and a Thread may be used by many goroutines at once.
//
// Locks: warned.mu guards which deprecated routes the program was told of; no other is taken under it.
package skerry
