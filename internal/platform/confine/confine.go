// Package confine sets the limits of a sandbox that its engine does not set: a process puts them on itself and then
// becomes the program that they are for. Kubernetes knows no resource limits of processes, no limit of a pod's
// processes, and takes system call filters only from files of its nodes; and gVisor takes none at all there.
//
// It fails closed: a process that is root, or could become it, does not go on.
package confine

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is the first argument of a program that is to call Main.
const Command = "confine"

// ExitRefused is the status of a process that could not be confined.
const ExitRefused = 126

// Order says what to put on the process, and what it is to become.
type Order struct {
	// Rlimits are the hard and soft values of resource limits, by their number.
	Rlimits map[int]uint64 `json:"rlimits"`
	// Filter is a system call filter as driver/hardening makes it, gzipped.
	Filter []byte `json:"filter"`
	// Env is all of the environment, "NAME=value".
	Env []string `json:"env"`
}

// maxFilter bounds a filter: the kernel takes 4096 instructions of 8 bytes.
const maxFilter = 4096 * 8

// Argument returns the order in words for a command line: Command, it, and the program with its arguments.
func Argument(o Order, filter []byte) (string, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(filter); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	o.Filter = packed.Bytes()
	text, err := json.Marshal(o)
	return string(text), err
}

// IfAsked becomes another program when the command line says so; it returns when it does not.
func IfAsked() {
	if len(os.Args) < 2 || os.Args[1] != Command {
		return
	}
	if len(os.Args) < 4 {
		refuse(errors.New("want an order and a program"))
	}
	refuse(become(os.Args[2], os.Args[3:]))
}

// refuse ends the process with a line that says why a sandbox does not start.
func refuse(err error) {
	fmt.Fprintln(os.Stderr, "confine:", err)
	os.Exit(ExitRefused)
}

// become returns only when it fails.
func become(text string, argv []string) error {
	var o Order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("the order cannot be read: %w", err)
	}
	filter, err := unpack(o.Filter)
	if err != nil {
		return fmt.Errorf("the filter cannot be read: %w", err)
	}
	if err := checkPowerless(); err != nil {
		return err
	}
	// Filters are a thread's own; exec takes those of the thread that calls it.
	runtime.LockOSThread()
	for number, value := range o.Rlimits {
		if err := limit(number, value); err != nil {
			return fmt.Errorf("resource limit %d: %w", number, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := load(filter); err != nil {
		return fmt.Errorf("system call filter: %w", err)
	}
	return fmt.Errorf("%s: %w", argv[0], syscall.Exec(argv[0], argv, o.Env))
}

// limit sets one resource limit. The engine may have set a lower one, which only a privileged process raises.
func limit(number int, value uint64) error {
	var have unix.Rlimit
	if err := unix.Getrlimit(number, &have); err != nil {
		return err
	}
	value = min(value, have.Max)
	return unix.Setrlimit(number, &unix.Rlimit{Cur: value, Max: value})
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	filter, err := io.ReadAll(io.LimitReader(r, maxFilter+1))
	if err != nil {
		return nil, err
	}
	if len(filter) == 0 || len(filter) > maxFilter || len(filter)%8 != 0 {
		return nil, fmt.Errorf("%d bytes are no filter", len(filter))
	}
	return filter, nil
}

// checkPowerless reports a process that has what no sandbox has: that its engine took it away is what all else
// stands on.
func checkPowerless() error {
	uid, euid, suid := unix.Getresuid()
	if uid == 0 || euid == 0 || suid == 0 {
		return errors.New("a sandbox never runs as root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for _, d := range data {
		if d.Effective|d.Permitted|d.Inheritable != 0 {
			return errors.New("a sandbox has no capability")
		}
	}
	return nil
}

// load puts a filter on this thread, for good.
func load(filter []byte) error {
	program := unix.SockFprog{
		Len:    uint16(len(filter) / 8), //nolint:gosec // at most 4096
		Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0])),
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
