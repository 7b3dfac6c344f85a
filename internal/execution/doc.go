// Package execution keeps what the server knows of execs: their events as they came, and their one end.
//
// An Exec is one run of something in a sandbox. One goroutine sees it through: it takes the events of sandboxd (Take),
// which is hostile ground, so that numbers, sizes and paths are checked here; it makes the result (Compose); and it ends the
// exec once (Finish), after the record of the end is durable. Any number of callers wait for the end, or follow the
// events. Secrets hides values in all that leaves an exec. The Registry holds the execs that run and the newest that ended.
//
// Execs is what callers ask of them: results, events, signals, terminals.
//
// While a call of an exec waits for a person, its deadline is held (Hold).
//
// Locks: Registry.mu, then eventLog.mu. eventLog.mu is held for no longer than it takes to add an event or to read a few
// fields; nothing is taken under it. Hold.mu is held alone. The fields of an Exec belong to the goroutine that sees it
// through. They do not change once the registry has it, but for what only that goroutine reads.
package execution
