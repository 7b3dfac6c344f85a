// Package limits bounds what tenants, users and keys take of all servers together, and counts what they used.
//
// A call is checked against all its limits in one step, by one script of package store, which takes all or
// nothing. A caller without limits costs no step. The server reports what it counts, and the places that it
// returns, in the background. The next check of the same tenant sends the places along, so that a caller
// with an answer finds the place free. The place of a server that died is free after HoldTime.
//
// Without the state store a call that a limit is about is refused (Unavailable): what others take is unknown.
//
// Locks: Gate.mu guards all that a server counts and all places that it has, and is held for no call of the store.
// disk.mu guards one measurement, which is made without it. pending.mu guards one flag of a request. None is held while another
// one is taken.
package limits
