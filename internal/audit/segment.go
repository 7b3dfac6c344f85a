package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// A writer's log is a folder of segments, each named after the Seq of its first record.
const (
	segmentSuffix = ".jsonl"
	// attemptsSuffix names what was open when a segment was begun (attempts.go).
	attemptsSuffix = ".open"
	// maxLine bounds a line when it is read. What Append writes is well below.
	maxLine = 256 << 10
)

func segmentName(first uint64) string { return fmt.Sprintf("%020d%s", first, segmentSuffix) }

// segment is one file of a writer's log.
type segment struct {
	path  string
	first uint64
}

// segments lists a writer's folder in order. Files with other names are not of the log.
func segments(dir string) ([]segment, error) { return segmentsNamed(dir, segmentSuffix) }

func segmentsNamed(dir, suffix string) ([]segment, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, n := range names {
		digits, ok := strings.CutSuffix(n.Name(), suffix)
		if !ok || len(digits) != 20 || !n.Type().IsRegular() {
			continue
		}
		if first, err := strconv.ParseUint(digits, 10, 64); err == nil && first > 0 {
			out = append(out, segment{path: filepath.Join(dir, n.Name()), first: first})
		}
	}
	slices.SortFunc(out, func(a, b segment) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// lines reads a segment line by line. Behind its last record a segment has zeros: room that was made ahead, and no
// part of the log. Records are written over them, so what was read of zeros is never kept.
type lines struct {
	r          io.ReaderAt
	at         int64 // offset of the line that is next
	buf        []byte
	start, end int // buf[start:end] is what is in the file at at
}

func newLines(r io.ReaderAt) *lines { return &lines{r: r, buf: make([]byte, maxLine)} }

// next returns a line without its newline, which stays valid until the call after. A line above maxLine is given cut.
// io.EOF: no whole line is left (now: a file that grows may be asked again). See leftover.
func (l *lines) next() ([]byte, error) {
	fresh := l.start == l.end // what is in the buffer was read by this call
	for searched := 0; ; {
		have := l.buf[l.start:l.end]
		end := bytes.IndexByte(have[searched:], '\n')
		line := have
		if end >= 0 {
			line = have[:searched+end]
		}
		if bytes.IndexByte(line[searched:], 0) >= 0 {
			if eof := l.forget(); fresh {
				return nil, eof
			}
			fresh, searched = true, 0
			continue
		}
		if end >= 0 {
			l.start += len(line) + 1
			l.at += int64(len(line)) + 1
			return line, nil
		}
		if searched = len(have); searched == len(l.buf) {
			return l.tooLong()
		}
		if l.start > 0 {
			l.start, l.end = 0, copy(l.buf, have)
		}
		n, err := l.r.ReadAt(l.buf[l.end:], l.at+int64(l.end))
		l.end += n
		if n == 0 && errors.Is(err, io.EOF) {
			return nil, l.forget()
		}
		if n == 0 {
			return nil, err
		}
	}
}

// forget drops what was read ahead, and returns io.EOF.
func (l *lines) forget() error {
	l.start, l.end = 0, 0
	return io.EOF
}

// tooLong returns the line that fills the buffer, cut, once its end is found.
func (l *lines) tooLong() ([]byte, error) {
	end, err := l.find(l.at+int64(len(l.buf)), func(part []byte) int { return bytes.IndexByte(part, '\n') })
	_ = l.forget()
	if err != nil {
		return nil, err
	}
	l.at = end + 1
	return l.buf, nil
}

// find returns the offset, from from on, of the byte whose place in a part of the file at tells; io.EOF: there is none.
func (l *lines) find(from int64, at func(part []byte) int) (int64, error) {
	part := make([]byte, 64<<10)
	for {
		n, err := l.r.ReadAt(part, from)
		if i := at(part[:n]); i >= 0 {
			return from + int64(i), nil
		}
		if err != nil {
			return 0, err
		}
		from += int64(n)
	}
}

// leftover is what lies behind the last whole line.
type leftover int

const (
	nothing leftover = iota // at most zeros
	torn                    // the beginning of a record, then at most zeros: it is being written, or was when its server died
	damage                  // more than that
)

// leftover looks at what next ended before.
func (l *lines) leftover() (leftover, error) {
	zero, err := l.find(l.at, func(part []byte) int { return bytes.IndexByte(part, 0) })
	kind := torn
	switch {
	case errors.Is(err, io.EOF): // no zeros: the size says whether there is anything
		if _, err = l.find(l.at, firstText); errors.Is(err, io.EOF) {
			return nothing, nil
		}
		return torn, err
	case err != nil:
		return 0, err
	case zero == l.at:
		kind = nothing
	}
	switch _, err = l.find(zero, firstText); {
	case err == nil:
		return damage, nil
	case errors.Is(err, io.EOF):
		return kind, nil
	}
	return 0, err
}

// firstText finds a byte that is not zero.
func firstText(part []byte) int {
	for i, c := range part {
		if c != 0 {
			return i
		}
	}
	return -1
}

// skip goes behind the next end of a line, over zeros too, or else to the end of the file: behind damage.
func (l *lines) skip() error {
	_ = l.forget()
	text, err := l.find(l.at, firstText)
	if err == nil {
		text, err = l.find(text, func(part []byte) int { return bytes.IndexByte(part, '\n') })
	}
	if errors.Is(err, io.EOF) {
		l.at = math.MaxInt64 >> 1
		return nil
	}
	l.at = text + 1
	return err
}

// scanned is what scan found besides records. Offsets are those behind an intact record, 0 before the first.
type scanned struct {
	end  int64 // behind the last one
	hole int64 // before the first damage that has zeros in it and something behind them; -1: there is none
	head int64 // behind the last signed head
}

// scan calls each with every intact record of a segment, in the order of the file.
func scan(path string, each func(Record)) (s scanned, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	in := newLines(f)
	s.hole = -1
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			left, err := in.leftover()
			if err != nil || left != damage {
				return s, err
			}
			if s.hole < 0 {
				s.hole = s.end
			}
			if err := in.skip(); err != nil {
				return s, err
			}
			continue
		}
		if err != nil {
			return s, err
		}
		if r, intact := record.Decode(line); intact {
			s.end = in.at
			if r.Action == ActionHead {
				s.head = s.end
			}
			each(r)
		}
	}
}

// writeFile writes a small file as a whole or not at all.
func writeFile(path string, text []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return lockedfile.SyncDir(filepath.Dir(path))
}
