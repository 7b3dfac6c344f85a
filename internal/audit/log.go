package audit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/audit/journal"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

const (
	// DefaultSegmentBytes is the size at which a new segment is begun.
	DefaultSegmentBytes = journal.DefaultSegmentBytes
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
	// Archive gets a copy of each full segment; nil: there is none. With KeepSegments above 0, the log
	// removes a segment whose last record is older from the disk. It does so once Redis and the sinks have
	// the segment's records too.
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
	o        Options
	journal  *journal.Journal
	coverage *coverage
	notary   *notary
	copies   copies
	archive  *archiver // nil without Options.Archive

	viewing sync.Once
	rows    atomic.Pointer[rowIndex] // nil with Redis, and before the first look
	// verifying is held while Verify runs.
	verifying sync.Mutex

	stop  chan struct{} // closed by Close
	owned sync.WaitGroup
	mu    sync.Mutex
	// stopped: Close has begun; closed: it refuses records.
	stopped, closed bool
}

// Open reads the end of the log and goes on where it stopped. Bytes behind the last intact record
// are what a crash left of a record that no caller was told is written: they are moved to a file beside
// and reported. Conflict: another process has the slot.
func Open(o Options) (*Log, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.setSigning()
	l := &Log{o: o, coverage: &coverage{every: o.SignEvery, due: make(chan struct{}, 1)}, stop: make(chan struct{})}
	full := make(chan struct{}, 1)
	var err error
	if l.journal, err = journal.Open(journal.Options{
		Dir: o.Dir, Slot: o.Slot, SegmentBytes: o.SegmentBytes, Ahead: o.Ahead, FailOpen: o.FailOpen, Full: full,
		Observe: l.coverage.observe, Log: o.Log, FailSync: o.failSync,
	}); err != nil {
		return nil, err
	}
	if o.Redis != nil {
		l.copies.ship = startShipper(l.journal, o)
	}
	for _, s := range o.Sinks {
		l.copies.outboxes = append(l.copies.outboxes, startOutbox(l.journal, o, s))
	}
	l.notary = &notary{journal: l.journal, coverage: l.coverage, signer: o.Signer, copies: l.copies, log: o.Log}
	if o.Signer != nil {
		l.coverage.opened(l.journal.Appended())
		l.owned.Go(func() { l.notary.keep(o.SignWithin, l.stop) })
	}
	if o.Archive != nil {
		l.archive = startArchiver(l, full)
	}
	return l, nil
}

// Writer names this log, over restarts.
func (l *Log) Writer() string { return l.journal.Writer() }

// OpenAttempts are the attempts without a result that Open found, oldest first: what a crash of the
// process interrupted. The server that opened the log writes their results.
func (l *Log) OpenAttempts() []Record { return l.journal.OpenAttempts() }

// Append writes a record and returns it with ID, Time, Writer, Seq, Prev and Hash. On return it is
// in the operating system: it survives the end of this process, and a power cut only after Commit.
// Texts are cut to their limits, arguments redacted as Args does. It does not look at ctx: what
// happened is recorded also when the caller is gone. An error is Unavailable, and nothing is written. With
// Options.FailOpen there is none: a record that could not be written comes back without Seq, and is counted.
func (l *Log) Append(_ context.Context, r Record) (Record, error) {
	r, err := l.journal.Append(r)
	if err == nil && r.Seq > 0 {
		l.wake()
	}
	return r, err
}

// Commit waits until a record of Append is durable, or ctx ends. One fsync serves all who wait. With
// Options.FailOpen a record that cannot be made durable is counted as missing, and there is no error.
func (l *Log) Commit(ctx context.Context, r Record) error { return l.journal.Commit(ctx, r) }

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

// Checkpoint signs the head now and returns it.
func (l *Log) Checkpoint(ctx context.Context) (Head, error) { return l.notary.checkpoint(ctx) }

// State says how the log is.
type State struct {
	journal.State
	// Unsigned is how many records follow the last signed one, SignedAt the time of that signature. SignErr
	// is why no newer one could be made.
	Unsigned uint64
	SignedAt time.Time
	SignErr  error
}

// State of the log now.
func (l *Log) State() State {
	s := State{State: l.journal.State()}
	var signed uint64
	signed, s.SignedAt = l.coverage.last()
	if l.o.Signer != nil {
		s.Unsigned, s.SignErr = l.journal.Appended()-signed, l.notary.failed()
	}
	return s
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
	l.journal.Stop()
	if l.o.Signer != nil {
		l.notary.sign()
	}
	l.journal.Seal()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.copies.close(time.Second)
	l.closeView()
	return l.journal.Close()
}

// copies are where records are copied to: Redis and the sinks.
type copies struct {
	ship     *shipper // nil without Redis
	outboxes []*outbox
}

// wake tells them that there is something new.
func (c copies) wake() {
	if c.ship != nil {
		c.ship.wake()
	}
	for _, o := range c.outboxes {
		token(o.work)
	}
}

// have reports whether all of them have all records up to seq.
func (c copies) have(seq uint64) bool {
	if c.ship != nil && c.ship.at() < seq {
		return false
	}
	for _, o := range c.outboxes {
		if sent, _ := o.at(); sent < seq {
			return false
		}
	}
	return true
}

// close waits at most d for each.
func (c copies) close(d time.Duration) {
	if c.ship != nil {
		c.ship.close(d)
	}
	for _, o := range c.outboxes {
		o.close(d)
	}
}
