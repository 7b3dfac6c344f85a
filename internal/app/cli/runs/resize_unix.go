//go:build !windows

package runs

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifyResized tells when the user's terminal has another size.
func notifyResized(to chan<- os.Signal) { signal.Notify(to, syscall.SIGWINCH) }

// readable waits a moment for what can be read.
func readable(f *os.File) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	n, err := unix.Poll(fds, pollMillis)
	if err == unix.EINTR { //nolint:errorlint // as the kernel has it
		return false, nil
	}
	return n > 0, err
}
