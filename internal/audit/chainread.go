package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
)

// chain reads the lines of a writer's segments in order.
type chain struct {
	ctx   context.Context
	segs  []segment
	begin uint64 // number of the first record, as the names of the files have it
	f     *os.File
	in    *lines
	name  string
	line  int
	// unreadable: the end of the open segment could not be unpacked.
	unreadable bool
}

func (c *chain) close() {
	if c.f != nil {
		_ = c.f.Close()
	}
}

// next returns a line, or io.EOF. The end of the last segment without a newline is a record that is
// being written, or was when its server died: it is no record yet. Zeros at the end of any are room for records.
func (c *chain) next() (found, error) {
	for {
		if c.in == nil {
			if len(c.segs) == 0 {
				return found{}, io.EOF
			}
			f, unreadable, err := c.segs[0].open(c.ctx)
			if err != nil {
				return found{}, err
			}
			c.close()
			c.unreadable = unreadable
			c.f, c.in, c.name, c.line = f, newLines(f), filepath.Base(c.segs[0].path), 0
			c.segs = c.segs[1:]
		}
		line, err := c.in.next()
		if errors.Is(err, io.EOF) {
			again, broken, err := c.pass()
			switch {
			case err != nil:
				return found{}, err
			case again:
				continue
			}
			if c.line++; broken || c.unreadable {
				c.unreadable = c.unreadable && broken
				return found{segment: c.name, line: c.line}, nil
			}
			c.in = nil
			continue
		}
		if err != nil {
			return found{}, err
		}
		c.line++
		r, intact := record.Decode(line)
		return found{Record: r, intact: intact, segment: c.name, line: c.line}, nil
	}
}

// pass goes on where no whole line follows. again: there is one by now. broken: what is there is no record, and passed over.
func (c *chain) pass() (again, broken bool, err error) {
	for tries := 0; ; tries++ {
		at := c.in.at
		left, err := c.in.leftover()
		if err != nil || left == nothing || left == torn && len(c.segs) == 0 {
			return false, false, err
		}
		if _, err := c.in.next(); err == nil { // it was being written
			c.in.at = at
			_ = c.in.forget()
			return true, false, nil
		}
		if tries < readTries {
			time.Sleep(readPause)
			continue
		}
		return false, true, c.in.skip()
	}
}

// A record that is being written may be seen in part, its end before its beginning. It is looked at again.
const (
	readTries = 3
	readPause = 2 * time.Millisecond
)

// maxUnpacked bounds a segment that is unpacked to be read.
const maxUnpacked = 4 << 30

// open opens a segment to be read. A packed segment is unpacked into a file without a name. unreadable: only its beginning could be.
func (s segment) open(ctx context.Context) (f *os.File, unreadable bool, err error) {
	from, err := os.Open(s.path)
	if err != nil || !strings.HasSuffix(s.path, packedSuffix) {
		return from, false, err
	}
	defer from.Close()
	if f, err = os.CreateTemp("", "skerry-audit-"); err != nil {
		return nil, false, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	w := noteError{w: f}
	n, err := unpack(ctx, &w, from, maxUnpacked)
	if e := errors.Join(ctx.Err(), w.err); e != nil {
		return nil, false, errors.Join(e, f.Close())
	}
	return f, err != nil || n > maxUnpacked, nil
}

// noteError tells errors of writing from those of reading.
type noteError struct {
	w   io.Writer
	err error
}

func (w *noteError) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.err = errors.Join(w.err, err)
	return n, err
}

// openChain reads the segments that are in any of some folders. bad: two copies of one are not the same.
func openChain(ctx context.Context, dirs []string) (c *chain, bad *BadRecord, err error) {
	var all []segment
	for _, dir := range dirs {
		for _, suffix := range []string{segmentSuffix, packedSuffix} {
			segs, err := segmentsNamed(dir, suffix)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, segs...)
		}
	}
	slices.SortStableFunc(all, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	c = &chain{ctx: ctx}
	for _, s := range all {
		n := len(c.segs)
		if n == 0 || c.segs[n-1].first != s.first {
			c.segs = append(c.segs, s)
			continue
		}
		longer, line, err := compareCopies(ctx, c.segs[n-1], s, s.first == all[len(all)-1].first)
		if err != nil {
			return nil, nil, err
		}
		if line > 0 {
			return nil, &BadRecord{
				Seq: s.first + uint64(line) - 1, Segment: filepath.Base(s.path), Line: line, Reason: BadChanged,
				Detail: "the copies of this segment are not the same: " + c.segs[n-1].path + " and " + s.path,
			}, nil
		}
		c.segs[n-1] = longer
	}
	if len(c.segs) > 0 {
		c.begin = c.segs[0].first
	}
	return c, nil, nil
}

// compareCopies returns the longer one of two copies of a segment, and the line in which they differ, from 1, 0: none. Only of the last
// segment, which may have grown after it was copied, one may end before the other.
func compareCopies(ctx context.Context, a, b segment, last bool) (longer segment, line int, err error) {
	var in [2]*lines
	var broken [2]bool
	for i, s := range []segment{a, b} {
		f, unreadable, err := s.open(ctx)
		if err != nil {
			return a, 0, err
		}
		defer f.Close()
		in[i], broken[i] = newLines(f), unreadable
	}
	for line = 1; ; line++ {
		if line%1000 == 0 && ctx.Err() != nil {
			return a, 0, ctx.Err()
		}
		x, errX := in[0].next()
		y, errY := in[1].next()
		endX, endY := errors.Is(errX, io.EOF), errors.Is(errY, io.EOF)
		switch {
		case errX != nil && !endX:
			return a, 0, errX
		case errY != nil && !endY:
			return a, 0, errY
		case endX && broken[0], endY && broken[1]:
			return a, line, nil
		case endX && endY:
			return a, 0, nil
		case endX && last:
			return b, 0, nil
		case endY && last:
			return a, 0, nil
		case endX || endY || !bytes.Equal(x, y):
			return a, line, nil
		}
	}
}
