package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
)

// forbidden are attempts at what no sandbox may do. Each returns nil when it was let through. Their
// arguments do no harm: a kernel that looked at them would answer EINVAL, EBADF or EFAULT, which
// tells it from a kernel that refused the call itself.
var forbidden = map[string]func() error{
	"unshare-user":        func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"unshare-mount":       func() error { return unix.Unshare(unix.CLONE_NEWNS) },
	"unshare-net":         func() error { return unix.Unshare(unix.CLONE_NEWNET) },
	"clone-newuser":       func() error { return cloneWith(syscall.CLONE_NEWUSER) },
	"clone-newnet":        func() error { return cloneWith(syscall.CLONE_NEWNET) },
	"setns":               raw(unix.SYS_SETNS, badFD, 0),
	"mount":               func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") },
	"umount":              func() error { return unix.Unmount("/tmp", unix.MNT_DETACH) },
	"mount-in-own":        mountInOwn,
	"pivot_root":          func() error { return unix.PivotRoot("/tmp", "/tmp") },
	"chroot":              func() error { return unix.Chroot("/tmp") },
	"open_tree":           raw(unix.SYS_OPEN_TREE, badFD, 0, 0),
	"move_mount":          raw(unix.SYS_MOVE_MOUNT, badFD, 0, badFD, 0, 0),
	"mount_setattr":       raw(unix.SYS_MOUNT_SETATTR, badFD, 0, 0, 0, 0),
	"fsopen":              raw(unix.SYS_FSOPEN, 0, 0),
	"keyctl":              raw(unix.SYS_KEYCTL, 0, 0),
	"add_key":             raw(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0),
	"request_key":         raw(unix.SYS_REQUEST_KEY, 0, 0, 0, 0),
	"bpf":                 raw(unix.SYS_BPF, 0, 0, 0),
	"perf_event_open":     raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, badFD, badFD, 0),
	"userfaultfd":         raw(unix.SYS_USERFAULTFD, 0),
	"io_uring_setup":      raw(unix.SYS_IO_URING_SETUP, 1, 0),
	"io_setup":            raw(unix.SYS_IO_SETUP, 0, 0),
	"io_submit":           raw(unix.SYS_IO_SUBMIT, 0, 0, 0),
	"socket-filter":       socketProgram(unix.SO_ATTACH_FILTER),
	"reuseport-filter":    socketProgram(unix.SO_ATTACH_REUSEPORT_CBPF),
	"open_by_handle_at":   raw(unix.SYS_OPEN_BY_HANDLE_AT, badFD, 0, 0),
	"name_to_handle_at":   raw(unix.SYS_NAME_TO_HANDLE_AT, badFD, 0, 0, 0, 0),
	"kexec_load":          raw(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
	"init_module":         raw(unix.SYS_INIT_MODULE, 0, 0, 0),
	"delete_module":       raw(unix.SYS_DELETE_MODULE, 0, 0),
	"swapon":              raw(unix.SYS_SWAPON, 0, 0),
	"reboot":              raw(unix.SYS_REBOOT, 0, 0, 0, 0),
	"settimeofday":        func() error { return unix.Settimeofday(&unix.Timeval{Sec: -1}) },
	"sethostname":         func() error { return unix.Sethostname([]byte("other")) },
	"syslog":              raw(unix.SYS_SYSLOG, 10, 0, 0),
	"quotactl":            raw(unix.SYS_QUOTACTL, 0, 0, 0, 0),
	"fanotify_init":       raw(unix.SYS_FANOTIFY_INIT, 0, 0),
	"pidfd_getfd":         raw(unix.SYS_PIDFD_GETFD, badFD, badFD, 0),
	"setuid-root":         func() error { return unix.Setresuid(0, 0, 0) },
	"setgid-root":         func() error { return unix.Setresgid(0, 0, 0) },
	"setgroups":           func() error { return unix.Setgroups([]int{0}) },
	"mknod":               func() error { return unix.Mknod("/tmp/device", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0))) },
	"chown-root":          chownRoot,
	"socket-packet":       socket(unix.AF_PACKET, unix.SOCK_RAW, 0),
	"socket-raw":          socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"socket-vsock":        socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	"socket-alg":          socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
	"socket-bluetooth":    socket(unix.AF_BLUETOOTH, unix.SOCK_RAW, 0),
	"lower-oom-score":     func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-500"), 0) },
	"socket-sctp":         socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
	"socket-mptcp":        socket(unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
	"socket-udplite":      socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE),
	"socket-raw-ipv6":     socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6),
	"socket-netfilter":    socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
	"socket-audit":        socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
	"socket-tipc":         socket(unix.AF_TIPC, unix.SOCK_STREAM, 0),
	"socketpair-tipc":     socketpair(unix.AF_TIPC),
	"socketpair-vsock":    socketpair(unix.AF_VSOCK),
	"ptrace":              traceChild,
	"process_vm_readv":    raw(unix.SYS_PROCESS_VM_READV, 1, 0, 0, 0, 0, 1),
	"process_vm_writev":   raw(unix.SYS_PROCESS_VM_WRITEV, 1, 0, 0, 0, 0, 1),
	"personality":         raw(unix.SYS_PERSONALITY, 0x0040000), // ADDR_NO_RANDOMIZE
	"clone-newtime":       raw(unix.SYS_UNSHARE, unix.CLONE_NEWTIME),
	"memfd_secret":        raw(unix.SYS_MEMFD_SECRET, badFD),
	"lower-core-limit":    lowerCoreLimit, // to 0, at which a program of the host may get the dump
	"raise-core-limit":    func() error { return raiseLimit(unix.RLIMIT_CORE) },
	"raise-nofile-limit":  func() error { return raiseLimit(unix.RLIMIT_NOFILE) },
	"raise-fsize-limit":   func() error { return raiseLimit(unix.RLIMIT_FSIZE) },
	"write-sysctl":        func() error { return os.WriteFile("/proc/sys/kernel/core_pattern", []byte("x"), 0) },
	"write-sysrq-trigger": func() error { return os.WriteFile("/proc/sysrq-trigger", []byte("x"), 0) },
}

const badFD = ^uintptr(0)

func raw(nr uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

func socket(family, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(family, kind, protocol)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

// socketProgram attaches a program that lets all packets through.
func socketProgram(option int) func() error {
	return func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return fmt.Errorf("prepare: %s", err) //nolint:errorlint // its number would look like a refusal
		}
		program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)}}
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option, &unix.SockFprog{Len: 1, Filter: &program[0]})
		return errors.Join(err, unix.Close(fd))
	}
}

func socketpair(family int) func() error {
	return func() error {
		fds, err := unix.Socketpair(family, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Close(fds[0]), unix.Close(fds[1]))
	}
}

func cloneWith(flags uintptr) error {
	cmd := exec.Command("/proc/self/exe", probeNothing)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return cmd.Run()
}

// traceChild makes this process the tracer of a process that it starts.
func traceChild() error {
	p, err := os.StartProcess("/proc/self/exe", []string{"probe", sleepArg}, &os.ProcAttr{})
	if err != nil {
		return fmt.Errorf("prepare: %s", err) //nolint:errorlint // its number would look like a refusal
	}
	defer func() {
		_ = p.Kill()
		_, _ = p.Wait()
	}()
	return raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(p.Pid), 0, 0)()
}

// mountInOwn makes a user and a mount namespace and mounts a tmpfs in it.
func mountInOwn() error {
	cmd := exec.Command("/proc/self/exe", childArg, `{"op":"syscall","path":"mount"}`)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp probewire.Response
	if err := json.Unmarshal(out, &resp); err != nil {
		return err
	}
	if resp.Errno != 0 {
		return syscall.Errno(resp.Errno)
	}
	return nil
}

// probeNothing is an argument with which the program ends at once: a child request that is no JSON.
const probeNothing = childArg

func chownRoot() error {
	if err := os.WriteFile("/tmp/owned", nil, 0o600); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return unix.Chown("/tmp/owned", 0, 0)
}

func raiseLimit(which int) error {
	var have unix.Rlimit
	if err := unix.Prlimit(0, which, nil, &have); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	want := have
	want.Max++
	if err := unix.Prlimit(0, which, &want, nil); err != nil {
		return err
	}
	if err := unix.Prlimit(0, which, nil, &want); err != nil {
		return err
	}
	if want == have { // the answer is "done", and nothing was
		return unix.EPERM
	}
	return nil
}

func lowerCoreLimit() error {
	var now, none unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, &none, nil); err != nil {
		return err
	}
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &now); err != nil {
		return fmt.Errorf("look: %w", err)
	}
	if now != none { // the answer was "done", and nothing was
		return unix.EPERM
	}
	return nil
}

// clone3 is not in the table: its right answer differs between runtimes.
func clone3() error {
	var args [11]uint64
	args[0] = unix.CLONE_NEWUSER
	if _, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), 1, 0); errno != 0 {
		return errno
	}
	return nil
}

func trySyscall(req probewire.Request) (probewire.Response, error) {
	if req.Path == "clone3" {
		return probewire.Response{}, clone3()
	}
	try := forbidden[req.Path]
	if try == nil {
		return probewire.Response{}, fmt.Errorf("unknown attempt %q", req.Path)
	}
	return probewire.Response{}, try()
}

func listSyscalls(probewire.Request) (probewire.Response, error) {
	return probewire.Response{Lines: slices.Sorted(maps.Keys(forbidden))}, nil
}
