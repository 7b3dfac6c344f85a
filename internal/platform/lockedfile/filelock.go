package lockedfile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// lockPause is the time between two attempts to take a lock.
const lockPause = 3 * time.Millisecond

// ErrBusy says that another process has the lock.
var ErrBusy = errors.New("another process is changing the file")

// FileLock is the lock of one file or folder (flock(2)). It ends with Unlock, and with the process.
type FileLock struct{ file *os.File }

// Unlock releases the lock. Closing the file is not enough: a child process that this one is just starting has
// the same open file until it executes its program, and with it the lock.
func (l *FileLock) Unlock() error {
	return errors.Join(unlock(l.file), l.file.Close())
}

// TryLock locks a file for this process alone. It makes the file (0600) when there is none, and follows no link.
// ErrBusy says that another process has the lock.
func TryLock(path string) (*FileLock, error) { return tryFile(path, alone) }

// TryShare is TryLock for a lock that several processes have at once, and none that calls TryLock.
func TryShare(path string) (*FileLock, error) { return tryFile(path, shared) }

// WaitLock is TryLock that waits for the other process, until ctx ends (ErrBusy).
func WaitLock(ctx context.Context, path string) (*FileLock, error) {
	return wait(ctx, func() (*FileLock, error) { return TryLock(path) })
}

// Lock waits for the lock of a file or folder that exists. ErrBusy when ctx ends before.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	l, err := wait(ctx, func() (*FileLock, error) { return &FileLock{f}, try(f, alone) })
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = l.Unlock() }, nil
}

func tryFile(path string, how mode) (*FileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err := try(f, how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &FileLock{f}
	named, err := l.isNamed(path)
	if err == nil && !named {
		err = ErrBusy // the process that had it removed the file, and the next one makes another
	}
	if err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	return l, nil
}

// isNamed reports whether path is still the locked file.
func (l *FileLock) isNamed(path string) (bool, error) {
	locked, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(locked, named), err
}

// wait attempts until an attempt ends otherwise than by ErrBusy, or ctx ends.
func wait(ctx context.Context, attempt func() (*FileLock, error)) (*FileLock, error) {
	for {
		l, err := attempt()
		if !errors.Is(err, ErrBusy) {
			return l, err
		}
		pause := time.NewTimer(lockPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, ErrBusy
		case <-pause.C:
		}
	}
}
