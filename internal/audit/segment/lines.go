package segment

import (
	"bytes"
	"errors"
	"io"
	"math"
)

// Lines reads a segment line by line. Behind its last record a segment has zeros: room that was made ahead, and no
// part of the log. Records are written over them, so what was read of zeros is never kept.
type Lines struct {
	r          io.ReaderAt
	At         int64 // offset of the line that is next
	buf        []byte
	start, end int // buf[start:end] is what is in the file at At
}

// NewLines reads a file from its beginning.
func NewLines(r io.ReaderAt) *Lines { return &Lines{r: r, buf: make([]byte, MaxLine)} }

// Next returns a line without its newline, which stays valid until the call after. A line above MaxLine is given cut.
// io.EOF: no whole line is left (now: a file that grows may be asked again). See Leftover.
func (l *Lines) Next() ([]byte, error) {
	fresh := l.start == l.end // what is in the buffer was read by this call
	for searched := 0; ; {
		have := l.buf[l.start:l.end]
		end := bytes.IndexByte(have[searched:], '\n')
		line := have
		if end >= 0 {
			line = have[:searched+end]
		}
		if bytes.IndexByte(line[searched:], 0) >= 0 {
			if eof := l.Forget(); fresh {
				return nil, eof
			}
			fresh, searched = true, 0
			continue
		}
		if end >= 0 {
			l.start += len(line) + 1
			l.At += int64(len(line)) + 1
			return line, nil
		}
		if searched = len(have); searched == len(l.buf) {
			return l.tooLong()
		}
		if l.start > 0 {
			l.start, l.end = 0, copy(l.buf, have)
		}
		n, err := l.r.ReadAt(l.buf[l.end:], l.At+int64(l.end))
		l.end += n
		if n == 0 && errors.Is(err, io.EOF) {
			return nil, l.Forget()
		}
		if n == 0 {
			return nil, err
		}
	}
}

// Forget drops what was read ahead, and returns io.EOF.
func (l *Lines) Forget() error {
	l.start, l.end = 0, 0
	return io.EOF
}

// tooLong returns the line that fills the buffer, cut, once its end is found.
func (l *Lines) tooLong() ([]byte, error) {
	end, err := l.find(l.At+int64(len(l.buf)), func(part []byte) int { return bytes.IndexByte(part, '\n') })
	_ = l.Forget()
	if err != nil {
		return nil, err
	}
	l.At = end + 1
	return l.buf, nil
}

// find returns the offset, from from on, of the byte whose place in a part of the file at tells; io.EOF: there is none.
func (l *Lines) find(from int64, at func(part []byte) int) (int64, error) {
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

// Rest is what lies behind the last whole line.
type Rest int

const (
	Nothing Rest = iota // at most zeros
	Torn                // the beginning of a record, then at most zeros: it is being written, or was when its server died
	Damage              // more than that
)

// Leftover looks at what Next ended before.
func (l *Lines) Leftover() (Rest, error) {
	zero, err := l.find(l.At, func(part []byte) int { return bytes.IndexByte(part, 0) })
	kind := Torn
	switch {
	case errors.Is(err, io.EOF): // no zeros: the size says whether there is anything
		if _, err = l.find(l.At, firstText); errors.Is(err, io.EOF) {
			return Nothing, nil
		}
		return Torn, err
	case err != nil:
		return 0, err
	case zero == l.At:
		kind = Nothing
	}
	switch _, err = l.find(zero, firstText); {
	case err == nil:
		return Damage, nil
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

// Skip goes behind the next end of a line, over zeros too, or else to the end of the file: behind damage.
func (l *Lines) Skip() error {
	_ = l.Forget()
	text, err := l.find(l.At, firstText)
	if err == nil {
		text, err = l.find(text, func(part []byte) int { return bytes.IndexByte(part, '\n') })
	}
	if errors.Is(err, io.EOF) {
		l.At = math.MaxInt64 >> 1
		return nil
	}
	l.At = text + 1
	return err
}

// End returns the offset behind the last byte of a file that is not zero, or from when there is none behind it.
func End(f io.ReaderAt, from int64) (int64, error) {
	in, last := Lines{r: f}, from
	_, err := in.find(from, func(part []byte) int {
		if text := bytes.TrimRight(part, "\x00"); len(text) > 0 {
			last = from + int64(len(text))
		}
		from += int64(len(part))
		return -1
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return last, err
}
