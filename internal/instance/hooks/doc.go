// Package hooks starts instances and takes them down, by one list of hooks. Four kinds of sandboxes go
// through it: made for a thread, made for the pool, claimed from the pool by a thread, and made by another
// server. Each hook knows what it does on which way. Teardown runs in reverse, whatever step the instance
// has reached: a hook removes what is there.
//
//	hook       up                                                 down
//	ownership  the thread is held; its owner record names the     the record of the sandbox goes, the thread is let go
//	           sandbox
//	workspace  the thread has a folder and a uid                  what waited in the pool goes; the files are kept last
//	folder     the run folder, with the view of skills            the view is given back, the folder goes
//	sockets    sandboxd and the bridge can be reached             both are closed
//	sandbox    it is made, claimed or attached                    its last changes are copied, it is removed
//	skills     the view shows what the thread has                 -
//	daemon     sandboxd answers; no exec of a former server runs  -
//	running    the thread is still ours; other servers are told   -
//
// No thread has a sandbox that waits in the pool. So the hooks skip what belongs to a thread: its ownership, its own view of
// the skills, the bridge, the wrappers and the record in the store. Its workspace is a folder of the pool, and its view shows
// what most users see. The name of that folder says whose the sandbox is, as an owner record does: it is there first and goes last.
//
// A second sandbox of a thread (Instance.Main) is made as a cold one. The hooks leave to the thread's own what a thread has
// once: its ownership and records, its uid and bounds, its last snapshot.
//
// A hook has the parts that it works with, and does not know the other hooks. What one leaves for a later one is in
// the Start.
//
// A server can die between any two hooks, up and down: the owner record is there first and goes last, so that the next server
// finds what there is, and adopts or removes it.
package hooks
