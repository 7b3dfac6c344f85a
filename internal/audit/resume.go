package audit

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	lockFile   = "lock"
	writerFile = "writer"
)

// ofSlot is the name of a slot's file: the first one has no number.
func ofSlot(name string, slot int) string {
	if slot <= 1 {
		return name
	}
	return fmt.Sprintf("%s.%d", name, slot)
}

// lockDir makes the folder and takes a slot of it for this process.
func lockDir(dir string, slot int) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the folder of the audit log cannot be made")
	}
	f, err := os.OpenFile(filepath.Join(dir, ofSlot(lockFile, slot)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be opened")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, sandbox.Wrap(sandbox.Conflict, err, "another server writes this audit log")
	}
	return f, nil
}

// resume finds the end of the log and opens it for appending.
func (l *Log) resume() error {
	var err error
	if l.writer, err = writerID(filepath.Join(l.o.Dir, ofSlot(writerFile, l.o.Slot))); err != nil {
		return err
	}
	l.dir = filepath.Join(l.o.Dir, l.writer)
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	segs, err := segment.List(l.dir)
	if err != nil {
		return err
	}
	for ; len(segs) > 0; segs = segs[:len(segs)-1] {
		last := segs[len(segs)-1]
		found, err := l.resumeIn(segs, last)
		if err != nil || found {
			return err
		}
		// It has no record at all: a crash came right after it was begun.
		if err := errors.Join(os.Remove(last.Path), ignoreMissing(os.Remove(segment.AttemptsPath(last.Path)))); err != nil {
			return err
		}
	}
	l.open = segment.Attempts{}
	l.f, err = os.OpenFile(filepath.Join(l.dir, segment.Name(1)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(lockedfile.SyncDir(l.dir), lockedfile.SyncDir(l.o.Dir))
}

// resumeIn goes on in a segment, unless it holds no record.
func (l *Log) resumeIn(segs []segment.Segment, seg segment.Segment) (found bool, err error) {
	if err := segment.CutTorn(seg.Path, l.log); err != nil {
		return false, err
	}
	if l.open, err = segment.OpenBefore(segs, l.log); err != nil {
		return false, err
	}
	var tail Record
	in, err := segment.Scan(seg.Path, func(r Record) {
		tail = r
		l.open.Add(r)
		l.resumed(r)
	})
	if err != nil || in.End == 0 {
		return false, err
	}
	if l.f, err = os.OpenFile(seg.Path, os.O_WRONLY, 0o600); err != nil {
		return false, err
	}
	info, err := l.f.Stat()
	if err == nil {
		// What the last process wrote without a commit may still be on its way to the disk.
		err = l.f.Sync()
	}
	if err != nil {
		_ = l.f.Close()
		return false, err
	}
	l.size, l.room, l.head = in.End, info.Size(), tail.Hash
	l.appended.Store(tail.Seq)
	l.synced.Store(tail.Seq)
	l.durably = Head{Writer: l.writer, Seq: tail.Seq, Hash: tail.Hash}
	return true, nil
}

// writerID reads the writer's name, or makes one.
func writerID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(text))
		if !record.IsWriter(id) {
			return "", fmt.Errorf("the file %q does not hold the name of a writer", writerFile)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	id := "w" + hex.EncodeToString(b[:])
	return id, segment.WriteFile(path, []byte(id+"\n"))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
