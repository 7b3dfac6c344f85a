// Package channels has the skills of threads whose tools are functions of a client's program. A client attaches such a skill
// and gets a key, by which its program opens a stream as a tool pack does (package packs). Keys checks those keys. Channels
// knows which skills of this server's threads have one. Tools stands before the hub of MCP servers: it finds and calls the
// tools of skills, so that policy, approvals, limits and the record treat them as any other tool. Skills are those of
// threads, with their channels.
//
// The thread's record has the hash of each key, so that every server can check it. Skills are in the memory of one process,
// which the record names: when that process has ended, the key is good for nothing.
//
// Locks: Channels.recording serialises changes of what is attached with those of the threads' records, and is taken first.
// Channels.mu guards what is attached. Nothing else is taken while it is held but the locks of package packs.
package channels
