// Package memory is a driver whose sandboxes are entries of a map: it starts nothing and isolates nothing.
// It is for tests of the packages above drivers. In place of skerry-sandboxd, each sandbox has a goroutine
// that dials the server's socket in the folder mounted at sandbox.RunDir. The goroutine does the handshake
// and serves a handler of the test's.
//
// Locks: Host.starts holds one sandbox that a Remote makes, attaches and removes, and is taken before all others. Host.mu guards all sandboxes of a host, then pod.mu the way to one of them. pod.files is held while one side is made
// like the other; pod.mu may be taken under it. A pod is removed under Host.mu, which waits for pod.files.
package memory
