package verify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
)

// chain reads the lines of a writer's segments in order.
type chain struct {
	ctx   context.Context
	segs  []segment.Segment
	begin uint64 // number of the first record, as the names of the files have it
	f     *os.File
	in    *segment.Lines
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
			f, unreadable, err := c.segs[0].Open(c.ctx)
			if err != nil {
				return found{}, err
			}
			c.close()
			c.unreadable = unreadable
			c.f, c.in, c.name, c.line = f, segment.NewLines(f), filepath.Base(c.segs[0].Path), 0
			c.segs = c.segs[1:]
		}
		line, err := c.in.Next()
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
		at := c.in.At
		left, err := c.in.Leftover()
		if err != nil || left == segment.Nothing || left == segment.Torn && len(c.segs) == 0 {
			return false, false, err
		}
		if _, err := c.in.Next(); err == nil { // it was being written
			c.in.At = at
			_ = c.in.Forget()
			return true, false, nil
		}
		if tries < readTries {
			time.Sleep(readPause)
			continue
		}
		return false, true, c.in.Skip()
	}
}

// A record that is being written may be seen in part, its end before its beginning. It is looked at again.
const (
	readTries = 3
	readPause = 2 * time.Millisecond
)

// openChain reads the segments that are in any of some folders. bad: two copies of one are not the same.
func openChain(ctx context.Context, dirs []string) (c *chain, bad *BadRecord, err error) {
	var all []segment.Segment
	for _, dir := range dirs {
		for _, suffix := range []string{segment.Suffix, segment.PackedSuffix} {
			segs, err := segment.ListNamed(dir, suffix)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, segs...)
		}
	}
	slices.SortStableFunc(all, func(a, b segment.Segment) int { return cmp.Compare(a.First, b.First) })
	c = &chain{ctx: ctx}
	for _, s := range all {
		n := len(c.segs)
		if n == 0 || c.segs[n-1].First != s.First {
			c.segs = append(c.segs, s)
			continue
		}
		longer, line, err := compareCopies(ctx, c.segs[n-1], s, s.First == all[len(all)-1].First)
		if err != nil {
			return nil, nil, err
		}
		if line > 0 {
			return nil, &BadRecord{
				Seq: s.First + uint64(line) - 1, Segment: filepath.Base(s.Path), Line: line, Reason: BadChanged,
				Detail: "the copies of this segment are not the same: " + c.segs[n-1].Path + " and " + s.Path,
			}, nil
		}
		c.segs[n-1] = longer
	}
	if len(c.segs) > 0 {
		c.begin = c.segs[0].First
	}
	return c, nil, nil
}

// compareCopies returns the longer one of two copies of a segment, and the line in which they differ, from 1, 0: none. Only of the last
// segment, which may have grown after it was copied, one may end before the other.
func compareCopies(ctx context.Context, a, b segment.Segment, last bool) (longer segment.Segment, line int, err error) {
	var in [2]*segment.Lines
	var broken [2]bool
	for i, s := range []segment.Segment{a, b} {
		f, unreadable, err := s.Open(ctx)
		if err != nil {
			return a, 0, err
		}
		defer f.Close()
		in[i], broken[i] = segment.NewLines(f), unreadable
	}
	for line = 1; ; line++ {
		if line%1000 == 0 && ctx.Err() != nil {
			return a, 0, ctx.Err()
		}
		x, errX := in[0].Next()
		y, errY := in[1].Next()
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
