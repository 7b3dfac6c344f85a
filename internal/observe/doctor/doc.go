// Package doctor looks at a machine and says whether it fits Skerry. It runs a list of checks side by side,
// each with a deadline of its own. The answers come in the order of the list. It has the checks of the
// machine itself (kernel, control groups, disk, data folder, clock). The checks of the server's parts belong
// to the code that wires them.
//
// Locks: Report.mu guards the lines of one check, Examiner.mu those of the last run. No other lock is taken while one is held.
package doctor
