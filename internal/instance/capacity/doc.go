// Package capacity hands out the server's places for sandboxes. A caller that finds none free waits in a
// queue: first come, first served within a tenant, and tenants in turn, so that one with a hundred
// waiting calls delays another's only by one sandbox.
//
// A ticket is a place, or a turn in the queue for one. Nothing here starts a goroutine or waits: who
// has a ticket waits for Granted with a deadline of their own.
//
// Locks: Places.mu guards places, queues and the state of tickets. While it is held, nothing blocks and no
// other lock is taken; the orchestrator may hold its own lock before.
package capacity
