package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/journal"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
)

// Entry is a record on its way to a sink.
type Entry struct {
	Record
	Line []byte // as it is in the log, without the newline
}

// Sink is where records are sent besides. Send returns when they are taken, in their order; after an error the same ones come
// again, so a sink may get a record twice and knows it by its ID. A Log makes one call at a time, and closes the sink (io.Closer) at its end.
type Sink interface {
	Name() string // a-z, 0-9 and -: the place is saved by it
	Send(ctx context.Context, entries []Entry) error
}

// SinkState is how far a sink is.
type SinkState struct {
	Name   string `json:"name"`
	Behind uint64 `json:"behind"` // records that it does not have
	Error  string `json:"error,omitempty"`
}

const (
	sinksFolder = ".sinks" // Dir/.sinks/NAME/WRITER holds the Seq of the last record that was taken
	sendTimeout = 30 * time.Second
	maxSinkRest = time.Minute
)

// outbox sends a log's durable records to a sink. The log on disk is what waits: it holds one batch in memory, and a
// sink that is slow or away delays no caller.
type outbox struct {
	journal *journal.Journal
	log     *slog.Logger
	sink    Sink
	path    string
	from    segment.Follower
	work    chan struct{}
	stop    context.CancelFunc
	done    chan struct{}

	mu   sync.Mutex
	sent uint64
	err  error
}

func startOutbox(j *journal.Journal, opts Options, s Sink) *outbox {
	ctx, stop := context.WithCancel(context.Background())
	o := &outbox{
		journal: j, log: opts.Log, sink: s, path: filepath.Join(opts.Dir, sinksFolder, s.Name(), j.Writer()), stop: stop,
		from: segment.NewFollower(j.Dir(), j.Cuts(), opts.Log), work: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go o.run(ctx)
	return o
}

// at is the Seq of the last record that was taken, and why no more are.
func (o *outbox) at() (sent uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent, o.err
}

// Sinks tells how far each sink is.
func (l *Log) Sinks() []SinkState {
	var all []SinkState
	for _, o := range l.copies.outboxes {
		s := SinkState{Name: o.sink.Name()}
		sent, err := o.at()
		if last := l.journal.Appended(); last > sent {
			s.Behind = last - sent
		}
		if err != nil {
			s.Error = err.Error()
		}
		all = append(all, s)
	}
	return all
}

// close waits at most d for what is left; the rest is sent after the next start.
func (o *outbox) close(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if sent, err := o.at(); sent >= o.journal.Appended() || err != nil {
			break
		}
	}
	o.stop()
	<-o.done
}

func (o *outbox) run(ctx context.Context) {
	defer close(o.done)
	defer o.from.Close()
	if c, ok := o.sink.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	pauses, placed := retry.Doubling(minPause, maxSinkRest), false
	for ctx.Err() == nil {
		var err error
		if !placed {
			err = o.place()
		}
		if err == nil {
			placed = true
			err = o.batch(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		o.mu.Lock()
		before := o.err
		o.err = err
		o.mu.Unlock()
		if err == nil {
			pauses.Reset()
			if before != nil {
				o.log.Info("audit records are taken again", "sink", o.sink.Name())
			}
			continue
		}
		if before == nil {
			o.log.Warn("audit records are not taken; they wait on disk", "sink", o.sink.Name(), "error", err)
		}
		placed = false
		wait(ctx, pauses.NextBackOff(), nil)
	}
}

// place goes to where the sink is: behind what it took, or at the beginning of the log.
func (o *outbox) place() error {
	at := uint64(0)
	text, err := os.ReadFile(o.path)
	switch {
	case err == nil:
		if at, err = strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err != nil {
			o.log.Error("where a sink is cannot be read; it gets all records again", "sink", o.sink.Name(), "error", err)
			at = 0
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if last := o.journal.Appended(); at > last {
		o.log.Error("the audit log on disk ends before what a sink has: its end was cut or an old copy restored", "sink", o.sink.Name(), "on_disk", last, "in_sink", at)
		at = last
	}
	o.mu.Lock()
	o.sent = at
	o.mu.Unlock()
	if segs, err := segment.List(o.journal.Dir()); err == nil && len(segs) > 0 {
		at = max(at, segs[0].First-1) // what was archived before there was a sink
	}
	return o.from.Seek(at + 1)
}

// batch waits for durable records and sends some.
func (o *outbox) batch(ctx context.Context) error {
	for o.journal.Appended() < o.from.Next() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.work:
		}
	}
	if o.journal.Synced() < o.from.Next() {
		// Others commit, as a rule.
		if !wait(ctx, linger, nil) {
			return ctx.Err()
		}
		if err := o.journal.Durable(ctx, o.from.Next()); err != nil {
			return err
		}
	}
	items, err := o.from.Read(o.journal.Synced(), batchRecords, batchBytes)
	if err != nil {
		return err
	}
	entries := make([]Entry, 0, len(items))
	for _, it := range items {
		if r, ok := record.Decode(it.Text); ok { // what was changed is for Verify to tell
			entries = append(entries, Entry{r, it.Text})
		}
	}
	if len(entries) > 0 {
		sending, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		if err := o.sink.Send(sending, entries); err != nil {
			return err
		}
	}
	done := o.from.Next() - 1
	if err := os.MkdirAll(filepath.Dir(o.path), 0o700); err != nil {
		return err
	}
	if err := lockedfile.Replace(o.path, strconv.AppendUint(nil, done, 10)); err != nil {
		return err
	}
	o.mu.Lock()
	o.sent = done
	o.mu.Unlock()
	return nil
}
