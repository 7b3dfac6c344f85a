// Package containerd starts sandboxes through containerd 1.6 or newer, without a container engine
// above it.
//
// All is in one namespace of containerd. The container's name is the sandbox's id; what is remembered of a
// sandbox lies in the container's record (an extension: labels of containerd are short), so that containerd
// is the only state. A container's record is made first and reserves its id. It names the snapshot of its
// root file system, which protects both from the garbage collector. Remove deletes it last: so the records
// list every sandbox and every half-made one.
//
// Both runtimes run under the shim io.containerd.runc.v2. runsc gets its flags from a small script that
// the shim takes for the runtime's program, because the shim passes on none.
//
// The driver and containerd are on one host and see the same files under the same paths.
//
// Locks: imageStore.mu guards what is known of images and the pulls that are under way. containerd is not
// called while it is held. The lock of one sandbox (package idlock) is taken before it, never after.
package containerd
