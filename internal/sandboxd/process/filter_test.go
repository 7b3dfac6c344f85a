package process

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each call is made for real from a command; signal 0 and impossible arguments make those harmless
// that the filter would let through. EPERM (1) is the filter's answer; any other means it let it by.
func TestFilter(t *testing.T) {
	b := newBed(t)
	r := b.run(request("python3", "-c", fmt.Sprintf(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(nr, *[ctypes.c_long(a) for a in args])
    print(name, ctypes.get_errno())
me, sup = os.getpid(), os.getppid()
call('ptrace', %d, 99, 0, 0, 0)
call('process_vm_readv', %d, me, 0, 0, 0, 0, 1)
call('process_vm_writev', %d, me, 0, 0, 0, 0, 1)
call('pidfd_open', %d, me, 0)
call('pidfd_getfd', %d, -1, 0, 0)
call('pidfd_send_signal', %d, -1, 0, 0, 0)
call('rt_sigqueueinfo', %d, me, 0, 0)
call('rt_tgsigqueueinfo', %d, me, me, 0, 0)
for name, pid in (('1', 1), ('all', -1), ('supervisor', sup), ('group of supervisor', -sup), ('1 in 64 bits', (5 << 32) + 1)):
    call('kill ' + name, %d, pid, 0)
call('tkill 1', %d, 1, 0)
call('tgkill 1', %d, 1, 1, 0)
call('fcntl F_SETSIG', %d, 0, 10, 0)
call('prlimit64 1', %d, 1, 7, 0, 0)
call('sched_setaffinity 1', %d, 1, 0, 0)
call('sched_setscheduler 1', %d, 1, -1, 0)
call('sched_setparam 1', %d, 1, 0)
call('sched_setattr 1', %d, 1, 0, 0)
call('setpriority 1', %d, 0, 1, 0)
call('setpriority user', %d, 2, 0, 19)
call('ioprio_set 1', %d, 1, 1, -1)
call('ioprio_set user', %d, 3, 0, -1)
for name, cmd in (('FSSETXATTR', 0x401c5820), ('SETFLAGS', 0x40086602), ('32-bit SETFLAGS', 0x40046602), ('snapshot', 0x50009401), ('snapshot 2', 0x50009417), ('subvolume', 0x5000940e), ('subvolume 2 in 64 bits', (5 << 32) + 0x50009418)):
    call('ioctl ' + name, %d, 0, cmd, 0)
call('file_setattr', 469, -1, 0, 0, 0, 0)
print('--')
call('kill self', %d, me, 0)
call('kill group', %d, 0, 0)
call('setpriority self', %d, 0, 0, 19)
call('prlimit64 self', %d, 0, 7, 0, 0)
call('fcntl F_GETFD', %d, 0, 1, 0)
`, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD,
		unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL,
		unix.SYS_FCNTL, unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM,
		unix.SYS_SCHED_SETATTR, unix.SYS_SETPRIORITY, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_IOPRIO_SET, unix.SYS_IOCTL,
		unix.SYS_KILL, unix.SYS_KILL, unix.SYS_SETPRIORITY, unix.SYS_PRLIMIT64, unix.SYS_FCNTL)))
	b.wantExit(r, 0)
	denied, allowed, ok := strings.Cut(r.stdout, "--\n")
	if !ok || strings.Count(denied, "\n") != 33 {
		t.Fatalf("%s%s", r.stdout, r.stderr)
	}
	for line := range strings.Lines(denied) {
		if !strings.HasSuffix(line, " 1\n") {
			t.Errorf("let through: %s", line)
		}
	}
	for line := range strings.Lines(allowed) {
		if !strings.HasSuffix(line, " 0\n") {
			t.Errorf("denied: %s", line)
		}
	}
}

func TestFilterIsInForce(t *testing.T) {
	b := newBed(t)
	r := b.run(shell("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status"))
	if r.stdout != "NoNewPrivs:\t1\nSeccomp:\t2\n" {
		t.Errorf("%q", r.stdout)
	}
}

// TestThreadsStart: C libraries fall back from clone3, which is denied, to clone.
func TestThreadsStart(t *testing.T) {
	b := newBed(t)
	r := b.run(request("python3", "-c", "import threading; t = threading.Thread(target=print, args=('ran',)); t.start(); t.join()"))
	if r.stdout != "ran\n" {
		t.Errorf("a thread: %q, %s", r.stdout, r.stderr)
	}
}
