package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/audit/journal"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Without Redis, List looks at the segments themselves. An index has a row of a fixed size for each record: where it is, when
// it was, and short hashes of what can be asked for. A query walks over all rows backwards, whatever is asked for together:
// that takes some ten milliseconds for a million, and only records that match are read. The rows of a full segment are a file
// (Dir/.index/WRITER/FIRST.rows), mapped into memory; those of the growing one are in memory. Behind the rows the file has
// the values of the fields that are counted (rowNames). Rows are a help only: what is missing, of an older form or does not
// fit is made anew.

// A row, in little-endian numbers at these offsets. Times of a writer never fall: a clock that was set back is waited for, so
// that rows can be searched by time.
const (
	rowTime    = 0  // u64 Unix ms
	rowOffset  = 8  // u64 of the line in the segment
	rowSeq     = 16 // u64
	rowBack    = 24 // u32 rowTime less the record's own time, ms
	rowSize    = 28 // u32 bytes of the line
	rowTenant  = 32 // u32 each: prints
	rowUser    = 36
	rowThread  = 40
	rowExec    = 44
	rowAction  = 48
	rowOutcome = 52
	rowTool    = 56
	rowBytes   = 64
)

const (
	rowsFolder = ".index" // no writer has such a name
	rowsSuffix = ".rows"
	rowsMagic  = "skerrow2"
	rowsHead   = 32 // magic, end of the last line, number of rows, bytes of the values behind them
	// rowsTick is how often records that no caller commits, and other writers, are looked at.
	rowsTick = 250 * time.Millisecond
	// maxRows bounds how many rows one call of List looks at.
	maxRows = 8_000_000
	// maxOffset is beyond the end of any segment.
	maxOffset = 1 << 60
)

// rowIndex is the view of a data folder.
type rowIndex struct {
	journal *journal.Journal
	root    string // Options.Dir
	log     *slog.Logger
	work    chan struct{} // a token: records were written
	stop    context.CancelFunc
	done    chan struct{}

	newest uint64 // the largest rowTime; of the goroutine alone

	mu      sync.RWMutex
	ready   bool
	writers []*rowWriter
	own     uint64        // Seq up to which the own writer is indexed
	grown   chan struct{} // closed and replaced when there is more
}

// rowWriter is the log of one writer.
type rowWriter struct {
	name, dir string
	files     []*rowFile
	at        int64  // how much of the last segment is indexed
	last      uint64 // rowTime of the last row
	seq       uint64 // of the last line that was read
}

// rowFile is a segment.
type rowFile struct {
	seg     segment.Segment
	rows    []byte
	mapping []byte    // what rows are a part of, when they are a file
	names   *rowNames // nil: they are in the file
}

func (f *rowFile) len() int         { return len(f.rows) / rowBytes }
func (f *rowFile) row(i int) []byte { return f.rows[i*rowBytes : (i+1)*rowBytes : (i+1)*rowBytes] }

// valueNames returns nil when they cannot be read.
func (f *rowFile) valueNames() *rowNames {
	if f.names != nil || f.mapping == nil {
		return f.names
	}
	return decodeNames(f.mapping[rowsHead*2+len(f.rows):])
}

func startRows(j *journal.Journal, o Options) *rowIndex {
	ctx, stop := context.WithCancel(context.Background())
	x := &rowIndex{journal: j, root: o.Dir, log: o.Log, stop: stop, done: make(chan struct{}), work: make(chan struct{}, 1), grown: make(chan struct{})}
	go x.run(ctx)
	return x
}

func (x *rowIndex) close() {
	x.stop()
	<-x.done
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, w := range x.writers {
		for _, f := range w.files {
			f.unmap()
		}
	}
	x.writers, x.ready = nil, false
}

func (f *rowFile) unmap() {
	if f.mapping != nil {
		_ = unix.Munmap(f.mapping)
	}
	f.rows, f.mapping = nil, nil
}

func (x *rowIndex) run(ctx context.Context) {
	defer close(x.done)
	for failing := false; ctx.Err() == nil; {
		err := x.advance(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			x.log.Error("the audit log cannot be indexed; queries miss records", "error", err)
		}
		failing = err != nil
		if wait(ctx, rowsTick, x.work) && x.journal.Synced() < x.journal.Appended() {
			// Others commit, as a rule. What no caller waits for becomes durable here.
			if wait(ctx, linger, nil) && x.journal.Synced() < x.journal.Appended() {
				_ = x.journal.Durable(ctx, x.journal.Appended())
			}
		}
	}
}

// advance indexes what is new in all folders.
func (x *rowIndex) advance(ctx context.Context) error {
	limit := x.journal.Synced()
	names, err := os.ReadDir(x.root)
	if err != nil {
		return err
	}
	var all error
	for _, n := range names {
		if n.IsDir() && record.IsWriter(n.Name()) && ctx.Err() == nil {
			all = errors.Join(all, x.advanceWriter(ctx, n.Name(), limit))
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if all == nil && ctx.Err() == nil {
		x.ready = true
		x.own = max(x.own, limit)
	}
	close(x.grown)
	x.grown = make(chan struct{})
	return all
}

func (x *rowIndex) advanceWriter(ctx context.Context, name string, limit uint64) error {
	w := x.writer(name)
	segs, err := segment.List(w.dir)
	if err != nil {
		return err
	}
	x.drop(w, segs)
	for i, s := range segs {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if n := len(w.files); n > 0 && (s.First < w.files[n-1].seg.First || s.First == w.files[n-1].seg.First && w.files[n-1].mapping != nil) {
			continue // it is indexed
		}
		// A segment that another one follows has its end: the list is older than what is read.
		if err := x.advanceSegment(ctx, w, s, i < len(segs)-1, limit); err != nil {
			return err
		}
	}
	return nil
}

func (x *rowIndex) writer(name string) *rowWriter {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, w := range x.writers {
		if w.name == name {
			return w
		}
	}
	w := &rowWriter{name: name, dir: filepath.Join(x.root, name)}
	x.writers = append(x.writers, w)
	return w
}

// drop forgets segments that are no longer there.
func (x *rowIndex) drop(w *rowWriter, segs []segment.Segment) {
	for len(w.files) > 0 && (len(segs) == 0 || w.files[0].seg.First < segs[0].First) {
		x.mu.Lock()
		f := w.files[0]
		w.files = w.files[1:]
		f.unmap()
		x.mu.Unlock()
		_ = os.Remove(x.rowsPath(w, f.seg))
	}
}

func (x *rowIndex) rowsPath(w *rowWriter, s segment.Segment) string {
	return filepath.Join(x.root, rowsFolder, w.name, fmt.Sprintf("%020d%s", s.First, rowsSuffix))
}

// advanceSegment indexes the rest of a segment. Only this goroutine changes what a rowWriter has.
func (x *rowIndex) advanceSegment(ctx context.Context, w *rowWriter, s segment.Segment, full bool, limit uint64) error {
	var f *rowFile
	if n := len(w.files); n > 0 && w.files[n-1].seg.First == s.First {
		f = w.files[n-1]
	} else {
		f = &rowFile{seg: s, names: newRowNames()}
		if full && x.load(w, f) {
			x.mu.Lock()
			defer x.mu.Unlock()
			w.files = append(w.files, f)
			if n := f.len(); n > 0 {
				w.last = max(w.last, little.Uint64(f.row(n - 1)[rowTime:]))
				x.newest = max(x.newest, w.last)
			}
			return nil
		}
		x.mu.Lock()
		w.files, w.at = append(w.files, f), 0
		x.mu.Unlock()
	}
	final := limit // all up to it is in the files
	switch {
	case full: // a segment is durable before another one follows
		limit, final = ^uint64(0), ^uint64(0)
	case w.name != x.journal.Writer():
		limit, final = ^uint64(0), 0
	}
	if err := x.read(ctx, w, f, limit, final); err != nil || !full {
		return err
	}
	if err := x.save(w, f); err != nil {
		x.log.Warn("the index of a segment of the audit log cannot be kept; the next start takes longer", "error", err)
	}
	return nil
}

// read adds rows for the lines behind w.at with a Seq up to limit. Those up to final are all there, so that an end before them
// is damage to pass over; behind them it may be that a record is being written.
func (x *rowIndex) read(ctx context.Context, w *rowWriter, f *rowFile, limit, final uint64) error {
	file, err := os.Open(f.seg.Path)
	if err != nil {
		return ignoreMissing(err)
	}
	defer file.Close()
	in := segment.NewLines(file)
	in.At = w.at
	var fresh []byte
	var names []rowName
	for ctx.Err() == nil {
		at := in.At
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			if line, err = in.Next(); errors.Is(err, io.EOF) && w.seq >= final { // what came meanwhile is read the next time
				break
			}
		}
		if errors.Is(err, io.EOF) {
			left, err := in.Leftover()
			if err != nil {
				return err
			}
			if left != segment.Damage {
				break
			}
			if err := in.Skip(); err != nil || in.At > maxOffset { // nothing whole behind it, for now
				in.At = at
				break
			}
			continue
		}
		if err != nil {
			return err
		}
		if r, ok := record.ParseIndexed(line); ok {
			if r.Seq > limit {
				in.At = at
				break
			}
			w.seq = r.Seq
			fresh = x.appendRow(fresh, w, r, at, len(line))
			names = f.names.missing(names, r)
		}
		if len(fresh) >= 4096*rowBytes {
			x.publish(w, f, fresh, names, in.At)
			fresh, names = fresh[:0], names[:0]
		}
	}
	x.publish(w, f, fresh, names, in.At)
	return ctx.Err()
}

func (x *rowIndex) appendRow(rows []byte, w *rowWriter, r record.Indexed, at int64, size int) []byte {
	own := uint64(max(r.Time, 0))
	w.last = max(own, w.last)
	if x.ready { // what comes now comes behind all that was there, from any writer
		w.last = max(w.last, x.newest)
	}
	x.newest = max(x.newest, w.last)
	var row [rowBytes]byte
	little.PutUint64(row[rowTime:], w.last)
	little.PutUint64(row[rowOffset:], uint64(at))
	little.PutUint64(row[rowSeq:], r.Seq)
	little.PutUint32(row[rowBack:], uint32(min(w.last-own, 1<<32-1)))
	little.PutUint32(row[rowSize:], uint32(size))
	p := printsOf(r)
	little.PutUint32(row[rowTenant:], p.tenant)
	little.PutUint32(row[rowUser:], p.user)
	little.PutUint32(row[rowThread:], p.thread)
	little.PutUint32(row[rowExec:], p.exec)
	little.PutUint32(row[rowAction:], p.action)
	little.PutUint32(row[rowOutcome:], p.outcome)
	little.PutUint32(row[rowTool:], p.tool)
	return append(rows, row[:]...)
}

func (x *rowIndex) publish(w *rowWriter, f *rowFile, fresh []byte, names []rowName, at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f.rows = append(f.rows, fresh...)
	f.names.add(names)
	w.at = at
}

// load maps the rows of a full segment that were kept.
func (x *rowIndex) load(w *rowWriter, f *rowFile) bool {
	file, err := os.Open(x.rowsPath(w, f.seg))
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	seg, err2 := os.Stat(f.seg.Path)
	head := make([]byte, rowsHead)
	if err != nil || err2 != nil {
		return false
	}
	if _, err := io.ReadFull(file, head); err != nil || string(head[:8]) != rowsMagic || int64(little.Uint64(head[8:])) > seg.Size() {
		return false
	}
	n, names := little.Uint64(head[16:]), little.Uint64(head[24:])
	if n > 1<<32 || names > maxSavedNames || info.Size() != rowsHead*2+int64(n)*rowBytes+int64(names) {
		return false
	}
	all, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return false
	}
	f.rows, f.mapping, f.names = all[rowsHead*2:rowsHead*2+int(n)*rowBytes], all, nil
	return true
}

// save keeps the rows of a segment that is full, and maps them.
func (x *rowIndex) save(w *rowWriter, f *rowFile) error {
	head := make([]byte, rowsHead*2) // rows lie at multiples of their size
	copy(head, rowsMagic)
	little.PutUint64(head[8:], uint64(w.at))
	little.PutUint64(head[16:], uint64(f.len()))
	names, err := f.names.encode()
	if err != nil {
		return err
	}
	little.PutUint64(head[24:], uint64(len(names)))
	path := x.rowsPath(w, f.seg)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := lockedfile.Replace(path, slices.Concat(head, f.rows, names)); err != nil {
		return err
	}
	kept := &rowFile{seg: f.seg}
	if !x.load(w, kept) {
		return nil // it goes on in memory
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	f.rows, f.mapping, f.names = kept.rows, kept.mapping, nil
	return nil
}

// flush waits until the own records are indexed.
func (x *rowIndex) flush(ctx context.Context) error {
	target := x.journal.Appended()
	if err := x.journal.Durable(ctx, target); err != nil {
		return err
	}
	for {
		token(x.work)
		x.mu.RLock()
		done, grown := x.ready && x.own >= target, x.grown
		x.mu.RUnlock()
		if done {
			return nil
		}
		select {
		case <-grown:
		case <-x.done:
			return sandbox.Errorf(sandbox.Unavailable, "the audit log is closed")
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "audit records wait to be indexed")
		}
	}
}
