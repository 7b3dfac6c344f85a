package hardening

import (
	"fmt"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// DefaultShmBytes bounds /dev/shm where nothing is loosened: Docker's default.
const DefaultShmBytes = 64 << 20

// ShmBytes bounds /dev/shm. It is memory, and so counts against the sandbox's memory limit too.
func ShmBytes(spec sandbox.Spec) int64 {
	if slices.Contains(spec.Loosen, sandbox.LoosenShm) {
		return max(DefaultShmBytes, spec.Limits.MemoryBytes/2)
	}
	return DefaultShmBytes
}

// MaxTerminals bounds the pseudo terminals of a sandbox. The kernel has 3,072 for all containers of a host: a sandbox
// that took them would leave its neighbours without one.
const MaxTerminals = 128

// The kernel's CPU quota, in microseconds. The kernel checks a sandbox's use only when a period begins. In a
// long period, its processes hold every CPU for long, and a neighbour waits behind them.
const (
	cpuPeriod   = 10_000 // the kernel's default is 100,000
	minCPUQuota = 1000   // the kernel takes none that is shorter
)

// CPUQuota returns the microseconds of CPU time that a sandbox may use in each period. The period is as long
// as the quota of a small limit needs.
func CPUQuota(l sandbox.Limits) (quota, period int64) {
	quota, period = l.CPUMillis*cpuPeriod/1000, cpuPeriod
	if quota < minCPUQuota {
		quota, period = minCPUQuota, minCPUQuota*1000/l.CPUMillis
	}
	return quota, period
}

// Tmpfs is one memory file system of a sandbox. All are nosuid and nodev; programs may run from them.
type Tmpfs struct {
	Target string
	Bytes  int64
	Mode   uint32
}

// TmpfsMounts are the places of a sandbox that code may write to besides its workspace.
func TmpfsMounts(l sandbox.Limits) []Tmpfs {
	return []Tmpfs{
		{Target: "/tmp", Bytes: l.TmpBytes, Mode: 0o1777},
		{Target: sandbox.HomeDir, Bytes: l.TmpBytes, Mode: 0o700},
	}
}

// tmpfsBytesPerInode bounds the files of a Tmpfs. An empty file costs the sandbox a kilobyte of its memory;
// when no process can run to delete it, only the end of the sandbox frees that.
const tmpfsBytesPerInode = 4 << 10

// Inodes is how many files and folders t may hold.
func (t Tmpfs) Inodes() int64 { return max(t.Bytes/tmpfsBytesPerInode, 1024) }

// Options are the mount options of t for a sandbox that runs as uid.
func (t Tmpfs) Options(uid int) []string {
	return []string{
		"rw", "nosuid", "nodev", "exec",
		fmt.Sprintf("size=%d", t.Bytes),
		fmt.Sprintf("nr_inodes=%d", t.Inodes()),
		fmt.Sprintf("mode=%04o", t.Mode),
		fmt.Sprintf("uid=%d", uid),
		fmt.Sprintf("gid=%d", uid),
	}
}

// OOMScore is a sandbox's oom_score_adj. When the memory of the whole machine ends, the kernel ends a sandbox before
// the server, the container engine or a service of the host: its score is that of half of the memory more.
const OOMScore = 500
