package lockedfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestUnlock: a lock ends with Unlock also while a child process has the open file, as one that is just started has.
func TestUnlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	childs, err := syscall.Dup(int(l.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(childs) //nolint:errcheck // the test ends
	if _, err := TryLock(path); !errors.Is(err, ErrBusy) {
		t.Errorf("it is locked twice: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if l, err = TryLock(path); err != nil {
		t.Fatalf("it is still locked: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestRemovedLock: the lock of a file that its holder removed is not the lock of the file that has its name now.
func TestRemovedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	waited := make(chan *FileLock, 1)
	go func() {
		next, err := WaitLock(ctx, path)
		if err != nil {
			t.Error(err)
		}
		waited <- next
	}()
	time.Sleep(5 * lockPause) // it has opened the file
	if err := errors.Join(os.Remove(path), l.Unlock()); err != nil {
		t.Fatal(err)
	}
	next := <-waited
	if next == nil {
		t.FailNow()
	}
	if named, err := next.isNamed(path); err != nil || !named {
		t.Errorf("it locked a file without a name: %v", err)
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}
