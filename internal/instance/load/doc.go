// Package load watches what sandboxes do to their neighbours. The limits of a sandbox bound what it takes,
// not how it takes it. While it computes all the time, all others wait behind its processes. While it forks
// all the time, they wait for the kernel's locks that it holds. So a sandbox that computes for long gets a
// low weight until it stops. An exec that goes on forking at the limit of processes is ended. What the
// driver measured is counted as CPU time, too.
package load
