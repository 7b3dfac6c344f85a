// Package client is the server's side of the contract with sandboxd: typed calls over a
// link.Listener, with every answer checked, because it comes from hostile ground.
//
// Errors carry a sandbox.Kind. SandboxLost means that the sandbox cannot be reached, or that it broke
// the contract (then errors.Is(err, ErrContract)): in both cases its owner should end it. A
// connection that breaks and comes back within Grace is not noticed by callers: streams of events go
// on where they stopped.
//
// Locks: Client.mu guards the API of the connection in use. No call is made while it is held.
package client
