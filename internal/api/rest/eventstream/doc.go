// Package eventstream writes server-sent events, and keeps silent streams open.
//
// Locks: Stream.mu is held while one event is written to the client, whose connection has a deadline. No
// other one is taken, and no use case is called, while it is held.
package eventstream
