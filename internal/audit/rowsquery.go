package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// rowPlace is the place of a record among those of all writers: by time, then writer, then number.
type rowPlace struct {
	time   uint64
	writer string
	seq    uint64
}

func (p rowPlace) compare(q rowPlace) int {
	return cmp.Or(cmp.Compare(p.time, q.time), strings.Compare(p.writer, q.writer), cmp.Compare(p.seq, q.seq))
}

func (p rowPlace) String() string { return fmt.Sprintf("%d.%d.%s", p.time, p.seq, p.writer) }

var rowCursor = regexp.MustCompile(`^([0-9]{1,19})\.([0-9]{1,19})\.([a-z0-9-]{0,64})$`)

func (x *rowIndex) cursor(text string) bool { return rowCursor.MatchString(text) }

func parsePlace(text string) rowPlace {
	m := rowCursor.FindStringSubmatch(text)
	if m == nil {
		return rowPlace{}
	}
	t, _ := strconv.ParseUint(m[1], 10, 64) // 19 digits fit
	seq, _ := strconv.ParseUint(m[2], 10, 64)
	return rowPlace{t, m[3], seq}
}

// rowCondition is a number that a row must have.
type rowCondition struct {
	offset int
	want   uint32
}

// rowConditions are what f wants of a row. Most rows differ in the first ones.
func rowConditions(f Filter) (all []rowCondition) {
	for _, c := range []struct {
		offset int
		want   string
	}{{rowExec, f.Exec}, {rowThread, f.Thread}, {rowTool, f.Tool}, {rowUser, f.User}, {rowOutcome, f.Outcome}, {rowAction, f.Action}} {
		if c.want != "" {
			all = append(all, rowCondition{c.offset, short(c.want)})
		}
	}
	return append(all, rowCondition{rowTenant, short(f.Tenant)})
}

// rowQuery is one walk over rows, with the index locked.
type rowQuery struct {
	selector
	conditions   []rowCondition
	since, until uint64 // Unix ms, 0 = none
	open         map[string]*os.File
	rows, read   int // how many were looked at
	block        block
}

// blockBytes is how much is read at once of a file whose lines are wanted one after the other.
const blockBytes = 64 << 10

var errShape = errors.New("no row is like this")

// block is a part of a segment that was read.
type block struct {
	file  *os.File
	at    int64
	bytes []byte
	last  int64 // where the line begins that was wanted last
}

// line returns a line of a file, which is good until the next call. Lines come from the end to the beginning, as a rule.
func (b *block) line(file *os.File, at int64, size int) ([]byte, error) {
	if at < 0 || at > maxOffset {
		return nil, errShape
	}
	end := at + int64(size)
	if b.file != file || at < b.at || end > b.at+int64(len(b.bytes)) {
		n := int64(size)
		if b.file == file && end <= b.last && b.last-end < blockBytes/16 {
			n = max(n, min(end, blockBytes))
		}
		b.file, b.at, b.bytes = file, end-n, slices.Grow(b.bytes[:0], int(n))[:n]
		if _, err := file.ReadAt(b.bytes, b.at); err != nil {
			b.file = nil
			return nil, err
		}
	}
	b.last = at
	return b.bytes[at-b.at : end-b.at], nil
}

func newRowQuery(f Filter) *rowQuery {
	q := &rowQuery{selector: newSelector(f), conditions: rowConditions(f), open: map[string]*os.File{}}
	if ms := f.Since.UnixMilli(); !f.Since.IsZero() && ms > 0 {
		q.since = uint64(ms)
	}
	if !f.Until.IsZero() {
		// A millisecond more, of which matches decides.
		q.until = uint64(max(f.Until.UnixMilli()+1, 1))
	}
	return q
}

func (q *rowQuery) close() {
	for _, f := range q.open {
		_ = f.Close()
	}
}

// wants says whether the record of a row may match.
func (q *rowQuery) wants(row []byte) bool {
	for _, c := range q.conditions {
		if little.Uint32(row[c.offset:]) != c.want {
			return false
		}
	}
	own := little.Uint64(row[rowTime:]) - uint64(little.Uint32(row[rowBack:]))
	return own >= q.since && (q.until == 0 || own < q.until)
}

// fetch reads a row's record, if it matches.
func (q *rowQuery) fetch(f *rowFile, row []byte) (Record, bool) {
	q.read++
	file := q.open[f.seg.Path]
	if file == nil {
		var err error
		if file, err = os.Open(f.seg.Path); err != nil {
			return Record{}, false // it was archived just now
		}
		q.open[f.seg.Path] = file
	}
	line, err := q.block.line(file, int64(little.Uint64(row[rowOffset:])), int(min(little.Uint32(row[rowSize:]), segment.MaxLine)))
	if err != nil {
		return Record{}, false
	}
	r, ok := q.record(line) // which keeps nothing of the line
	return r, ok && r.Tenant == q.f.Tenant
}

// rowReader walks over the rows of one writer, one way or the other. It stands on the row that comes next.
type rowReader struct {
	w    *rowWriter
	file int
	i    int
}

func (r *rowReader) row() []byte { return r.w.files[r.file].row(r.i) }

func (r *rowReader) place() rowPlace {
	row := r.row()
	return rowPlace{little.Uint64(row[rowTime:]), r.w.name, little.Uint64(row[rowSeq:])}
}

// back goes to the row before; false: there is none.
func (r *rowReader) back() bool {
	for r.i--; r.i < 0; r.i = r.w.files[r.file].len() - 1 {
		if r.file--; r.file < 0 {
			return false
		}
	}
	return true
}

// on goes to the row after.
func (r *rowReader) on() bool {
	for r.i++; r.i >= r.w.files[r.file].len(); r.i = 0 {
		if r.file++; r.file >= len(r.w.files) {
			return false
		}
	}
	return true
}

// before stands on the last row that lies before p.
func (w *rowWriter) before(p rowPlace) (*rowReader, bool) {
	r := w.from(p)
	return r, len(w.files) > 0 && r.back()
}

// from stands on the first row that does not lie before p, or behind all.
func (w *rowWriter) from(p rowPlace) *rowReader {
	r := &rowReader{w: w}
	at := func(f *rowFile, i int) bool {
		row := f.row(i)
		return rowPlace{little.Uint64(row[rowTime:]), w.name, little.Uint64(row[rowSeq:])}.compare(p) >= 0
	}
	r.file = sort.Search(len(w.files), func(k int) bool {
		for ; k < len(w.files); k++ { // a segment may have no row
			if n := w.files[k].len(); n > 0 {
				return at(w.files[k], n-1)
			}
		}
		return true
	})
	if r.file == len(w.files) {
		if r.file--; r.file >= 0 {
			r.i = w.files[r.file].len()
		}
		return r
	}
	f := w.files[r.file]
	r.i = sort.Search(f.len(), func(i int) bool { return at(f, i) })
	return r
}

var errIndexing = sandbox.Errorf(sandbox.Unavailable, "the audit log is being indexed; try again in a moment")

// list walks backwards over the rows of all writers at once.
func (x *rowIndex) list(ctx context.Context, f Filter) (items []Record, next string, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.ready {
		return nil, "", errIndexing
	}
	q := newRowQuery(f)
	defer q.close()
	start := rowPlace{time: 1<<63 - 1}
	if f.Cursor != "" {
		start = parsePlace(f.Cursor)
	}
	var readers []*rowReader
	for _, w := range x.writers {
		if r, ok := w.before(start); ok {
			readers = append(readers, r)
		}
	}
	items = []Record{}
	began := time.Now()
	for len(readers) > 0 {
		// The writer whose next row is the newest, as long as it is.
		slices.SortFunc(readers, func(a, b *rowReader) int { return b.place().compare(a.place()) })
		r, bound := readers[0], rowPlace{}
		if len(readers) > 1 {
			bound = readers[1].place()
		}
		last, more := q.run(r, bound, &items)
		if !more {
			readers = readers[1:]
		}
		if len(readers) > 0 && (len(items) == f.Limit || q.read >= maxScanned || q.rows >= maxRows || q.late(began, len(items)) || ctx.Err() != nil) {
			return items, last.String(), ctx.Err()
		}
	}
	return items, "", nil
}

// late tells whether a page has taken long enough: one that has something is not held back for more of a rare text.
func (q *rowQuery) late(began time.Time, items int) bool {
	spent := time.Since(began)
	return spent > listTimeout || items > 0 && q.f.Text != "" && spent > foundTimeout
}

// run takes rows of one writer until one lies before bound, or enough is done. last is the last row that was looked at;
// more: the reader stands on another row.
func (q *rowQuery) run(r *rowReader, bound rowPlace, items *[]Record) (last rowPlace, more bool) {
	var row []byte
	defer func() {
		if row != nil {
			last = rowPlace{little.Uint64(row[rowTime:]), r.w.name, little.Uint64(row[rowSeq:])}
		}
	}()
	for begin := q.rows; ; {
		next := r.row()
		t := little.Uint64(next[rowTime:])
		if t < q.since {
			return last, false // so is all before
		}
		if t < bound.time || t == bound.time && r.place().compare(bound) < 0 {
			return last, true
		}
		row = next
		q.rows++
		done := false
		if q.wants(row) {
			if rec, ok := q.fetch(r.w.files[r.file], row); ok {
				*items = append(*items, rec)
				done = len(*items) == q.f.Limit
			}
			done = done || q.read >= maxScanned || q.read%256 == 0
		}
		done = done || q.rows-begin >= maxRows/8
		if !r.back() {
			return last, false
		}
		if done {
			return last, true
		}
	}
}

// follow looks for rows behind the cursor each time that there are more.
func (x *rowIndex) follow(ctx context.Context, f Filter, after string, emit func(Record, string) error) error {
	at := parsePlace(after)
	if after == "" {
		flushed, cancel := context.WithTimeout(ctx, flushTimeout)
		_ = x.flush(flushed)
		cancel()
		at = x.end()
	}
	for {
		x.mu.RLock()
		grown := x.grown
		x.mu.RUnlock()
		for more := true; more; {
			var err error
			if at, more, err = x.emit(f, at, emit); err != nil {
				return err
			}
		}
		select {
		case <-grown:
		case <-x.done:
			return sandbox.Errorf(sandbox.Unavailable, "the audit log is closed")
		case <-ctx.Done():
			return nil
		}
	}
}

// end is the place of the newest record.
func (x *rowIndex) end() (newest rowPlace) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, w := range x.writers {
		if r, ok := w.before(rowPlace{time: 1<<63 - 1}); ok && r.place().compare(newest) > 0 {
			newest = r.place()
		}
	}
	return newest
}

// followed bounds what one step of follow holds in memory: no caller waits for a slow reader with the index locked.
const followed = 256

// emit returns some records behind at. more: there may be others.
func (x *rowIndex) emit(f Filter, at rowPlace, emit func(Record, string) error) (end rowPlace, more bool, err error) {
	type item struct {
		r     Record
		place rowPlace
	}
	var items []item
	end, more = func() (rowPlace, bool) {
		x.mu.RLock()
		defer x.mu.RUnlock()
		q := newRowQuery(f)
		defer q.close()
		if !x.ready {
			return at, false
		}
		var readers []*rowReader
		behind := rowPlace{at.time, at.writer, at.seq + 1}
		for _, w := range x.writers {
			if r := w.from(behind); len(w.files) > 0 && (r.i < w.files[r.file].len() || r.on()) {
				readers = append(readers, r)
			}
		}
		end := at
		for len(readers) > 0 {
			if q.rows++; len(items) >= followed || q.rows > maxRows/8 || q.read > maxScanned/8 {
				return end, true
			}
			first := 0
			for i := 1; i < len(readers); i++ {
				if readers[i].place().compare(readers[first].place()) < 0 {
					first = i
				}
			}
			r := readers[first]
			end = r.place()
			if row := r.row(); q.wants(row) {
				if rec, ok := q.fetch(r.w.files[r.file], row); ok {
					items = append(items, item{rec, end})
				}
			}
			if !r.on() {
				readers = slices.Delete(readers, first, first+1)
			}
		}
		return end, false
	}()
	for _, it := range items {
		if err := emit(it.r, it.place.String()); err != nil {
			return end, false, err
		}
	}
	return end, more, nil
}
