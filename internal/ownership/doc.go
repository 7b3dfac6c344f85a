// Package ownership decides which server has a thread. Servers share a data folder and a Redis; each is a
// replica. A replica owns a thread before it does anything with the thread's sandbox. Ownership is two
// things with one fencing token. The lease in Redis keeps other servers from taking the thread. The owner
// record on disk (package ownerrecord) says that this server took it. Decision 0013 says why there are two.
//
// An Ownership lives as long as an instance or a request uses it: Acquire, Join and Retain count in, Release
// counts out. While leases are renewed in time no call reads Redis or the disk. Renewal renews all leases,
// 500 at a time. Takeover looks each second whether a replica exited. Only then it reads owner records,
// takes the threads, and has the instances adopt the sandboxes (Sandboxes.Inherit). A replica that stops
// hands its threads over (HandOver): the owner record names Nobody then, and the next server that is asked
// adopts the sandbox.
//
// Ownership knows no instance. It speaks to those of its server through the interface Sandboxes.
//
// Locks: Renewal.renewing is held for a whole round of renewals and guards Ownership.page. Owners.mu guards the map and
// the counts of uses; BeginHandOver calls its caller's function with it held, which may take the mutex of an instance.
// No page of an owner record is locked, and Redis is not asked, while Owners.mu is held. Targets.mu is held while
// replicas are asked whether they take work, and nothing is taken under it.
package ownership
