package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/groupcommit"
)

// DefaultSegmentBytes is the size at which a new segment is begun.
const DefaultSegmentBytes = 64 << 20

// Options of Open. Zero values of the numbers are the defaults. Full and FailSync may be nil.
type Options struct {
	// Dir is the folder of the log, made when missing. Each writer has a folder in it.
	Dir string
	// Slot is which of the writers in Dir it is: processes that write side by side have one each. 0 is 1.
	Slot int
	// SegmentBytes is the size at which a new segment is begun; Ahead is how much room is made ahead in one.
	SegmentBytes int64
	Ahead        int64
	// FailOpen: when a record cannot be written, Append returns no error, and the gap is recorded later.
	FailOpen bool
	// Full gets a token when a segment is full.
	Full chan struct{}
	// Observe sees each record of the last segment in Open, and each record that is written. It must not call the Journal.
	Observe func(record.Record)
	Log     *slog.Logger

	FailSync func() error // of tests: asked before each sync
}

// origin is whose records they are, and what Open found of them.
type origin struct {
	writer string
	dir    string
	before []record.Record
}

// Writer names the writer, over restarts.
func (o *origin) Writer() string { return o.writer }

// Dir is the writer's folder.
func (o *origin) Dir() string { return o.dir }

// OpenAttempts are the attempts without a result that Open found, oldest first.
func (o *origin) OpenAttempts() []record.Record { return o.before }

// progress is how far a journal is. Others read it while records are written.
type progress struct {
	appended atomic.Uint64 // Seq of the last record in the file
	synced   atomic.Uint64 // Seq of the last record that is durable
	cuts     atomic.Uint64 // how often a part of a record was taken back
}

// Appended is the Seq of the last record in the file.
func (p *progress) Appended() uint64 { return p.appended.Load() }

// Synced is the Seq of the last record that is durable.
func (p *progress) Synced() uint64 { return p.synced.Load() }

// Cuts counts how often a part of a record was taken back: a reader then reads again what it has of the file.
func (p *progress) Cuts() *atomic.Uint64 { return &p.cuts }

// Journal writes the records of one writer. Make one with Open. It is safe for concurrent use.
type Journal struct {
	o      Options
	lock   *lockedfile.FileLock
	hungry chan struct{} // a token: room is wanted
	stop   chan struct{} // closed by Stop
	owned  sync.WaitGroup
	origin
	progress

	mu       sync.Mutex // held from the choice of a Seq until it is written
	commit   *groupcommit.Committer
	tail     tail
	head     string      // Hash of the last record
	unsynced []byte      // the lines that are not known to be durable
	durably  record.Head // the last record that is durable
	open     segment.Attempts
	retired  []retired // full segments, synced; the committer may still hold one
	failure  failure
	gaps     gaps
	stopped  bool
	closed   bool
}

// retired is a full segment.
type retired struct {
	f    *os.File
	size int64
}

// close leaves a full segment without the zeros at its end, which a crash may leave: they are no part of it.
func (r retired) close() error { return errors.Join(r.f.Truncate(r.size), r.f.Close()) }

// Open reads the end of the writer's segments and goes on where they stopped. Bytes behind the last intact record
// are what a crash left of a record that no caller was told is written: they are moved to a file beside
// and reported. Conflict: another process has the slot.
func Open(o Options) (*Journal, error) {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.Ahead <= 0 {
		o.Ahead = min(DefaultAhead, o.SegmentBytes)
	}
	lock, err := lockDir(o.Dir, o.Slot)
	if err != nil {
		return nil, err
	}
	end, err := resume(o)
	if err != nil {
		_ = lock.Unlock()
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be opened")
	}
	j := &Journal{
		o: o, lock: lock, hungry: make(chan struct{}, 1), stop: make(chan struct{}), origin: end.origin,
		tail: end.tail, head: end.last.Hash, open: end.open, durably: end.last,
	}
	j.before = j.open.List()
	j.appended.Store(end.last.Seq)
	j.synced.Store(end.last.Seq)
	j.commit = groupcommit.New(j.sync)
	j.owned.Go(j.keep)
	return j, nil
}

// Durably returns the head of the last durable record.
func (j *Journal) Durably() record.Head {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durably
}

// Writable reports whether records can be appended now, as far as is known.
func (j *Journal) Writable() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure.broken == nil && !j.closed
}

// Append writes a record and returns it with ID, Time, Writer, Seq, Prev and Hash. On return it is
// in the operating system: it survives the end of this process, and a power cut only after Commit.
// Texts are cut to their limits. An error is Unavailable, and nothing is written. With
// Options.FailOpen there is none: a record that could not be written comes back without Seq, and is counted.
func (j *Journal) Append(r record.Record) (record.Record, error) {
	r = record.Clean(r)
	id, err := uuid.NewV7()
	if err != nil {
		return record.Record{}, unwritable(err)
	}
	r.ID = id.String()
	written, err := j.AppendOwn(r)
	switch {
	case err == nil:
		return written, nil
	case j.o.FailOpen && !errors.Is(err, os.ErrClosed):
		return j.miss(r, err), nil
	case isFull(err) || errors.Is(err, errFull):
		if r.Phase == record.PhaseAttempt {
			j.refused(r)
		}
		return record.Record{}, errFull
	}
	return record.Record{}, unwritable(err)
}

// AppendOwn writes a record of the log about itself (record.OfLog). It returns what is wrong also with FailOpen.
func (j *Journal) AppendOwn(r record.Record) (record.Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return r, os.ErrClosed
	}
	if j.failure.broken != nil {
		return r, j.failure.broken
	}
	if err := j.admit(r); err != nil {
		return r, err
	}
	if err := j.writeGap(); err != nil {
		return r, err
	}
	return j.write(r)
}

// write appends a record; mu is held.
func (j *Journal) write(r record.Record) (record.Record, error) {
	r.Time = time.Now().UTC()
	r.Writer, r.Seq, r.Prev = j.writer, j.appended.Load()+1, j.head
	line, err := record.Encode(&r)
	if err != nil {
		return r, err
	}
	if j.tail.size > 0 && j.tail.size+int64(len(line)) > j.o.SegmentBytes {
		if err := j.rotate(r.Seq); err != nil {
			return r, err
		}
	}
	if n, err := j.tail.f.WriteAt(line, j.tail.size); err != nil {
		if e := j.tail.takeBack(int64(n)); e != nil {
			j.failure.broken = errors.Join(err, e)
		}
		j.cuts.Add(1) // after it: who sees the new count reads the file as it is now
		return r, err
	}
	j.tail.size += int64(len(line))
	j.head = r.Hash
	j.unsynced = append(j.unsynced, line...)
	j.open.Add(r)
	j.appended.Store(r.Seq)
	if j.tail.left() < j.o.Ahead/2 || len(j.unsynced) > maxUnsynced {
		token(j.hungry)
	}
	j.o.Observe(r)
	return r, nil
}

// rotate begins a segment. The full one is durable before: else a power cut could take the end of
// it and leave the beginning of the next. When there is no room for a new one, the old one goes on, in the room that
// was made ahead in it.
func (j *Journal) rotate(first uint64) error {
	if j.tail.left() > 0 && time.Since(j.tail.rotated) < mendEvery {
		return nil
	}
	if err := j.o.fdatasync(j.tail.f); err != nil {
		j.failure.broken = err
		return err
	}
	j.unsynced = nil
	j.advance(first-1, j.head)
	path := filepath.Join(j.dir, segment.Name(first))
	if err := j.open.Save(path); err != nil {
		j.o.Log.Warn("the open attempts cannot be noted; the next start takes longer", "error", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	n := 0
	if err == nil {
		if n, err = f.WriteAt(noBytes[:min(j.o.Ahead/2, roomPiece)], 0); err == nil {
			err = lockedfile.SyncDir(j.dir)
		}
	}
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.Close(), os.Remove(path))
		}
		if j.tail.left() > 0 {
			j.tail.rotated = time.Now()
			return nil
		}
		return err
	}
	j.retired = append(j.retired, retired{j.tail.f, j.tail.size})
	j.tail = tail{f: f, room: int64(n), filled: f, rotated: j.tail.rotated}
	if j.o.Full != nil {
		token(j.o.Full)
	}
	return nil
}

// advance says that all up to the record seq is durable, which has this hash. mu is held.
func (j *Journal) advance(seq uint64, hash string) {
	if seq > j.synced.Load() {
		j.durably = record.Head{Writer: j.writer, Seq: seq, Hash: hash}
		j.synced.Store(seq)
	}
}

// Commit waits until a record of Append is durable, or ctx ends. One fsync serves all who wait. With
// Options.FailOpen a record that cannot be made durable is counted as missing, and there is no error.
func (j *Journal) Commit(ctx context.Context, r record.Record) error {
	if j.o.FailOpen && r.ID != "" && r.Seq == 0 && r.Writer == j.writer {
		return nil // counted by Append
	}
	if r.Writer != j.writer || r.Seq == 0 || r.Seq > j.appended.Load() {
		return sandbox.Errorf(sandbox.Internal, "this record is not of this log")
	}
	err := j.Durable(ctx, r.Seq)
	if err != nil && j.o.FailOpen && ctx.Err() == nil {
		j.miss(r, err)
		return nil
	}
	return err
}

// Durable waits until all up to seq is durable, or ctx ends.
func (j *Journal) Durable(ctx context.Context, seq uint64) error {
	if j.synced.Load() >= seq {
		return nil
	}
	j.mu.Lock()
	commit := j.commit
	j.mu.Unlock()
	if err := commit.Wait(ctx); err != nil && j.synced.Load() < seq {
		return unwritable(err)
	}
	return nil
}

// sync is what the committer runs.
func (j *Journal) sync() error {
	j.mu.Lock()
	f, seq, hash, size, full := j.tail.f, j.appended.Load(), j.head, j.tail.size, j.retired
	j.retired = nil
	j.mu.Unlock()
	for _, old := range full { // no other goroutine writes them: there is one committer
		if err := old.close(); err != nil {
			j.o.Log.Warn("a full segment keeps the room that was made in it", "error", err)
		}
	}
	if err := j.o.fdatasync(f); err != nil {
		j.fail(err)
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure.broken != nil { // zeros that were written meanwhile could not be made durable, and so maybe records
		return j.failure.broken
	}
	if f == j.tail.f && size >= j.tail.size-int64(len(j.unsynced)) {
		j.unsynced = append(j.unsynced[:0], j.unsynced[int64(len(j.unsynced))-(j.tail.size-size):]...)
	}
	j.advance(seq, hash)
	return nil
}

// Stop ends the work in the background, and records a gap that there is. Records can still be appended.
func (j *Journal) Stop() {
	j.mu.Lock()
	stopped := j.stopped
	j.stopped = true
	j.mu.Unlock()
	if !stopped {
		close(j.stop)
	}
	j.owned.Wait()
	j.noteGap()
}

// Seal refuses records from now on. Written records can still be made durable.
func (j *Journal) Seal() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// Close makes all durable and closes the files. Stop and Seal come before it.
func (j *Journal) Close() error {
	j.mu.Lock()
	commit := j.commit
	j.mu.Unlock()
	err := commit.Close()
	if j.tail.left() > 0 {
		err = errors.Join(err, j.tail.f.Truncate(j.tail.size))
	}
	for _, old := range j.retired {
		err = errors.Join(err, old.close())
	}
	if err = errors.Join(err, j.tail.f.Close(), j.lock.Unlock()); err != nil {
		return fmt.Errorf("close the audit log: %w", err)
	}
	return nil
}

func unwritable(err error) error {
	if isFull(err) {
		return errFull
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return sandbox.Wrap(sandbox.Unavailable, err, "the audit log takes too long to write")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be written")
}

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
