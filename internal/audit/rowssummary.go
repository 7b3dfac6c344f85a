package audit

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/summary"
)

// countedRows is how many rows of the newest writer are counted before the clock is looked at.
const countedRows = 4096

// count walks backwards over the rows of all writers, a step at a time: of each writer it takes all rows that are as
// new as the last one of the step, so that what it left out when the time is over is older than since.
func (x *rowIndex) count(ctx context.Context, f Filter, c *summary.Counter, deadline time.Time) (since int64, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.ready {
		return 0, errIndexing
	}
	q := newRowQuery(f)
	defer q.close()
	var readers []*rowCounter
	for _, w := range x.writers {
		if r, ok := w.before(rowPlace{time: 1<<63 - 1}); ok {
			readers = append(readers, &rowCounter{rowReader: r, q: q, c: c})
		}
	}
	defer func() {
		for _, r := range readers {
			r.leave()
		}
	}()
	for len(readers) > 0 {
		newest := slices.MaxFunc(readers, func(a, b *rowCounter) int { return int(int64(a.time()) - int64(b.time())) })
		bound := newest.ahead(countedRows)
		readers = slices.DeleteFunc(readers, func(r *rowCounter) bool {
			more := r.take(bound)
			if !more {
				r.leave()
			}
			return !more
		})
		if len(readers) > 0 && (q.read >= maxScanned || q.rows >= maxRows || time.Now().After(deadline) || ctx.Err() != nil) {
			return int64(bound), ctx.Err()
		}
	}
	return 0, nil
}

// rowCounter counts the rows of one writer. What it counts by hashes are those of one segment.
type rowCounter struct {
	*rowReader
	q *rowQuery
	c *summary.Counter

	entered *rowFile
	names   *rowNames
	none    bool // no record of the segment matches
	reads   bool // hashes do not say enough: each record is read
	sums    [summary.Fields]map[uint32]*summary.Tally
	ends    map[uint32]summary.Tally // by the hash of the outcome
}

func (r *rowCounter) time() uint64 { return little.Uint64(r.row()[rowTime:]) }

// ahead is the time of a row of the same segment that comes n rows later.
func (r *rowCounter) ahead(n int) uint64 {
	return little.Uint64(r.w.files[r.file].row(max(0, r.i-n))[rowTime:])
}

// take counts the rows that are not older than bound. more: there are others.
func (r *rowCounter) take(bound uint64) (more bool) {
	for {
		f := r.w.files[r.file]
		if f != r.entered {
			r.leave()
			r.enter(f)
		}
		row := r.row()
		t := little.Uint64(row[rowTime:])
		if t < r.q.since {
			return false // so is all before
		}
		if t < bound {
			return true
		}
		r.q.rows++
		if !r.none && r.q.wants(row) {
			r.count(f, row, int64(t)-int64(little.Uint32(row[rowBack:])))
		}
		if !r.back() {
			return false
		}
	}
}

// enter finds out what the hashes of a segment are good for.
func (r *rowCounter) enter(f *rowFile) {
	r.entered, r.names, r.none = f, f.valueNames(), false
	for i := range r.sums {
		r.sums[i] = map[uint32]*summary.Tally{}
	}
	r.ends = map[uint32]summary.Tally{}
	w := r.q.f
	r.reads = w.Text != "" || w.Thread != "" || w.Exec != ""
	if r.names == nil || r.names.clash {
		r.reads = true
		return
	}
	r.reads = r.reads || r.names.full[nameOutcome]
	for field, want := range map[int]string{nameTenant: w.Tenant, nameUser: w.User, nameAction: w.Action, nameTool: w.Tool, nameOutcome: w.Outcome} {
		if want == "" && field != nameTenant {
			continue
		}
		switch value, ok := r.names.values[field][short(want)]; {
		case ok && value == want:
		case r.names.full[field]:
			r.reads = true
		default:
			r.none = true
		}
	}
	for hash, outcome := range r.names.values[nameOutcome] {
		r.ends[hash] = summary.Of(outcome)
	}
}

// count counts a row that fits by its hashes. A row knows its time to the millisecond: at the edge of the filter the
// record says more.
func (r *rowCounter) count(f *rowFile, row []byte, own int64) {
	if r.reads || uint64(own) == r.q.since || uint64(own)+1 == r.q.until {
		if rec, ok := r.q.fetch(f, row); ok {
			countRecord(r.c, rec)
		}
		return
	}
	t := r.ends[little.Uint32(row[rowOutcome:])]
	r.c.Count(own, t)
	r.sum(summary.User, little.Uint32(row[rowUser:]), t)
	r.sum(summary.Action, little.Uint32(row[rowAction:]), t)
	r.sum(summary.Outcome, little.Uint32(row[rowOutcome:]), t)
	if tool := little.Uint32(row[rowTool:]); tool != 0 {
		r.sum(summary.Tool, tool, t)
	}
}

func (r *rowCounter) sum(facet int, hash uint32, t summary.Tally) {
	sum := r.sums[facet][hash]
	if sum == nil {
		sum = &summary.Tally{}
		r.sums[facet][hash] = sum
	}
	sum.Add(t)
}

// leave adds what was counted of a segment to the rest.
func (r *rowCounter) leave() {
	if r.entered == nil {
		return
	}
	r.entered = nil
	if r.names == nil {
		return
	}
	for i, field := range [summary.Fields]int{summary.User: nameUser, summary.Action: nameAction, summary.Tool: nameTool, summary.Outcome: nameOutcome} {
		for hash, t := range r.sums[i] {
			if value, ok := r.names.values[field][hash]; ok {
				r.c.Value(i, value, *t)
			} else {
				r.c.Other(i, *t)
			}
		}
	}
}
