// Package approval asks people about calls that may be made only when one of them says so. A request is kept in the
// state that all servers share: any of them shows it and takes the decision, and exactly one decision counts. What
// no person decides in time is denied.
//
// A decision is used once, by the call that waits for it. When that is gone with its server, the request stays, and
// the same call of the same thread, made again, takes its place: a request is found again by the tool and the hash of
// the arguments.
//
// Locks: waiters.mu guards the channels of the calls that wait. While it is held, nothing blocks and no
// other lock is taken.
package approval
