package store

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// pair makes two connected ends.
func pair() (ends [2]net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return ends, fmt.Errorf("socketpair: %w", err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "embedded-redis")
		c, e := net.FileConn(f) // a duplicate
		_ = f.Close()
		if ends[i] = c; e != nil {
			err = e
		}
	}
	return ends, err
}
