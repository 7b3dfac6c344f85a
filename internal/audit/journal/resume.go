package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
func lockDir(dir string, slot int) (*lockedfile.FileLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the folder of the audit log cannot be made")
	}
	l, err := lockedfile.TryLock(filepath.Join(dir, ofSlot(lockFile, slot)))
	if errors.Is(err, lockedfile.ErrBusy) {
		return nil, sandbox.Wrap(sandbox.Conflict, err, "another server writes this audit log")
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be opened")
	}
	return l, nil
}

// end is where a writer's segments stopped.
type end struct {
	origin
	tail tail
	last record.Head // zero: there is no record
	open segment.Attempts
}

// resume finds the end of the log and opens it for appending.
func resume(o Options) (e end, err error) {
	if e.writer, err = writerID(filepath.Join(o.Dir, ofSlot(writerFile, o.Slot))); err != nil {
		return e, err
	}
	e.dir = filepath.Join(o.Dir, e.writer)
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return e, err
	}
	segs, err := segment.List(e.dir)
	if err != nil {
		return e, err
	}
	for ; len(segs) > 0; segs = segs[:len(segs)-1] {
		last := segs[len(segs)-1]
		found, err := e.resumeIn(o, segs, last)
		if err != nil || found {
			return e, err
		}
		// It has no record at all: a crash came right after it was begun.
		if err := errors.Join(os.Remove(last.Path), ignoreMissing(os.Remove(segment.AttemptsPath(last.Path)))); err != nil {
			return e, err
		}
	}
	e.open = segment.Attempts{}
	e.tail.f, err = os.OpenFile(filepath.Join(e.dir, segment.Name(1)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return e, err
	}
	return e, errors.Join(lockedfile.SyncDir(e.dir), lockedfile.SyncDir(o.Dir))
}

// resumeIn goes on in a segment, unless it holds no record.
func (e *end) resumeIn(o Options, segs []segment.Segment, seg segment.Segment) (found bool, err error) {
	if err := segment.CutTorn(seg.Path, o.Log); err != nil {
		return false, err
	}
	if e.open, err = segment.OpenBefore(segs, o.Log); err != nil {
		return false, err
	}
	var last record.Record
	in, err := segment.Scan(seg.Path, func(r record.Record) {
		last = r
		e.open.Add(r)
		o.Observe(r)
	})
	if err != nil || in.End == 0 {
		return false, err
	}
	f, err := os.OpenFile(seg.Path, os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	info, err := f.Stat()
	if err == nil {
		// What the last process wrote without a commit may still be on its way to the disk.
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		return false, err
	}
	e.tail = tail{f: f, size: in.End, room: info.Size()}
	e.last = record.Head{Writer: e.writer, Seq: last.Seq, Hash: last.Hash}
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
	return id, lockedfile.Replace(path, []byte(id+"\n"))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
