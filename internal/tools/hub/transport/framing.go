package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// lineReader notes when the line began whose end it has not seen yet, and how much there is of it.
type lineReader struct {
	r     io.Reader
	began atomic.Int64 // in Unix nanoseconds; 0 between lines
	bytes atomic.Int64
}

// Read implements io.Reader.
func (l *lineReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	switch i := bytes.LastIndexByte(p[:n], '\n'); {
	case n > 0 && i == n-1:
		l.began.Store(0)
	case i >= 0, n > 0 && l.began.Load() == 0:
		l.bytes.Store(int64(n - 1 - i))
		l.began.Store(time.Now().UnixNano())
	default:
		l.bytes.Add(int64(n))
	}
	return n, err
}

// dripRate is how many bytes a second of a message must arrive.
const dripRate = 64 << 10

// Stuck reports whether the same line has been coming in for d, and slowly.
func (l *lineReader) stuck(d time.Duration) bool {
	began := l.began.Load()
	age := time.Since(time.Unix(0, began))
	return began != 0 && age >= d && float64(l.bytes.Load()) < age.Seconds()*dripRate
}

// frames reads messages that end with a line feed, as stdio servers write them. A message over the
// limit is skipped to its end; only its id is kept, so that the one call that it answers fails and
// the connection lives on.
type frames struct {
	r     *bufio.Reader
	limit int
}

func newFrames(r io.Reader, limit int) *frames {
	return &frames{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// tooLarge is a message that was skipped. id is the raw JSON of its id, nil when none was seen.
type tooLarge struct{ id json.RawMessage }

func (tooLarge) Error() string { return "a message is larger than the limit" }

// next returns the next line that is not empty, without its end. It is valid until the call after.
func (f *frames) next() ([]byte, error) {
	for {
		line, err := f.r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if line, err = f.long(line); err != nil {
				return nil, err
			}
		} else if err != nil && (len(bytes.TrimSpace(line)) == 0 || !errors.Is(err, io.EOF)) {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// long reads the rest of a line whose beginning fills the buffer.
func (f *frames) long(begin []byte) ([]byte, error) {
	line := bytes.Clone(begin)
	for {
		part, err := f.r.ReadSlice('\n')
		if len(line)+len(part) > f.limit {
			return nil, f.skip(line, part, err)
		}
		line = append(line, part...)
		if err == nil || errors.Is(err, io.EOF) {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// skip reads on to the end of a line that is too long, looking for its id.
func (f *frames) skip(line, part []byte, err error) error {
	var s idScanner
	s.scan(line)
	s.scan(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = f.r.ReadSlice('\n')
		s.scan(part)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return tooLarge{id: s.id}
}

// idScanner finds the member "id" of a JSON object that goes by in parts, without keeping the rest.
type idScanner struct {
	id json.RawMessage

	depth    int
	inString bool
	escaped  bool
	value    bool   // in the value of a member of the outer object
	isID     bool   // that member is the id
	text     []byte // of the key, without its quotes, or of the id
}

const maxID = 256

func (s *idScanner) scan(part []byte) {
	for i := 0; i < len(part); i++ {
		c := part[i]
		if s.inString {
			s.string(c)
			if !s.keeps() && !s.escaped && s.inString { // a long text is passed over quickly
				n := bytes.IndexAny(part[i+1:], "\"\\")
				if n < 0 {
					return
				}
				i += n
			}
			continue
		}
		switch c {
		case '"':
			s.inString, s.escaped = true, false
			if s.value {
				s.take(c)
			}
		case '{', '[':
			s.depth++
		case '}', ']':
			s.end()
			s.depth--
		case ',':
			s.end()
		case ':':
			if s.depth == 1 {
				s.value, s.isID, s.text = true, string(s.text) == "id", s.text[:0]
			}
		case ' ', '\t', '\r', '\n':
		default:
			s.take(c)
		}
	}
}

func (s *idScanner) string(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inString = false
		if !s.value {
			return
		}
	}
	s.take(c)
}

// keeps reports whether the text that goes by is a key or the id.
func (s *idScanner) keeps() bool { return s.depth == 1 && (!s.value || s.isID) }

// take keeps a character of a key or of the id.
func (s *idScanner) take(c byte) {
	if s.keeps() && len(s.text) < maxID {
		s.text = append(s.text, c)
	}
}

// end ends a member of the outer object.
func (s *idScanner) end() {
	if s.depth != 1 {
		return
	}
	if s.isID && s.id == nil && json.Valid(s.text) {
		s.id = bytes.Clone(s.text)
	}
	s.value, s.isID, s.text = false, false, s.text[:0]
}
