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

	"github.com/skerry-sandbox/skerry/internal/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/groupcommit"
)

const (
	// DefaultSegmentBytes is the size at which a new segment is begun.
	DefaultSegmentBytes = 64 << 20
	// DefaultMaxLen is about how many records a tenant's stream keeps.
	DefaultMaxLen = 1_000_000
)

// Options of Open. Zero values of the numbers are the defaults.
type Options struct {
	// Dir is the folder of the log, made when missing.
	Dir string
	// Slot is which of the logs in Dir it is: processes that write side by side have one each. One process
	// at a time has a slot. 0 is 1.
	Slot int
	// Redis gets a copy of every record for List. nil = no copies; List is then Unavailable.
	Redis redis.UniversalClient
	// MaxLen bounds a tenant's stream, about. The log on disk is not bounded. 0 = Backlog if that is
	// set, else DefaultMaxLen.
	MaxLen int64
	// Backlog is how many of the newest records to copy when Redis has none; 0 = all. Embedded
	// state, which begins empty with every start, wants 100,000.
	Backlog      uint64
	SegmentBytes int64
	Log          *slog.Logger // nil = none
}

// Log is the audit log of this process. Make one with Open. It is safe for concurrent use.
type Log struct {
	o      Options
	log    *slog.Logger
	dir    string // the writer's folder
	writer string
	lock   *os.File
	commit *groupcommit.Committer
	ship   *shipper // nil without Redis
	before []Record // OpenAttempts

	appended atomic.Uint64 // Seq of the last record in the file
	synced   atomic.Uint64 // Seq of the last record that is durable
	cuts     atomic.Uint64 // how often a part of a record was taken back

	mu      sync.Mutex // held from the choice of a Seq until it is written
	f       *os.File
	size    int64
	head    string // Hash of the last record
	open    attempts
	retired []*os.File // full segments, synced; the committer may still hold one
	broken  error      // final: why nothing can be appended
	closed  bool
}

// Open reads the end of the log and goes on where it stopped. Bytes behind the last intact record
// are what a crash left of a record that nobody was told is written: they are moved to a file beside
// and reported. Conflict: another process has the slot.
func Open(o Options) (*Log, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.MaxLen <= 0 && o.Backlog > 0 {
		o.MaxLen = int64(min(o.Backlog, DefaultMaxLen))
	}
	if o.MaxLen <= 0 {
		o.MaxLen = DefaultMaxLen
	}
	lock, err := lockDir(o.Dir, o.Slot)
	if err != nil {
		return nil, err
	}
	l := &Log{o: o, log: o.Log, lock: lock}
	if err := l.resume(); err != nil {
		_ = lock.Close()
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be opened")
	}
	l.before = l.open.list()
	l.commit = groupcommit.New(l.sync)
	if o.Redis != nil {
		l.ship = startShipper(l)
	}
	return l, nil
}

// Writer names this log, over restarts.
func (l *Log) Writer() string { return l.writer }

// OpenAttempts are the attempts without a result that Open found, oldest first: what a crash of the
// process interrupted. Whoever opened the log writes their results.
func (l *Log) OpenAttempts() []Record { return l.before }

// Append writes a record and gives it back with ID, Time, Writer, Seq, Prev and Hash. On return it is
// in the operating system: it survives the end of this process, and a power cut only after Commit.
// Texts are cut to their limits, arguments redacted as Args does. It does not look at ctx: what
// happened is recorded also when the caller is gone. An error is Unavailable, and nothing is written.
func (l *Log) Append(_ context.Context, r Record) (Record, error) {
	r = clean(r)
	id, err := uuid.NewV7()
	if err != nil {
		return Record{}, unwritable(err)
	}
	r.ID = id.String()
	if r, err = l.append(r); err != nil {
		return Record{}, unwritable(err)
	}
	if l.ship != nil {
		l.ship.wake()
	}
	return r, nil
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
	r.Time = time.Now().UTC()
	r.Writer, r.Seq, r.Prev = l.writer, l.appended.Load()+1, l.head
	line, err := encode(&r)
	if err != nil {
		return r, err
	}
	if l.size > 0 && l.size+int64(len(line)) > l.o.SegmentBytes {
		if err := l.rotate(r.Seq); err != nil {
			return r, err
		}
	}
	if _, err := l.f.Write(line); err != nil {
		// A full disk may have taken a part of the line. Without it the log goes on.
		if e := l.f.Truncate(l.size); e != nil {
			l.broken = errors.Join(err, e)
		}
		l.cuts.Add(1) // after it: who sees the new count reads the file as it is now
		return r, err
	}
	l.size += int64(len(line))
	l.head = r.Hash
	l.open.add(r)
	l.appended.Store(r.Seq)
	return r, nil
}

// rotate begins a segment. The full one is durable before: else a power cut could take the end of
// it and leave the beginning of the next.
func (l *Log) rotate(first uint64) error {
	if err := l.f.Sync(); err != nil {
		l.broken = err
		return err
	}
	path := filepath.Join(l.dir, segmentName(first))
	if err := l.open.save(path); err != nil {
		l.log.Warn("the open attempts cannot be noted; the next start takes longer", "error", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		err = lockedfile.SyncDir(l.dir)
	}
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.Close(), os.Remove(path))
		}
		return err
	}
	l.retired = append(l.retired, l.f)
	l.f, l.size = f, 0
	return nil
}

// Commit waits until a record that Append gave is durable, or ctx ends. One fsync serves all who wait.
func (l *Log) Commit(ctx context.Context, r Record) error {
	if r.Writer != l.writer || r.Seq == 0 || r.Seq > l.appended.Load() {
		return sandbox.Errorf(sandbox.Internal, "this record is not of this log")
	}
	return l.durable(ctx, r.Seq)
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
	if err := l.commit.Wait(ctx); err != nil && l.synced.Load() < seq {
		return unwritable(err)
	}
	return nil
}

// sync is what the committer runs.
func (l *Log) sync() error {
	l.mu.Lock()
	f, seq, retired := l.f, l.appended.Load(), l.retired
	l.retired = nil
	l.mu.Unlock()
	for _, old := range retired { // nobody else holds them: there is one committer
		_ = old.Close()
	}
	if err := f.Sync(); err != nil {
		l.mu.Lock()
		l.broken = err
		l.mu.Unlock()
		l.log.Error("the audit log cannot be written; everything that must be recorded is refused", "error", err)
		return err
	}
	l.synced.Store(seq)
	return nil
}

// Close makes all durable, copies the rest to Redis if that takes no more than a second, and ends the
// log's goroutines. It may be called twice.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	if l.ship != nil {
		l.ship.close(time.Second)
	}
	err := l.commit.Close()
	for _, f := range append(l.retired, l.f, l.lock) {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("close the audit log: %w", err)
	}
	return nil
}

func unwritable(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return sandbox.Wrap(sandbox.Unavailable, err, "the audit log takes too long to write")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be written")
}
