// Package packs gives the agents of a Skerry server tools that are functions of your program.
//
// A Pack has tools, whose schemas come from the types of their arguments and results. Serve connects to a server and
// answers calls until its context ends. It connects again by itself when the connection is lost.
//
// Locks: Pack.mu guards the tools and who serves them, connection.mu the calls and windows of one stream, and
// connection.sending one message that is being sent. Each is taken alone.
package packs
