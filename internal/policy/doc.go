// Package policy says which calls may be made. Every tool call passes through a Guard, whether code in a
// sandbox makes it, an agent by the API, or a client of /mcp. The Guard shows a caller only the tools that
// its capabilities allow. It asks the rules about each call, waits for an approval where they want one, and
// keeps their limits and redactions. What runs in a sandbox (commands, code, scripts of skills) is asked
// about, too.
//
// A call is made in two steps, so that its record stands before it: Plan looks at it, Make makes it. There is
// no way from one to the other that leaves out the decision.
//
// Locks: Engine.mu guards the files of rules, and is held while they are read or written. Decisions take
// no lock: they read an atomic pointer. Changes are told after it is released.
package policy
