// Package docker starts sandboxes through a Docker engine, API 1.41 or newer.
//
// The container's name is the sandbox's id, and the container's labels hold all that is remembered of a
// sandbox: the engine is the only state. Runtime names in a Spec ("runc", "runsc") match a runtime that the
// engine has registered, by name or by the name of its program. runsc must be registered with
// "--platform=systrap", "--host-uds=all" and "--oci-seccomp".
//
// The engine has no way to set nosuid and nodev on a bind mount. What they would stop is stopped
// by no_new_privs and by the device cgroup, and drivertest looks at that outcome.
//
// Locks: Driver.mu guards the engine's names of runtimes. It is held while the engine is asked for them,
// within the caller's deadline. The lock of one sandbox (package idlock) may be held before; none is taken
// after.
package docker
