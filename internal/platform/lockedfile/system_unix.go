//go:build unix

package lockedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mode is how a file is locked.
type mode int

const (
	alone  mode = unix.LOCK_EX
	shared mode = unix.LOCK_SH
)

const (
	noFollow = unix.O_NOFOLLOW | unix.O_CLOEXEC
	// noWait: a FIFO in the place of a file must not stop the server.
	noWait = unix.O_NONBLOCK | unix.O_CLOEXEC
)

// try returns ErrBusy when another process has the lock.
func try(f *os.File, how mode) error {
	err := unix.Flock(int(f.Fd()), int(how)|unix.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINTR):
		return ErrBusy
	default:
		return fmt.Errorf("lock: %w", err)
	}
}

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// likeOwner makes a file belong to the user and group of another one, if this process may do so.
func likeOwner(f *os.File, other fs.FileInfo) error {
	if sys, ok := other.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		return f.Chown(int(sys.Uid), int(sys.Gid))
	}
	return nil
}

// withChange adds to a stamp what a program cannot set: the inode, and when it changed.
func withChange(s Stamp, info fs.FileInfo) Stamp {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode, s.changed = sys.Ino, changeTime(sys)
	}
	return s
}

// SyncDir makes the names in a folder durable.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // it was synced
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}
