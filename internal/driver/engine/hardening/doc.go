// Package hardening holds what every container driver applies to a sandbox, written once: the rules
// that a sandbox.Spec must keep, the seccomp profile, the masked paths, the tmpfs sizes and the
// resource limits of a process. The drivers oci and docker translate it into their engine's words;
// drivertest asserts the outcome from inside.
package hardening
