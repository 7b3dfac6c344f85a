// Package execs is the routes of what runs in sandboxes: commands, code, scripts of skills, their events
// and results, interpreters that keep their variables, and terminals.
//
// Locks: execStream.mu is held while one event is written to the client, whose connection has a deadline.
// No other one is taken, and no use case is called, while it is held. joined.mu guards the counts of clients at
// terminals, and is held while they change.
package execs
