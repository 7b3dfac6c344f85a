// Package transport carries messages between the MCP SDK and a server: over HTTP, to a program of this host,
// or to a program in a sandbox. It differs from the SDK's own transports in how it treats a server that
// misbehaves. A line that is no message is skipped. A message that is too large fails its call alone. The
// end of a connection takes all of the server's processes with it.
//
// A Capture is what was seen of one request: its result in the server's own words, or why there is none.
//
// Locks: Traffic.mu guards the requests that wait for their answers, Capture.mu one of them. Listeners.mu
// guards the calls in progress, Listener.mu what waits for one listener, and tail.mu the last lines of
// standard error. Each is taken alone.
package transport
