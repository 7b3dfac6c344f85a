// Package auth says who a caller is: bearer keys, kept only as hashes.
//
// Locks: Keys.mu guards caches, uses and the throttle; Refusals.mu the counts of refused credentials. The
// store is asked with neither of them held, and neither is taken while the other is.
package auth
