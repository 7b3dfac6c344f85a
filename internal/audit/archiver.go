package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/journal"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
)

// Archive is where full segments are kept besides the data folder. Names are of a-z, 0-9, "-", "." and "/".
type Archive interface {
	Name() string // where it is, without a secret
	// Put stores size bytes as a whole or not at all, in place of what is there.
	Put(ctx context.Context, name string, from io.Reader, size int64) error
	// Get returns what Put stored; fs.ErrNotExist: there is nothing.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
}

// ArchiveState says how far the archive is.
type ArchiveState struct {
	Behind int   // full segments that are not there yet, as far as this process has looked
	Err    error // why not; nil: nothing is wrong
}

const (
	manifestSuffix = ".json"
	markFolder     = ".archived" // Dir/.archived/WRITER/FIRST.json: what was archived, and where
	// archiveEvery is how often segments are looked at that were not told of, and ages.
	archiveEvery   = time.Minute
	maxArchiveRest = 5 * time.Minute
	// transferTimeout bounds one transfer of a segment.
	transferTimeout = 15 * time.Minute
)

// errSegment is of a segment that is not archived, whatever the archive does.
var errSegment = errors.New("it is not archived")

// archiver copies full segments to the archive, one after the other, and removes old ones of this disk that are there.
// It holds no more than a window of one in memory.
type archiver struct {
	journal   *journal.Journal
	records   Appender
	copies    copies
	verifying *sync.Mutex // of the Log
	dir       string      // Options.Dir
	log       *slog.Logger
	to        Archive
	keep      time.Duration // 0: nothing is removed
	work      chan struct{} // a token: a segment is full
	stop      context.CancelFunc
	done      chan struct{}
	step      func(string) // of tests: called before each step

	marks map[uint64]record.Manifest // by First; of the goroutine alone

	mu    sync.Mutex
	state ArchiveState
}

// startArchiver starts it; full gets a token when a segment is full.
func startArchiver(l *Log, full chan struct{}) *archiver {
	ctx, stop := context.WithCancel(context.Background())
	a := &archiver{
		journal: l.journal, records: l, copies: l.copies, verifying: &l.verifying, dir: l.o.Dir, log: l.o.Log,
		to: l.o.Archive, keep: l.o.KeepSegments, work: full, stop: stop, done: make(chan struct{}),
		step: l.o.archiveStep, marks: map[uint64]record.Manifest{},
	}
	if a.step == nil {
		a.step = func(string) {}
	}
	go a.run(ctx)
	return a
}

// Archive tells how far the archive is; ok: there is one.
func (l *Log) Archive() (s ArchiveState, ok bool) {
	if l.archive == nil {
		return s, false
	}
	l.archive.mu.Lock()
	defer l.archive.mu.Unlock()
	return l.archive.state, true
}

// close ends it. What it was at is done again after the next start. A folder that hangs, as one of a network may, is not
// waited for.
func (a *archiver) close(d time.Duration) {
	a.stop()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-a.done:
	case <-t.C:
		a.log.Warn("the audit archive hangs; it is not waited for", "archive", a.to.Name())
	}
}

func (a *archiver) run(ctx context.Context) {
	defer close(a.done)
	if c, ok := a.to.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	pauses := retry.Doubling(minPause, maxArchiveRest)
	for ctx.Err() == nil {
		err := a.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		before := a.state.Err
		a.state.Err = err
		a.mu.Unlock()
		switch {
		case err == nil:
			if before != nil {
				a.log.Info("the audit log is archived again", "archive", a.to.Name())
			}
			pauses.Reset()
			wait(ctx, archiveEvery, a.work)
		default:
			if before == nil || before.Error() != err.Error() {
				a.log.Warn("full segments of the audit log are not archived; they stay on this disk", "archive", a.to.Name(), "error", err)
			}
			wait(ctx, pauses.NextBackOff(), nil)
		}
	}
}

// pass archives what is full and removes what is old.
func (a *archiver) pass(ctx context.Context) error {
	segs, err := segment.List(a.journal.Dir())
	if err != nil || len(segs) == 0 {
		return err
	}
	full := segs[:len(segs)-1]
	behind := 0
	for _, s := range full {
		if !a.marked(s) {
			behind++
		}
	}
	a.behind(behind)
	var failed error
	for i, s := range full {
		if _, ok := a.marks[s.First]; ok {
			continue
		}
		switch err := a.archive(ctx, s, segs[i+1].First); {
		case err == nil:
			behind--
			a.behind(behind)
		case errors.Is(err, errSegment): // the others can be all the same
			failed = errors.Join(failed, err)
		default:
			return err
		}
	}
	return errors.Join(failed, a.prune(ctx, full))
}

func (a *archiver) behind(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Behind = n
}

// mark is what is remembered of a segment that is in the archive.
type mark struct {
	Archive string          `json:"archive"`
	Segment record.Manifest `json:"segment"`
}

func (a *archiver) markPath(first uint64) string {
	return filepath.Join(a.dir, markFolder, a.journal.Writer(), fmt.Sprintf("%020d%s", first, manifestSuffix))
}

func (a *archiver) marked(s segment.Segment) bool {
	if _, ok := a.marks[s.First]; ok {
		return true
	}
	text, err := os.ReadFile(a.markPath(s.First))
	var m mark
	if err != nil || json.Unmarshal(text, &m) != nil || m.Archive != a.to.Name() || m.Segment.First != s.First {
		return false
	}
	a.marks[s.First] = m.Segment
	return true
}

func packedName(m record.Manifest) string {
	return fmt.Sprintf("%s/%020d%s", m.Writer, m.First, segment.PackedSuffix)
}

// archive copies a segment, reads back what is in the archive, and remembers that it is there. Each step can be done again.
func (a *archiver) archive(ctx context.Context, s segment.Segment, next uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*transferTimeout)
	defer cancel()
	a.step("inspect")
	m, err := a.inspect(ctx, s, next)
	if err != nil {
		return err
	}
	a.step("look")
	if err = a.compare(ctx, m); errors.Is(err, fs.ErrNotExist) {
		a.step("put")
		if err = a.put(ctx, s, m); err != nil {
			return err
		}
		a.step("read back")
		err = a.compare(ctx, m)
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	a.step("manifest")
	name := strings.TrimSuffix(packedName(m), segment.PackedSuffix) + manifestSuffix
	if err := a.to.Put(ctx, name, strings.NewReader(string(text)+"\n"), int64(len(text)+1)); err != nil {
		return err
	}
	if text, err = json.Marshal(mark{a.to.Name(), m}); err != nil {
		return err
	}
	a.step("mark")
	path := a.markPath(m.First)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := lockedfile.Replace(path, text); err != nil {
		return err
	}
	a.marks[m.First] = m
	return nil
}

// inspect describes a segment whose records are all there and as they were written. Others are evidence: they are neither
// archived nor removed.
func (a *archiver) inspect(ctx context.Context, s segment.Segment, next uint64) (m record.Manifest, err error) {
	f, err := os.Open(s.Path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	m = record.Manifest{Writer: a.journal.Writer(), First: s.First, Last: s.First - 1}
	in := segment.NewLines(f)
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m, err
		}
		r, intact := record.Decode(line)
		if m.Last < s.First {
			m.Prev, m.From, m.Hash = r.Prev, r.Time, r.Prev
		}
		if !intact || r.Writer != m.Writer || r.Seq != m.Last+1 || r.Prev != m.Hash {
			return m, fmt.Errorf("segment %s, record %d: %w: it is not as it was written; run skerry audit verify", filepath.Base(s.Path), m.Last+1, errSegment)
		}
		m.Last, m.Hash, m.To = r.Seq, r.Hash, r.Time
		if r.Seq%1000 == 0 && ctx.Err() != nil {
			return m, ctx.Err()
		}
	}
	left, err := in.Leftover()
	if err != nil {
		return m, err
	}
	if left != segment.Nothing || m.Last+1 != next {
		return m, fmt.Errorf("segment %s, record %d: %w: it is not there, or not whole; run skerry audit verify", filepath.Base(s.Path), m.Last+1, errSegment)
	}
	m.Bytes = in.At
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, m.Bytes)); err != nil {
		return m, err
	}
	m.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return m, nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// put stores a segment. It is packed twice, first for the size, which a store wants to know: so it needs neither memory nor
// room on a disk that may be full.
func (a *archiver) put(ctx context.Context, s segment.Segment, m record.Manifest) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	var size counter
	if err := segment.Pack(ctx, &size, s.Path, m.Bytes); err != nil {
		return err
	}
	out, in := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		_ = in.CloseWithError(segment.Pack(ctx, in, s.Path, m.Bytes))
	}()
	err := a.to.Put(ctx, packedName(m), out, int64(size))
	_ = out.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	<-packed
	return err
}

// compare reads back what the archive has of a segment. fs.ErrNotExist: nothing. Anything else than this segment is left as it is:
// it may be what proves that this one was changed.
func (a *archiver) compare(ctx context.Context, m record.Manifest) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	name := packedName(m)
	r, err := a.to.Get(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	n, err := segment.Unpack(ctx, sum, r, m.Bytes)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || n != m.Bytes || hex.EncodeToString(sum.Sum(nil)) != m.SHA256 {
		return fmt.Errorf("%s: %w: the archive has something else under this name, or it cannot be read (%w); look at both, run skerry audit verify, and take it away if it is wrong",
			name, errSegment, errors.Join(err, fmt.Errorf("%d bytes, not %d with sha256 %s", n, m.Bytes, m.SHA256)))
	}
	return nil
}

// prune removes segments that are old enough, in the archive, and with all sinks; the oldest first, and none
// after a segment that stays.
func (a *archiver) prune(ctx context.Context, full []segment.Segment) error {
	if a.keep <= 0 {
		return nil
	}
	for i, s := range full {
		m, ok := a.marks[s.First]
		if !ok || time.Since(m.To) < a.keep || !a.copies.have(m.Last) || ctx.Err() != nil {
			return nil
		}
		next := m.Last + 1
		if i+1 < len(full) {
			next = full[i+1].First
		}
		if err := a.remove(ctx, s, m, next); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a segment of this disk. Before, it and its copy are read once more, and the log records it: without that record
// Verify would call the segment removed.
func (a *archiver) remove(ctx context.Context, s segment.Segment, m record.Manifest, next uint64) error {
	if !a.verifying.TryLock() {
		return nil // Verify reads it; the next time
	}
	defer a.verifying.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*transferTimeout)
	defer cancel()
	a.step("check")
	now, err := a.inspect(ctx, s, next)
	if err != nil {
		return err
	}
	if now.SHA256 != m.SHA256 {
		return fmt.Errorf("segment %s: %w: it was changed after it was archived; run skerry audit verify", filepath.Base(s.Path), errSegment)
	}
	switch err := a.compare(ctx, m); {
	case errors.Is(err, fs.ErrNotExist):
		delete(a.marks, s.First) // the archive lost it: it is made again
		return errors.Join(ignoreMissing(os.Remove(a.markPath(s.First))), fmt.Errorf("%s is no longer in the archive; it is put there again", packedName(m)))
	case err != nil:
		return err
	}
	r, err := record.OfLog(ActionRetention, fmt.Sprintf("records %d to %d", m.First, m.Last))
	if err != nil {
		return err
	}
	r.Outcome, r.Detail = "ok", "archived in "+a.to.Name()
	r.Args, r.ArgsHash = Args(m)
	a.step("record")
	if r, err = a.records.AppendSync(ctx, r); err != nil {
		return err
	}
	if r.Seq == 0 {
		return errors.New("the removal of a segment cannot be recorded now")
	}
	a.step("remove")
	if err := ignoreMissing(os.Remove(segment.AttemptsPath(s.Path))); err != nil {
		return err
	}
	a.step("remove the segment")
	if err := errors.Join(os.Remove(s.Path), lockedfile.SyncDir(a.journal.Dir())); err != nil {
		return err
	}
	a.step("forget")
	delete(a.marks, s.First)
	a.log.Info("a segment of the audit log that is archived was removed from this disk", "first", m.First, "last", m.Last, "archive", a.to.Name())
	return ignoreMissing(os.Remove(a.markPath(s.First)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
