// Package hooks brings instances up and takes them down, by one list of hooks. A sandbox that is made for a thread, a sandbox that
// waited in the pool, and a sandbox that another server made go through the same hooks; each knows what there is to do of it on which
// way. An instance is taken down in reverse, wherever it came to: a hook takes away what is there.
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
// A hook has the parts that it works with, and does not know the other hooks. What one leaves for a later one is in
// the Start.
//
// A server can die between any two hooks, up and down: the owner record is there first and goes last, so that the next server
// finds what there is, and adopts or removes it.
package hooks
