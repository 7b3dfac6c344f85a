// Package threadevents tells followers what happens in a thread: execs, approvals, files, the states of its sandbox, and
// changes of what its agent is told.
//
// Feeds has a feed for each thread that is followed, and for some time after its last follower left, so that a follower that
// was cut off resumes. A thread without a feed costs its publishers one look at a counter. A feed keeps the newest events as
// JSON, within a bound of number and of bytes. Each follower has a place in the feed and no memory of its own: a slow
// follower that the feed has passed is told by a reset.
//
// Tools, skills and the prompt differ from caller to caller. So a follower compares their digests itself when one of the
// signals of their owners comes, and carries them in the ids of its events. A follower that resumes learns from its id
// what changed meanwhile, at any server and after a restart.
//
// Events is the use case. The server that owns the thread answers it: all that is published about a thread is published
// there, but for files that another server changed, which tells the owner by the shared state.
//
// Locks: Feeds.mu guards the map and the feeds in it. It is held for a look, or to append one event; nothing is taken and
// no callback is called under it.
package threadevents
