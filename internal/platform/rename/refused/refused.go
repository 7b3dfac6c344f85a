// Package refused makes the kernel refuse the flags of renameat2, as network file systems do, for tests of what goes on then.
package refused

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags runs do on a thread of its own, on which renameat2 with flags fails with EINVAL whatever the file system. What do starts in
// other goroutines is not concerned.
func Flags(t testing.TB, do func()) {
	t.Helper()
	installed := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and the filter with it
		err := install()
		installed <- err
		if err == nil {
			do()
		}
	}()
	<-done
	if err := <-installed; err != nil {
		t.Skipf("no filter of system calls here: %v", err)
	}
}

// Offsets in struct seccomp_data.
const (
	offsetNumber = 0
	offsetFlags  = 16 + 4*8 // the low half of the fifth argument: both architectures that we build for have it first
)

func install() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 3, K: unix.SYS_RENAMEAT2},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetFlags},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, Jf: 0, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(filter)
	if err != nil {
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, "/nothing", unix.AT_FDCWD, "/nowhere", unix.RENAME_NOREPLACE); !errors.Is(err, unix.EINVAL) {
		return errors.New("the filter lets it pass")
	}
	return nil
}
