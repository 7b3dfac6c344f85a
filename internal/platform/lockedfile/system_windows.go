package lockedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// mode is how a file is locked.
type mode uint32

const (
	alone  mode = windows.LOCKFILE_EXCLUSIVE_LOCK
	shared mode = 0
)

// Windows opens what a link leads to, and has no FIFO that one could meet by a path.
const noFollow, noWait = 0, 0

// try returns ErrBusy when another process has the lock.
func try(f *os.File, how mode) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), uint32(how)|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return ErrBusy
	default:
		return fmt.Errorf("lock: %w", err)
	}
}

func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

// likeOwner does nothing: a file belongs to who makes it.
func likeOwner(*os.File, fs.FileInfo) error { return nil }

// withChange leaves a stamp as it is: Windows tells when a file was written, and no inode.
func withChange(s Stamp, _ fs.FileInfo) Stamp { return s }

// SyncDir does nothing: Windows syncs no folders.
func SyncDir(string) error { return nil }
