package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// call32 makes a system call as a 32-bit program does.
func call32(nr uint32) int32

// modifyLDT reads the table of segments, which only programs of the 16-bit age change.
func modifyLDT(wire.Facts) (string, error) {
	var table [64]byte
	_, err := number(unix.SYS_MODIFY_LDT, 0, uintptr(unsafe.Pointer(&table)), unsafe.Sizeof(table))
	return "segments are ours to change", err
}

// int80 makes a call under the numbers of 32-bit programs, which a filter that reads numbers alone takes
// for others: 20 is getpid there and writev here.
func int80(wire.Facts) (string, error) {
	process, err := startCall32()
	if err != nil {
		return "", err
	}
	// The kernel may end the thread and leave the program waiting for it.
	late := time.AfterFunc(call32Timeout, func() { _ = process.Kill() })
	state, err := process.Wait()
	stopped := late.Stop()
	if err != nil {
		return "", broken("wait", err)
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !stopped:
		return "", refusal("its thread is ended")
	case !ok:
		return "", fmt.Errorf("unknown end of the child: %v", state)
	case status.Signaled():
		return "", refusal("killed by " + unix.SignalName(status.Signal()))
	case status.ExitStatus() != 0:
		return "", unix.Errno(status.ExitStatus())
	}
	return "a 32-bit call told the own pid", nil
}

// call32Timeout is far beyond what one call takes.
const call32Timeout = 3 * time.Second

func startCall32() (*os.Process, error) {
	process, err := os.StartProcess("/proc/self/exe", []string{"probe", "call32"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
	if err != nil {
		return nil, broken("start", err)
	}
	return process, nil
}

// ownPIDBy32 is the child of int80: its exit code is the error number.
func ownPIDBy32([]string) error {
	const getpid = 20
	r := call32(getpid)
	if r < 0 {
		os.Exit(int(-r))
	}
	if int(r) != unix.Getpid() {
		os.Exit(int(unix.ENOSYS))
	}
	return nil
}
