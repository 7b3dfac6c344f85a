// Package hub connects to MCP servers on behalf of threads: it reads their configuration, starts or
// reaches them when they are first needed, knows their tools, finds tools by what they do, and calls
// them.
//
// A server that hangs, crashes, floods or is configured wrongly hurts only itself: each has its
// own connection for each scope (a thread, a user, or all), its own limit of calls at once, its own
// deadline, and a breaker. Its tools are remembered while it is away.
//
// All that a server says (names, texts, schemas, results) is data from a stranger. What it says about
// a failure is passed on without the secrets of its configuration.
//
// Locks: Hub.mu guards the map of the connections, then conn.mu one connection, then Hub.spawning, under which goroutines
// begin that the hub waits for. serverconfig.Redactor.mu may be taken under all of them: what a server says is told without secrets.
// The other mutexes guard a map, a queue or a few fields each, and are taken one at a time;
// listeners and watchers are called without them. No server is asked while one is held.
package hub
