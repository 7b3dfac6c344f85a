// Package load watches what sandboxes do to their neighbours. The limits of a sandbox bound what it takes, not how it takes
// it: while it computes all the time, all others wait behind its processes, and while it forks all the time, they
// wait for the kernel's locks that it holds. So a sandbox that computes for long counts little until it stops, and an exec
// that goes on forking at the limit of processes is ended. What the driver measured is counted as CPU time, too.
package load
