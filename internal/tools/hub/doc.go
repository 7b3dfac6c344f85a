// Package hub connects to MCP servers on behalf of threads: it reads their configuration, starts or
// reaches them when they are first needed, knows their tools, finds tools by what they do, and calls them.
//
// A server that hangs, crashes, floods or is configured wrongly hurts only itself. Each has its own
// connection for each scope (a thread, a user, or all), and its own limit of calls at once. Each also has
// its own deadline, and a breaker. Its tools are remembered while it is away.
//
// All that a server says (names, texts, schemas, results) is data from a stranger. What it says about a
// failure is passed on without the secrets of its configuration.
//
// The parts: configurations say which servers there are, for whom. The pool has one conn for each of them
// and each scope. A conn has a link while the server is connected to, made by a dialer, and lives longer
// than the link: it remembers the tools, the failures and the breaker. An exchange is one request over a
// conn. Catalog, Upstream, Servers and Logins are what callers use.
//
// Locks: pool.mu guards the map of the connections, conn.mu one connection, background.mu whether
// goroutines may still begin. They are taken in this order. configurations.mu, Catalog.mu, changes.mu and
// the other mutexes guard a map, a queue or a few fields each, and are taken one at a time.
// serverconfig.Redactor.mu, and that of the last lines of a program, are taken last: the log has no
// secrets. Listeners and watchers are called without a lock. No server is asked while one is held.
package hub
