package audit

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
	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/groupcommit"
)

const (
	// DefaultSegmentBytes is the size at which a new segment is begun.
	DefaultSegmentBytes = 64 << 20
	// archiveWait is how long Close waits for an archive that hangs.
	archiveWait = 5 * time.Second
)

// Options of Open. Zero values of the numbers are the defaults.
type Options struct {
	// Dir is the folder of the log, made when missing.
	Dir string
	// Slot is which of the logs in Dir it is: processes that write side by side have one each. One process
	// at a time has a slot. 0 is 1.
	Slot int
	// Redis gets a copy of every record, which is then what List reads. nil: List reads the files.
	Redis redis.UniversalClient
	// Keep bounds what Redis has of a tenant. The log on disk is not bounded.
	Keep Keep
	// Sinks get every record too.
	Sinks []Sink
	// Archive gets a copy of each full segment; nil: there is none. With KeepSegments above 0 a segment whose last record is older is
	// then removed from the disk, once Redis and the sinks have its records too.
	Archive      Archive
	KeepSegments time.Duration
	// SegmentBytes is the size at which a new segment is begun; Ahead is how much room is made ahead in one.
	SegmentBytes int64
	Ahead        int64
	// FailOpen: when nothing can be recorded, things are done all the same, and the gap is recorded later. Else
	// they are refused.
	FailOpen bool
	// Signer signs the head, at least every SignEvery records and every SignWithin while there are new ones. nil =
	// the log is not signed.
	Signer     Signer
	SignEvery  uint64
	SignWithin time.Duration
	// Trust returns what Log.Verify believes besides the files and Redis; nil = nothing.
	Trust func() (verify.Options, error)
	Log   *slog.Logger // nil = none

	failSync    func() error // of tests: asked before each sync
	archiveStep func(string) // of tests: called before each step of the archiver
}

// Log is the audit log of this process. Make one with Open. It is safe for concurrent use.
type Log struct {
	o      Options
	log    *slog.Logger
	dir    string // the writer's folder
	writer string
	lock   *os.File
	ship   *shipper                 // nil without Redis
	rows   atomic.Pointer[rowIndex] // nil with Redis, and before the first look
	before []Record                 // OpenAttempts

	viewing  sync.Once
	outboxes []*outbox
	archive  *archiver // nil without Options.Archive

	hungry  chan struct{} // a token: room is wanted
	signNow chan struct{} // a token: a signature is due
	stop    chan struct{} // closed by Close
	owned   sync.WaitGroup
	// verifying is held while Verify runs.
	verifying sync.Mutex

	appended atomic.Uint64 // Seq of the last record in the file
	synced   atomic.Uint64 // Seq of the last record that is durable
	cuts     atomic.Uint64 // how often a part of a record was taken back

	mu       sync.Mutex // held from the choice of a Seq until it is written
	commit   *groupcommit.Committer
	f        *os.File
	size     int64    // where the next record goes
	room     int64    // up to where the file is filled with zeros, when that is beyond size
	filled   *os.File // it has zeros that are not durable
	head     string   // Hash of the last record
	unsynced []byte   // the lines that are not known to be durable
	durably  Head     // the last record that is durable
	open     segment.Attempts
	retired  []retired // full segments, synced; the committer may still hold one
	rotated  time.Time // when a new segment could not be begun the last time
	broken   error     // why nothing can be appended, see mend
	full     error     // why no room could be made, the last time
	fullTold error     // full, when it was last logged
	stopped  bool      // Close has begun
	closed   bool

	missed     gap
	missedEver uint64
	refusals   uint64 // attempts that were refused since a record said so
	refusedAt  time.Time

	signed   uint64 // Seq of the last record that a signature covers
	signedAt time.Time
	signErr  error
	// unsignedAtOpen is how many records had no signature when the log was opened: its server did not end well.
	unsignedAtOpen uint64
}

// retired is a full segment.
type retired struct {
	f    *os.File
	size int64
}

// Open reads the end of the log and goes on where it stopped. Bytes behind the last intact record
// are what a crash left of a record that no caller was told is written: they are moved to a file beside
// and reported. Conflict: another process has the slot.
func Open(o Options) (*Log, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.Ahead <= 0 {
		o.Ahead = min(DefaultAhead, o.SegmentBytes)
	}
	o.setSigning()
	lock, err := lockDir(o.Dir, o.Slot)
	if err != nil {
		return nil, err
	}
	l := &Log{o: o, log: o.Log, lock: lock, hungry: make(chan struct{}, 1), signNow: make(chan struct{}, 1), stop: make(chan struct{})}
	if err := l.resume(); err != nil {
		_ = lock.Close()
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be opened")
	}
	l.before = l.open.List()
	l.commit = groupcommit.New(l.sync)
	l.owned.Go(func() { l.keep(l.stop) })
	if o.Signer != nil {
		if l.signed > 0 {
			l.unsignedAtOpen = l.appended.Load() - l.signed
		}
		l.owned.Go(func() { l.keepSigned(l.stop) })
	}
	if o.Redis != nil {
		l.ship = startShipper(l)
	}
	for _, s := range o.Sinks {
		l.outboxes = append(l.outboxes, startOutbox(l, s))
	}
	if o.Archive != nil {
		l.mu.Lock() // a signature may begin a segment by now
		l.archive = startArchiver(l)
		l.mu.Unlock()
	}
	return l, nil
}

// Writer names this log, over restarts.
func (l *Log) Writer() string { return l.writer }

// OpenAttempts are the attempts without a result that Open found, oldest first: what a crash of the
// process interrupted. The server that opened the log writes their results.
func (l *Log) OpenAttempts() []Record { return l.before }

// Append writes a record and returns it with ID, Time, Writer, Seq, Prev and Hash. On return it is
// in the operating system: it survives the end of this process, and a power cut only after Commit.
// Texts are cut to their limits, arguments redacted as Args does. It does not look at ctx: what
// happened is recorded also when the caller is gone. An error is Unavailable, and nothing is written. With
// Options.Open there is none: a record that could not be written comes back without Seq, and is counted.
func (l *Log) Append(_ context.Context, r Record) (Record, error) {
	r = record.Clean(r)
	id, err := uuid.NewV7()
	if err != nil {
		return Record{}, unwritable(err)
	}
	r.ID = id.String()
	written, err := l.append(r)
	switch {
	case err == nil:
	case l.o.FailOpen && !errors.Is(err, os.ErrClosed):
		return l.miss(r, err), nil
	case isFull(err) || errors.Is(err, errFull):
		if r.Phase == PhaseAttempt {
			l.refused(r)
		}
		return Record{}, errFull
	default:
		return Record{}, unwritable(err)
	}
	l.wake()
	return written, nil
}

func (l *Log) append(r Record) (Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return r, os.ErrClosed
	}
	if l.broken != nil {
		return r, l.broken
	}
	if err := l.admit(r); err != nil {
		return r, err
	}
	if err := l.writeGap(); err != nil {
		return r, err
	}
	return l.write(r)
}

// write appends a record; mu is held.
func (l *Log) write(r Record) (Record, error) {
	r.Time = time.Now().UTC()
	r.Writer, r.Seq, r.Prev = l.writer, l.appended.Load()+1, l.head
	line, err := record.Encode(&r)
	if err != nil {
		return r, err
	}
	if l.size > 0 && l.size+int64(len(line)) > l.o.SegmentBytes {
		if err := l.rotate(r.Seq); err != nil {
			return r, err
		}
	}
	if n, err := l.f.WriteAt(line, l.size); err != nil {
		if e := l.takeBack(int64(n)); e != nil {
			l.broken = errors.Join(err, e)
		}
		l.cuts.Add(1) // after it: who sees the new count reads the file as it is now
		return r, err
	}
	l.size += int64(len(line))
	l.head = r.Hash
	l.unsynced = append(l.unsynced, line...)
	l.open.Add(r)
	l.appended.Store(r.Seq)
	if l.room-l.size < l.o.Ahead/2 || len(l.unsynced) > maxUnsynced {
		token(l.hungry)
	}
	if r.Seq-l.signed >= l.o.SignEvery {
		token(l.signNow)
	}
	return r, nil
}

// takeBack removes the first n bytes of a record that was not written as a whole. Without them the log goes on.
func (l *Log) takeBack(n int64) error {
	if l.room <= l.size {
		return l.f.Truncate(l.size)
	}
	_, err := l.f.WriteAt(make([]byte, min(n, l.room-l.size)), l.size)
	if err == nil && l.size+n > l.room {
		err = l.f.Truncate(l.room)
	}
	return err
}

// rotate begins a segment. The full one is durable before: else a power cut could take the end of
// it and leave the beginning of the next. When there is no room for a new one, the old one goes on, in the room that
// was made ahead in it.
func (l *Log) rotate(first uint64) error {
	if l.room > l.size && time.Since(l.rotated) < mendEvery {
		return nil
	}
	if err := l.fdatasync(l.f); err != nil {
		l.broken = err
		return err
	}
	l.unsynced = nil
	l.advance(first - 1)
	path := filepath.Join(l.dir, segment.Name(first))
	if err := l.open.Save(path); err != nil {
		l.log.Warn("the open attempts cannot be noted; the next start takes longer", "error", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	n := 0
	if err == nil {
		if n, err = f.WriteAt(noBytes[:min(l.o.Ahead/2, roomPiece)], 0); err == nil {
			err = lockedfile.SyncDir(l.dir)
		}
	}
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.Close(), os.Remove(path))
		}
		if l.room > l.size {
			l.rotated = time.Now()
			return nil
		}
		return err
	}
	l.retired = append(l.retired, retired{l.f, l.size})
	l.f, l.size, l.room, l.filled = f, 0, int64(n), f
	if l.archive != nil {
		token(l.archive.work)
	}
	return nil
}

// advance says that all up to seq is durable; mu is held.
func (l *Log) advance(seq uint64) {
	if seq > l.synced.Load() {
		l.synced.Store(seq)
	}
}

// Commit waits until a record of Append is durable, or ctx ends. One fsync serves all who wait. With
// Options.Open a record that cannot be made durable is counted as missing, and there is no error.
func (l *Log) Commit(ctx context.Context, r Record) error {
	if l.o.FailOpen && r.ID != "" && r.Seq == 0 && r.Writer == l.writer {
		return nil // counted by Append
	}
	if r.Writer != l.writer || r.Seq == 0 || r.Seq > l.appended.Load() {
		return sandbox.Errorf(sandbox.Internal, "this record is not of this log")
	}
	err := l.durable(ctx, r.Seq)
	if err != nil && l.o.FailOpen && ctx.Err() == nil {
		l.miss(r, err)
		return nil
	}
	return err
}

// AppendResult writes a record that is complete at once, and waits until it is durable.
func (l *Log) AppendResult(ctx context.Context, r Record) error {
	r.Phase = PhaseResult
	_, err := l.AppendSync(ctx, r)
	return err
}

// AppendSync is Append and Commit.
func (l *Log) AppendSync(ctx context.Context, r Record) (Record, error) {
	r, err := l.Append(ctx, r)
	if err != nil {
		return Record{}, err
	}
	return r, l.Commit(ctx, r)
}

func (l *Log) durable(ctx context.Context, seq uint64) error {
	if l.synced.Load() >= seq {
		return nil
	}
	l.mu.Lock()
	commit := l.commit
	l.mu.Unlock()
	if err := commit.Wait(ctx); err != nil && l.synced.Load() < seq {
		return unwritable(err)
	}
	return nil
}

// sync is what the committer runs.
func (l *Log) sync() error {
	l.mu.Lock()
	f, seq, hash, size, full := l.f, l.appended.Load(), l.head, l.size, l.retired
	l.retired = nil
	l.mu.Unlock()
	for _, old := range full { // no other goroutine writes them: there is one committer
		// Without the zeros at its end, which a crash may leave: they are no part of it.
		if err := errors.Join(old.f.Truncate(old.size), old.f.Close()); err != nil {
			l.log.Warn("a full segment keeps the room that was made in it", "error", err)
		}
	}
	if err := l.fdatasync(f); err != nil {
		l.fail(err)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil { // zeros that were written meanwhile could not be made durable, and so maybe records
		return l.broken
	}
	if f == l.f && size >= l.size-int64(len(l.unsynced)) {
		l.unsynced = append(l.unsynced[:0], l.unsynced[int64(len(l.unsynced))-(l.size-size):]...)
	}
	l.advance(seq)
	if seq > l.durably.Seq {
		l.durably = Head{Writer: l.writer, Seq: seq, Hash: hash}
	}
	return nil
}

// Close signs the head, makes all durable, copies the rest to Redis if that takes no more than a second, and ends the
// log's goroutines. It may be called twice.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	stopped := l.stopped
	l.stopped = true
	l.mu.Unlock()
	if !stopped {
		close(l.stop)
	}
	if l.archive != nil {
		l.archive.close(archiveWait)
	}
	l.owned.Wait()
	l.noteGap()
	l.signLast()
	l.mu.Lock()
	l.closed = true
	commit := l.commit
	l.mu.Unlock()
	if l.ship != nil {
		l.ship.close(time.Second)
	}
	for _, o := range l.outboxes {
		o.close(time.Second)
	}
	l.closeView()
	err := commit.Close()
	if l.room > l.size {
		err = errors.Join(err, l.f.Truncate(l.size))
	}
	for _, old := range l.retired {
		err = errors.Join(err, old.f.Truncate(old.size), old.f.Close())
	}
	if err = errors.Join(err, l.f.Close(), l.lock.Close()); err != nil {
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
