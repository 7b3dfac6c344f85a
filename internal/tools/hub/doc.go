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
package hub
