// Package wire is what a server and the sidecar of a sandbox say to each other: the messages of wire.proto on streams
// with deadlines, entries of trees in them, and the bytes of sockets.
//
// A connection begins with Hello and Welcome. Then it is divided by yamux; each stream begins with one message that says what it
// is. Every message is bounded, and every one waits for at most a minute.
//
// Locks: pipe.mu guards the count of directions that have ended. The pipe is closed after it is released.
package wire
