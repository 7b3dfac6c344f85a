package audit

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
)

// shipment is a line on its way out of the log, with what is needed of it.
type shipment struct {
	record.Indexed
	Line []byte // without the newline
}

// follower reads a writer's segments in order while they grow.
type follower struct {
	dir  string
	log  *slog.Logger
	cuts *atomic.Uint64 // how often the log took back the beginning of a record

	seen  uint64 // value of cuts that the buffer of in is newer than
	next  uint64 // Seq of the record that read returns next
	f     *os.File
	in    *lines
	first uint64 // of the open segment
}

// seek moves to the record with Seq next.
func (w *follower) seek(next uint64) error {
	w.close()
	w.next, w.seen = next, w.cuts.Load()
	segs, err := segments(w.dir)
	if err != nil {
		return err
	}
	for i := len(segs) - 1; i >= 0; i-- {
		if segs[i].first <= next || i == 0 {
			w.next = max(next, segs[0].first) // those before were archived and removed
			return w.open(segs[i])
		}
	}
	return errors.New("the audit log has no segment")
}

func (w *follower) open(s segment) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	w.close()
	w.f, w.in, w.first = f, newLines(f), s.first
	return nil
}

func (w *follower) close() {
	if w.f != nil {
		_ = w.f.Close()
		w.f, w.in = nil, nil
	}
}

// read gives up to max records with next ≤ Seq ≤ limit, of about maxBytes together, and moves next
// behind them. Every record up to limit must be in the files. Lines that are no record are passed
// over (Verify names them): a damaged log must not keep what follows from being seen.
func (w *follower) read(limit uint64, max, maxBytes int) ([]shipment, error) {
	if w.cuts.Load() != w.seen { // bytes that were taken back may be in the buffer, records by now in their place
		if err := w.seek(w.next); err != nil {
			return nil, err
		}
	}
	var out []shipment
	for bytes := 0; w.next <= limit && len(out) < max && bytes < maxBytes; {
		line, err := w.in.next()
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
		s, ok := parseShipment(line)
		switch {
		case !ok || s.Seq < w.next:
			continue
		case s.Seq > limit:
			return out, w.skip(limit + 1)
		case s.Seq > w.next:
			w.hole(s.Seq)
		}
		w.next = s.Seq + 1
		bytes += len(s.Line)
		out = append(out, s)
	}
	return out, nil
}

// skip goes on at a record when those before it are missing.
func (w *follower) skip(to uint64) error {
	w.hole(to)
	return w.seek(to)
}

func (w *follower) hole(to uint64) {
	w.log.Error("the audit log has a hole; run skerry audit verify", "from", w.next, "to", to-1)
}

// passEnd goes on where no whole line follows: behind damage, or in the next segment when there is one.
func (w *follower) passEnd() (bool, error) {
	left, err := w.in.leftover()
	if err != nil {
		return false, err
	}
	if left == damage {
		return true, w.in.skip()
	}
	return w.nextSegment()
}

// nextSegment opens the segment behind the open one, when there is one.
func (w *follower) nextSegment() (bool, error) {
	segs, err := segments(w.dir)
	if err != nil {
		return false, err
	}
	for _, s := range segs {
		if s.first > w.first {
			return true, w.open(s)
		}
	}
	return false, nil
}

func parseShipment(line []byte) (shipment, bool) {
	r, ok := record.ParseIndexed(line)
	if !ok {
		return shipment{}, false
	}
	return shipment{r, bytes.Clone(line)}, true
}
