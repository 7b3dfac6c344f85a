package hardening

import (
	"fmt"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// ShmBytes bounds /dev/shm. It is memory, and so counts against the sandbox's memory limit too.
const ShmBytes = 64 << 20

// CPUPeriod is the scheduling period of the CPU quota, in microseconds: the kernel's default.
const CPUPeriod = 100_000

// CPUQuota gives the microseconds of CPU time a CPUPeriod.
func CPUQuota(l sandbox.Limits) int64 { return l.CPUMillis * CPUPeriod / 1000 }

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

// An empty file takes a kilobyte of kernel memory and no space, so that files are bounded too: one for every
// so many bytes of space. gVisor keeps no such count; there, the memory limit alone bounds them.
const (
	bytesPerInode = 4 << 10
	minInodes     = 256
)

// Options are the mount options of t for a sandbox that runs as uid.
func (t Tmpfs) Options(uid int) []string {
	return []string{
		"rw", "nosuid", "nodev", "exec",
		fmt.Sprintf("size=%d", t.Bytes),
		fmt.Sprintf("nr_inodes=%d", max(minInodes, t.Bytes/bytesPerInode)),
		fmt.Sprintf("mode=%04o", t.Mode),
		fmt.Sprintf("uid=%d", uid),
		fmt.Sprintf("gid=%d", uid),
	}
}
