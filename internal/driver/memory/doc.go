// Package memory is a driver whose sandboxes are entries of a map: nothing is started and nothing is
// isolated. It is for the tests of what stands on drivers. In place of skerry-sandboxd, each sandbox
// has a goroutine that dials the server's socket in the folder mounted at sandbox.RunDir, does the
// handshake and serves a handler of the test's.
//
// Locks: Host.starts holds one sandbox that a Remote makes, attaches and removes, and is taken before all others. Host.mu guards all sandboxes of a host, then pod.mu the way to one of them. pod.files is held while one side is made
// like the other; pod.mu may be taken under it. A pod is removed under Host.mu, which waits for pod.files.
package memory
