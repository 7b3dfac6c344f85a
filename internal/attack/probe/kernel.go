package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// kernelAttempts reach for parts of the kernel that agents have no use for, and for what steers the host.
var kernelAttempts = map[string]attempt{
	"add-key":         addKey,
	"session-keyring": sessionKeyring,
	"bpf-map":         bpfMap,
	"bpf-program":     bpfProgram,
	"perf-event":      perfEvent,
	"userfaultfd":     userfaultfd,
	"io-uring":        ioUring,
	"fanotify":        fanotify,
	"core-pattern":    writeBack("/proc/sys/kernel/core_pattern"),
	"sysctl":          writeBack("/proc/sys/vm/swappiness"),
	"sysrq":           sysrq,
	"read-keys":       readMasked("/proc/keys"),
	"read-timers":     readMasked("/proc/timer_list"),
	"read-kcore":      readMasked("/proc/kcore"),
	"kernel-log":      kernelLog,
	"settimeofday":    settimeofday,
	"clock-settime":   clockSettime,
	"adjtimex":        adjtimex,
	"reboot":          reboot,
	"swapon":          swapon,
	"load-module":     loadModule,
	"kexec":           kexec,
	"sethostname":     sethostname,
	"accounting":      accounting,
	"quotactl":        quotactl,
	"personality":     personality,
	"modify-ldt":      modifyLDT,
	"int80":           int80,
}

// number makes a system call whose result is a number.
func number(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// descriptor makes one whose result is a descriptor.
func descriptor(what string, nr uintptr, args ...uintptr) (string, error) {
	fd, err := number(nr, args...)
	if err != nil {
		return "", err
	}
	return what, unix.Close(int(fd))
}

// addKey puts a key where all processes of its uid, in any sandbox, would find it.
func addKey(wire.Facts) (string, error) {
	id, err := unix.AddKey("user", "skerry-attack", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		return "", err
	}
	_, err = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0)
	return fmt.Sprintf("key %d", id), err
}

// sessionKeyring looks into the keyring that was inherited, the runtime's perhaps.
func sessionKeyring(wire.Facts) (string, error) {
	text, err := unix.KeyctlString(unix.KEYCTL_DESCRIBE, unix.KEY_SPEC_SESSION_KEYRING)
	return "keyring " + text, err
}

func bpfMap(wire.Facts) (string, error) {
	attr := [32]uint32{1, 4, 8, 1} // a hash table with keys of 4 bytes, values of 8, one entry
	return descriptor("made a map", unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
}

func bpfProgram(wire.Facts) (string, error) {
	code := [2]uint64{0x00000000000000b7, 0x0000000000000095} // r0 = 0; exit
	license := [4]byte{'G', 'P', 'L'}
	attr := struct {
		kind, count   uint32
		code, license uint64
		rest          [12]uint64
	}{kind: unix.BPF_PROG_TYPE_SOCKET_FILTER, count: 2, code: uint64(uintptr(unsafe.Pointer(&code))), license: uint64(uintptr(unsafe.Pointer(&license)))}
	found, err := descriptor("loaded a program into the kernel", unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&code)
	runtime.KeepAlive(&license)
	return found, err
}

// perfEvent counts what all processes of a CPU do, not its own only.
func perfEvent(wire.Facts) (string, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return "", err
	}
	return "counts events of all processes", unix.Close(fd)
}

func userfaultfd(wire.Facts) (string, error) {
	const userModeOnly = 1
	return descriptor("handles page faults", unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly)
}

func ioUring(wire.Facts) (string, error) {
	var params [120]byte
	return descriptor("has a ring, whose calls no filter sees", unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)))
}

func fanotify(wire.Facts) (string, error) {
	const reportFID = 0x200
	return descriptor("watches files", unix.SYS_FANOTIFY_INIT, unix.FAN_CLOEXEC|reportFID, unix.O_RDONLY)
}

// writeBack writes a setting of the host: the value that it has, because this is a test.
func writeBack(path string) attempt {
	return func(wire.Facts) (string, error) {
		now, err := os.ReadFile(path)
		if err != nil {
			// It is not shown everywhere: then writing is refused, too.
			now = []byte("core")
		}
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return "", err
		}
		defer file.Close()
		if _, err := file.Write(now); err != nil {
			return "", err
		}
		return "wrote " + path, nil
	}
}

// sysrq asks the kernel for its help text: that is how harmless a letter can be.
func sysrq(wire.Facts) (string, error) {
	file, err := os.OpenFile("/proc/sysrq-trigger", os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = file.WriteString("h")
	return "wrote /proc/sysrq-trigger", err
}

func readMasked(path string) attempt {
	return func(wire.Facts) (string, error) {
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer file.Close()
		n, err := file.Read(make([]byte, 4096))
		if n == 0 {
			if err == nil || err.Error() == "EOF" {
				return "", refusal("empty")
			}
			return "", err
		}
		return fmt.Sprintf("read %d bytes of %s", n, path), nil
	}
}

// kernelLog reads what the host's kernel says.
func kernelLog(wire.Facts) (string, error) {
	const readAll = 3
	n, err := unix.Klogctl(readAll, make([]byte, 4096))
	return fmt.Sprintf("read %d bytes of the kernel's log", n), err
}

// settimeofday sets the clock to what it shows.
func settimeofday(wire.Facts) (string, error) {
	var now unix.Timeval
	if err := unix.Gettimeofday(&now); err != nil {
		return "", broken("gettimeofday", err)
	}
	return "set the clock", unix.Settimeofday(&now)
}

func clockSettime(wire.Facts) (string, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return "", broken("clock_gettime", err)
	}
	return "set the clock", unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}

// adjtimex sets the length of a tick to what it is.
func adjtimex(wire.Facts) (string, error) {
	now := unix.Timex{}
	if _, err := unix.Adjtimex(&now); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	const tick = 0x4000
	_, err := unix.Adjtimex(&unix.Timex{Modes: tick, Tick: now.Tick})
	return "set the clock's tick", err
}

// reboot asks for less than a reboot: that the keyboard may cause one. Within a pid namespace that request
// is invalid. A kernel that says so has let the caller reach the code that would restart the machine.
func reboot(wire.Facts) (string, error) {
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_ON)
	if errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return "the kernel takes orders to restart", err
}

// swapon offers a file that holds no swap: a kernel that finds that out has read it.
func swapon(wire.Facts) (string, error) {
	path := "/tmp/swap"
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		return "", broken("write", err)
	}
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return "", broken("name", err)
	}
	_, err = number(unix.SYS_SWAPON, uintptr(unsafe.Pointer(name)), 0)
	if errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return "the kernel looked for swap in a file of ours", err
}

// loadModule offers what is no module: a kernel that finds that out has read it.
func loadModule(wire.Facts) (string, error) {
	err := unix.InitModule([]byte("no module"), "")
	if errors.Is(err, unix.ENOEXEC) {
		err = nil
	}
	return "the kernel read a module of ours", err
}

// kexec takes away the kernel that would be started next: there is none.
func kexec(wire.Facts) (string, error) {
	_, err := number(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)
	return "the next kernel is ours to choose", err
}

func sethostname(wire.Facts) (string, error) {
	return "has another name", unix.Sethostname([]byte("other"))
}

// accounting turns the log of all processes off, which is off as a rule.
func accounting(wire.Facts) (string, error) {
	_, err := number(unix.SYS_ACCT, 0)
	return "process accounting is off", err
}

// quotactl asks for all users' quota to be written out.
func quotactl(wire.Facts) (string, error) {
	const syncAll = 0x800001 << 8
	_, err := number(unix.SYS_QUOTACTL, syncAll, 0, 0, 0)
	return "quotas are ours to command", err
}

// personality has programs loaded at addresses that are known beforehand.
func personality(wire.Facts) (string, error) {
	const noRandomize = 0x40000
	_, err := number(unix.SYS_PERSONALITY, noRandomize)
	return "addresses are no longer random", err
}
