// Package hardening has what every container driver applies to a sandbox: the rules of a sandbox.Spec, the
// seccomp profile, the masked paths, the tmpfs sizes and the resource limits of a process. The drivers oci
// and docker translate it into their engine's words; drivertest asserts the outcome from inside.
package hardening
