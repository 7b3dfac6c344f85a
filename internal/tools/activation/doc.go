// Package activation keeps which tools the agents of threads have activated: those that a model gets with their
// definitions, although they are deferred. The list is part of the thread's record, so it outlives the sandbox and the
// server.
//
// Locks: Activations.mu guards who watches which thread, and is held for a look at the map. No other lock is taken, and
// no part is called, while it is held.
package activation
