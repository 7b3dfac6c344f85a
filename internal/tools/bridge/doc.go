// Package bridge is the only way out of a sandbox: a unix socket for each sandbox, on which its code calls
// the tools of MCP servers. The bridge decides by the token of an exec who calls, and counts the calls. It
// records each one before it is made, and hands it to the guard of the policy.
//
// All that arrives on a socket is hostile, so every request has a bound in bytes and in time. A token is of
// use only on the socket of its own thread and only while its exec runs. A call that cannot be recorded is
// not made.
//
// Locks: Bridge.mu guards the tokens, exec.mu the counts of one exec. Neither is taken while the other is
// held, and no call is made under one.
package bridge
