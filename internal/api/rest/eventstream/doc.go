// Package eventstream writes server-sent events, keeps silent streams open, and counts them.
//
// Locks: Stream.mu is held while one event is written to the client, whose connection has a deadline. No
// other one is taken, and no use case is called, while it is held. Places.mu guards counts, and is held for a look
// at a map.
package eventstream
