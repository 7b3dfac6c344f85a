// Package doctor looks at a machine and says what of it is as Skerry needs it: a list of checks that run
// side by side, each with a deadline of its own, and whose answers come in the order of the list. It has the
// checks of the machine itself (kernel, control groups, disk, data folder, clock); those of the server's parts belong to who
// wires them.
//
// Locks: Report.mu guards the lines of one check. No other lock is taken while it is held.
package doctor
