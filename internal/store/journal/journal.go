package journal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/groupcommit"
)

// applyTimeout bounds one change in memory.
const applyTimeout = 2 * time.Second

// CompactAt is the size from which a journal that is mostly history is written anew.
const CompactAt = 16 << 20

// Entry is one line of the journal: the last value of a durable record, or that it is gone.
type Entry struct {
	Key   string          `json:"k"`
	Field string          `json:"f"`
	Index string          `json:"i,omitempty"`
	Value json.RawMessage `json:"v,omitempty"` // none = removed
}

func (e Entry) id() string { return e.Key + "\x00" + e.Field }

// living is an Entry that is not history, with the length of its line.
type living struct {
	Entry
	bytes int64
}

// Journal is the file behind the embedded state: one JSON object a line, appended, fsynced before a
// Change is acknowledged. A lock file beside it keeps a second process out; it is a file of its own
// because compaction replaces the journal.
type Journal struct {
	path string
	log  *slog.Logger
	lock *lockedfile.FileLock
	sync *groupcommit.Committer

	mu     sync.Mutex // held over apply and append, so that the file has the order of the changes
	f      *os.File
	size   int64
	live   map[string]living
	alive  int64 // bytes of live's lines
	broken error // set when the file is in a state that cannot be appended to
}

// Open reads the journal, writes it anew without its history, and returns its records.
func Open(path string, log *slog.Logger) (*Journal, []Entry, error) {
	lock, err := lockedfile.TryLock(path + ".lock")
	if errors.Is(err, lockedfile.ErrBusy) {
		return nil, nil, sandbox.Wrap(sandbox.Conflict, err, "another server uses this data folder")
	}
	if err != nil {
		return nil, nil, sandbox.Wrap(sandbox.Unavailable, err, "the state journal cannot be opened")
	}
	j := &Journal{path: path, log: log, lock: lock, live: map[string]living{}}
	if err := j.read(); err != nil {
		_ = lock.Unlock()
		return nil, nil, sandbox.Wrap(sandbox.Unavailable, err, "the state journal cannot be read")
	}
	if err := j.compact(); err != nil {
		_ = lock.Unlock()
		return nil, nil, sandbox.Wrap(sandbox.Unavailable, err, "the state journal cannot be written")
	}
	j.sync = groupcommit.New(j.fsync)
	entries := make([]Entry, 0, len(j.live))
	for _, l := range j.live {
		entries = append(entries, l.Entry)
	}
	return j, entries, nil
}

// read fills live. A last line without its end was never acknowledged and is dropped. Any other line that
// cannot be read is damage. A state with holes, where revoked keys would be valid again, is worse than none.
func (j *Journal) read() error {
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				j.log.Warn("dropped the torn last line of the state journal", "line", n, "bytes", len(line))
			}
			return nil
		}
		if err != nil {
			return err
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil || e.Key == "" {
			// Blocks that a power cut left unwritten read as zeros up to the end of the file.
			if rest, err := io.ReadAll(r); err == nil && len(bytes.Trim(append(line, rest...), "\x00\n")) == 0 {
				j.log.Warn("dropped an unwritten end of the state journal", "line", n)
				return nil
			}
			return fmt.Errorf("line %d is damaged: restore the file, or move it away to begin without keys and labels", n)
		}
		j.keep(e, int64(len(line)))
	}
}

// keep updates live.
func (j *Journal) keep(e Entry, bytes int64) {
	id := e.id()
	j.alive -= j.live[id].bytes
	if e.Value == nil {
		delete(j.live, id)
		return
	}
	j.live[id] = living{Entry: e, bytes: bytes}
	j.alive += bytes
}

// Has reports whether the journal has a record with this value.
func (j *Journal) Has(e Entry) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Equal(j.live[e.id()].Value, e.Value)
}

// Drop forgets a record: it is gone from the file when that is next made smaller.
func (j *Journal) Drop(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keep(Entry{Key: e.Key, Field: e.Field}, 0)
}

// compact replaces the file by one with live only, and leaves it open for appending.
func (j *Journal) compact() error {
	var buf bytes.Buffer
	for _, id := range slices.Sorted(maps.Keys(j.live)) {
		line, err := json.Marshal(j.live[id].Entry)
		if err != nil {
			return err
		}
		buf.Write(append(line, '\n'))
	}
	tmp := j.path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(buf.Bytes())
	if err = errors.Join(err, f.Sync()); err == nil {
		err = os.Rename(tmp, j.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	old := j.f
	j.f, j.size = f, int64(buf.Len())
	if old != nil {
		_ = old.Close()
	}
	return lockedfile.SyncDir(filepath.Dir(j.path))
}

// Change runs apply, appends what it did, and waits until that is on disk. A caller that goes away
// ends the wait, but does not part what is done in memory from what is written.
func (j *Journal) Change(ctx context.Context, apply func(context.Context) (Entry, error)) error {
	applying, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	if err := j.applyAndAppend(applying, apply); err != nil {
		return err
	}
	return j.wait(ctx)
}

// Append journals changes that are applied already.
func (j *Journal) Append(ctx context.Context, entries []Entry) error {
	for _, e := range entries {
		if err := j.applyAndAppend(ctx, func(context.Context) (Entry, error) { return e, nil }); err != nil {
			return err
		}
	}
	return j.wait(ctx)
}

func (j *Journal) wait(ctx context.Context) error {
	switch err := j.sync.Wait(ctx); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return sandbox.Wrap(sandbox.Unavailable, err, "the state journal takes too long to write")
	default:
		return sandbox.Wrap(sandbox.Unavailable, err, "the state journal cannot be written")
	}
}

func (j *Journal) applyAndAppend(ctx context.Context, apply func(context.Context) (Entry, error)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return sandbox.Wrap(sandbox.Unavailable, j.broken, "the state journal cannot be written")
	}
	e, err := apply(ctx)
	if err != nil {
		return err
	}
	line, err := json.Marshal(e)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the record cannot be written")
	}
	line = append(line, '\n')
	if _, err := j.f.Write(line); err != nil {
		// A full disk may have taken a part of the line. Without that part the journal goes on.
		if e := j.f.Truncate(j.size); e != nil {
			j.broken = e
		}
		return sandbox.Wrap(sandbox.Unavailable, err, "the state journal cannot be written")
	}
	j.size += int64(len(line))
	j.keep(e, int64(len(line)))
	if j.size > CompactAt && j.size > 4*j.alive {
		if err := j.compact(); err != nil {
			j.log.Warn("the state journal cannot be made smaller", "error", err)
		}
	}
	return nil
}

// Healthy reports why the journal cannot be written any more.
func (j *Journal) Healthy() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return sandbox.Wrap(sandbox.Unavailable, j.broken, "the state journal cannot be written")
	}
	return nil
}

func (j *Journal) fsync() error {
	j.mu.Lock()
	f := j.f
	j.mu.Unlock()
	err := f.Sync()
	if err == nil || errors.Is(err, os.ErrClosed) {
		// Closed: compaction replaced the file meanwhile, and synced all that was in it.
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = err
	return err
}

// Close writes what is left, and closes the file.
func (j *Journal) Close() error {
	err := j.sync.Close()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = os.ErrClosed
	return errors.Join(err, j.f.Close(), j.lock.Unlock())
}
