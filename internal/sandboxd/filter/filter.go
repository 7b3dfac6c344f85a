// Package filter puts a process and all that it starts under a seccomp filter. It is not the sandbox's wall: the
// driver's profile is. It only keeps a command from reaching sideways: to PID 1, to its own supervisor, or by means that
// take any process of their uid.
package filter

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, and of the low word of an argument (little endian).
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
	x32Bit    = 0x40000000
	retAllow  = 0x7fff0000
	retErrno  = 0x00050000
	retDeny   = retErrno | uint32(unix.EPERM)
)

// rule denies a system call: always, or when argument arg is one of values (as 32-bit numbers, as
// the kernel reads a pid_t).
type rule struct {
	call   uintptr
	arg    int
	values []uint32   // empty: always
	errno  unix.Errno // 0: EPERM
}

func (r rule) answer() uint32 {
	if r.errno != 0 {
		return retErrno | uint32(r.errno)
	}
	return retDeny
}

// uncounted are the ioctls by which the owner of a file or folder gets out of its disk quota.
// FS_IOC_FSSETXATTR, FS_IOC_SETFLAGS and FS_IOC32_SETFLAGS change or stop the project on ext4 and xfs.
// BTRFS_IOC_SNAP_CREATE, _V2, SUBVOL_CREATE, _V2 make what has a quota of its own.
var uncounted = []uint32{0x401c5820, 0x40086602, 0x40046602, 0x50009401, 0x50009417, 0x5000940e, 0x50009418}

// sysFileSetattr is file_setattr, of Linux 6.17: FS_IOC_FSSETXATTR by path. Its number is the same everywhere.
const sysFileSetattr = 469

// quotaRules: the owner of a file may move it to another project, which is how a user's disk space is
// counted.
var quotaRules = []rule{{call: unix.SYS_IOCTL, arg: 1, values: uncounted}, {call: sysFileSetattr}}

// tracing are the calls by which one process looks into another: a process that may use them
// still does not reach PID 1 and supervisors, which are not dumpable.
var tracing = []rule{{call: unix.SYS_PTRACE}, {call: unix.SYS_PROCESS_VM_READV}, {call: unix.SYS_PROCESS_VM_WRITEV}}

// rules for a supervisor with this pid.
func rules(self int, mayTrace bool) []rule {
	pid := uint32(self)
	targets := []uint32{1, pid}
	broadcast := []uint32{1, pid, ^uint32(0), -pid} // kill(-1), and the supervisor's group
	rs := []rule{
		// No filter sees the flags of clone3, which can make a user namespace. Told that there is no such call, C
		// libraries fall back to clone. The driver's profile does the same, but not under gVisor, where it can refuse by EPERM
		// only.
		{call: unix.SYS_CLONE3, errno: unix.ENOSYS},
		{call: unix.SYS_PIDFD_OPEN},
		{call: unix.SYS_PIDFD_GETFD},
		// A /proc/<pid> folder serves as a pidfd. A siginfo of one's own making turns any signal into what
		// the Go runtime takes for its own crash.
		{call: unix.SYS_PIDFD_SEND_SIGNAL},
		{call: unix.SYS_RT_SIGQUEUEINFO},
		{call: unix.SYS_RT_TGSIGQUEUEINFO},
		{call: unix.SYS_KILL, arg: 0, values: broadcast},
		{call: unix.SYS_TKILL, arg: 0, values: targets},
		{call: unix.SYS_TGKILL, arg: 0, values: targets},
		// With F_SETSIG a file's owner, which may be any process, gets any signal.
		{call: unix.SYS_FCNTL, arg: 1, values: []uint32{unix.F_SETSIG}},
		{call: unix.SYS_PRLIMIT64, arg: 0, values: targets},
		{call: unix.SYS_SCHED_SETAFFINITY, arg: 0, values: targets},
		{call: unix.SYS_SCHED_SETSCHEDULER, arg: 0, values: targets},
		{call: unix.SYS_SCHED_SETPARAM, arg: 0, values: targets},
		{call: unix.SYS_SCHED_SETATTR, arg: 0, values: targets},
		// By who, then by which: all processes of the user.
		{call: unix.SYS_SETPRIORITY, arg: 1, values: targets},
		{call: unix.SYS_SETPRIORITY, arg: 0, values: []uint32{unix.PRIO_USER}},
		{call: unix.SYS_IOPRIO_SET, arg: 1, values: targets},
		{call: unix.SYS_IOPRIO_SET, arg: 0, values: []uint32{3}}, // IOPRIO_WHO_USER
	}
	rs = append(rs, quotaRules...)
	if !mayTrace {
		rs = append(rs, tracing...)
	}
	return rs
}

func auditArch() (uint32, error) {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, nil
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, nil
	}
	return 0, fmt.Errorf("no seccomp filter for %s", runtime.GOARCH)
}

// assemble returns the program: another architecture's calls are denied, then the rules in order,
// then all else is allowed.
func assemble(arch uint32, rs []rule) ([]bpf.RawInstruction, error) {
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: retDeny},
	}
	load := bpf.LoadAbsolute{Off: offNumber, Size: 4}
	prog = append(prog, load,
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: retDeny})
	for _, r := range rs {
		var block []bpf.Instruction
		if len(r.values) > 0 {
			block = append(block, bpf.LoadAbsolute{Off: offArgs + 8*uint32(r.arg), Size: 4})
			for i, v := range r.values {
				// To the denial behind the comparisons that are left and the jump over it.
				block = append(block, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(r.values) - i)})
			}
			block = append(block, bpf.Jump{Skip: 1})
		}
		block = append(block, bpf.RetConstant{Val: r.answer()})
		if len(r.values) > 0 {
			block = append(block, load)
		}
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(r.call), SkipTrue: uint8(len(block))})
		prog = append(prog, block...)
	}
	return bpf.Assemble(append(prog, bpf.RetConstant{Val: retAllow}))
}

// Install puts this process, and all that it starts from now on, under the filter of an exec whose supervisor has the
// pid self. mayTrace: its processes may look into each other.
func Install(self int, mayTrace bool) error { return install(rules(self, mayTrace)) }

// InstallQuota puts this process, and all that it starts from now on, under a filter that keeps its files in
// their disk quota, and does nothing else.
func InstallQuota() error { return install(quotaRules) }

func install(rs []rule) error {
	arch, err := auditArch()
	if err != nil {
		return err
	}
	raw, err := assemble(arch, rs)
	if err != nil {
		return err
	}
	prog := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		prog[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// On all threads at once: the runtime starts a command from any of them.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
