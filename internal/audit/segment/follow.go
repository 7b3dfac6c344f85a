package segment

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
)

// Line is a line on its way out of the log, with what is needed of it.
type Line struct {
	record.Indexed
	Text []byte // without the newline
}

// Follower reads a writer's segments in order while they grow.
type Follower struct {
	dir  string
	log  *slog.Logger
	cuts *atomic.Uint64 // how often the log took back the beginning of a record

	seen  uint64 // value of cuts that the buffer of in is newer than
	next  uint64 // Seq of the record that Read returns next
	f     *os.File
	in    *Lines
	first uint64 // of the open segment
}

// Seek moves to the record with Seq next.
func (w *Follower) Seek(next uint64) error {
	w.Close()
	w.next, w.seen = next, w.cuts.Load()
	segs, err := List(w.dir)
	if err != nil {
		return err
	}
	for i := len(segs) - 1; i >= 0; i-- {
		if segs[i].First <= next || i == 0 {
			w.next = max(next, segs[0].First) // those before were archived and removed
			return w.open(segs[i])
		}
	}
	return errors.New("the audit log has no segment")
}

func (w *Follower) open(s Segment) error {
	f, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	w.Close()
	w.f, w.in, w.first = f, NewLines(f), s.First
	return nil
}

// NewFollower returns a Follower of a writer's folder. cuts counts how often the log took back the beginning of a record.
func NewFollower(dir string, cuts *atomic.Uint64, log *slog.Logger) Follower {
	return Follower{dir: dir, log: log, cuts: cuts}
}

// Next is the Seq of the record that Read returns next.
func (w *Follower) Next() uint64 { return w.next }

// Close closes the open segment.
func (w *Follower) Close() {
	if w.f != nil {
		_ = w.f.Close()
		w.f, w.in = nil, nil
	}
}

// Read returns up to max records with next ≤ Seq ≤ limit, of about maxBytes together, and moves next
// behind them. Every record up to limit must be in the files. Lines that are no record are passed
// over (Verify names them): a damaged log must not keep what follows from being seen.
func (w *Follower) Read(limit uint64, max, maxBytes int) ([]Line, error) {
	if w.cuts.Load() != w.seen { // bytes that were taken back may be in the buffer, records by now in their place
		if err := w.Seek(w.next); err != nil {
			return nil, err
		}
	}
	var out []Line
	for bytes := 0; w.next <= limit && len(out) < max && bytes < maxBytes; {
		line, err := w.in.Next()
		if errors.Is(err, io.EOF) {
			more, err := w.passEnd()
			if err != nil {
				return nil, err
			}
			if !more {
				return out, w.skip(limit + 1)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		s, ok := parseLine(line)
		switch {
		case !ok || s.Seq < w.next:
			continue
		case s.Seq > limit:
			return out, w.skip(limit + 1)
		case s.Seq > w.next:
			w.hole(s.Seq)
		}
		w.next = s.Seq + 1
		bytes += len(s.Text)
		out = append(out, s)
	}
	return out, nil
}

// skip goes on at a record when those before it are missing.
func (w *Follower) skip(to uint64) error {
	w.hole(to)
	return w.Seek(to)
}

func (w *Follower) hole(to uint64) {
	w.log.Error("the audit log has a hole; run skerry audit verify", "from", w.next, "to", to-1)
}

// passEnd goes on where no whole line follows: behind damage, or in the next segment when there is one.
func (w *Follower) passEnd() (bool, error) {
	left, err := w.in.Leftover()
	if err != nil {
		return false, err
	}
	if left == Damage {
		return true, w.in.Skip()
	}
	return w.nextSegment()
}

// nextSegment opens the segment behind the open one, when there is one.
func (w *Follower) nextSegment() (bool, error) {
	segs, err := List(w.dir)
	if err != nil {
		return false, err
	}
	for _, s := range segs {
		if s.First > w.first {
			return true, w.open(s)
		}
	}
	return false, nil
}

func parseLine(line []byte) (Line, bool) {
	r, ok := record.ParseIndexed(line)
	if !ok {
		return Line{}, false
	}
	return Line{r, bytes.Clone(line)}, true
}
