// Package mcpstdio speaks MCP on standard input and output for an endpoint of MCP that speaks HTTP, for clients that only
// know stdio. Messages pass as they are, in both directions and both eras of the protocol. What the transports do
// differently is translated: headers, sessions, the stream of notifications, and cancellation.
//
// A session that the server has lost, because it started anew, is begun again with the client's own initialize request. The
// client is told that the lists changed.
//
// Locks: session.mu guards what is known of the session; session.renewing is held while a new one is begun, and may be held
// when mu is taken. Bridge.mu guards the requests that wait for answers. output.mu is held while a line is written. None of
// the others is held while a request is sent. paramHeaders.mu guards a map.
package mcpstdio
