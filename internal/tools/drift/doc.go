// Package drift remembers what MCP servers say about their tools, and notices when it changes: a tool that was
// looked at once must not become another one unseen. What a server lists when it is first seen is taken as it is;
// from then on additions, changes and removals are recorded, and, where the server's configuration says so, a tool
// stays away until a person approves it.
//
// Locks: Service.mu serialises comparisons, and is held while the store and the audit log are written:
// listings are rare. No other lock of this package is taken.
package drift
