package journal

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFullDiskUnnoticed: the disk is full, and the background does not know it yet. An attempt is refused, a result
// is not: else a burst of attempts would take the room of the results of what was begun.
func TestFullDiskUnnoticed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	disk := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "none", disk).CombinedOutput(); err != nil {
		t.Skipf("mount: %v %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	j, err := Open(Options{
		Dir: filepath.Join(disk, "audit"), Ahead: 256 << 10, Observe: func(record.Record) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		j.Stop()
		j.Seal()
		_ = j.Close() // the disk is full
	}()
	for deadline := time.Now().Add(20 * time.Second); j.State().Room < 128<<10; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("after 20 s there is no room")
		}
	}
	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(ballast, zeroes{}); !isFull(err) {
		t.Fatal(err)
	}
	if err := ballast.Close(); err != nil {
		t.Fatal(err)
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	defer func(size int64) { j.tail.size = size }(j.tail.size)
	j.failure.full, j.tail.size = nil, j.tail.room-j.o.Ahead/2+1 // as after a burst of records
	if err := j.admit(record.Record{Phase: record.PhaseResult, Parent: "begun"}); err != nil {
		t.Errorf("a result: %v", err)
	}
	if err := j.admit(record.Record{Phase: record.PhaseAttempt}); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("an attempt: %v, want that the disk is full", err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }
