// Package procfs reads what the kernel tells of the processes in a sandbox, and of the sandbox's cgroup.
package procfs
