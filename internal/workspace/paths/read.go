package paths

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// sniffBytes is how much of a file's beginning decides whether it is text: a NUL says no.
const sniffBytes = 8000

// Read returns limit lines (0 = DefaultReadLines) of a file after the first offset ones, and at most
// MaxReadBytes. Invalid when offset is beyond the end.
func (f *FS) Read(name string, offset, limit int) (Text, error) {
	if offset < 0 || limit < 0 {
		return Text{}, sandbox.Errorf(sandbox.Invalid, "offset and limit cannot be negative")
	}
	if limit == 0 {
		limit = DefaultReadLines
	}
	file, err := f.Open(name)
	if err != nil {
		return Text{}, err
	}
	defer file.Close() //nolint:errcheck // read-only
	t := Text{Path: file.path, Bytes: file.info.Size(), Encoding: "utf-8", ModifiedAt: file.info.ModTime().UTC()}
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Text{}, fail(err, file.path)
	}
	if bytes.IndexByte(head[:n], 0) < 0 {
		if file.info.Size() > MaxScanBytes {
			return Text{}, sandbox.Errorf(sandbox.Invalid, "%s: larger than %d bytes: read it as raw content", file.path, MaxScanBytes)
		}
		lines, err := scanLines(io.LimitReader(io.MultiReader(bytes.NewReader(head[:n]), file), MaxScanBytes), offset, limit)
		if err != nil {
			return Text{}, fail(err, file.path)
		}
		if utf8.Valid(lines.content) {
			return t.fill(lines, offset)
		}
	}
	return t.binary(file)
}

// fill puts lines into t.
func (t Text) fill(l lines, offset int) (Text, error) {
	if offset > l.total {
		return Text{}, sandbox.Errorf(sandbox.Invalid, "%s: offset %d is beyond the end: the file has %d lines", t.Path, offset, l.total)
	}
	t.Content, t.TotalLines, t.Truncated = string(l.content), l.total, l.cut
	if l.taken > 0 {
		t.StartLine, t.EndLine = offset+1, offset+l.taken
	}
	if next := offset + l.taken; next < l.total {
		t.NextOffset = &next
	}
	return t, nil
}

func (t Text) binary(file *File) (Text, error) {
	raw := make([]byte, min(MaxReadBytes, file.info.Size()))
	n, err := file.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Text{}, fail(err, t.Path)
	}
	t.Encoding = "base64"
	t.Content = base64.StdEncoding.EncodeToString(raw[:n])
	t.Truncated = int64(n) < t.Bytes
	return t, nil
}

// lines are some lines of a text.
type lines struct {
	content []byte
	taken   int  // lines in content
	total   int  // lines in the text
	cut     bool // the only line in content is longer than MaxReadBytes and was cut
}

// scanLines reads all of r, keeps limit lines after the first offset ones while they fit into
// MaxReadBytes, and counts all. A last line without a line end counts.
func scanLines(r io.Reader, offset, limit int) (lines, error) {
	var l lines
	br := bufio.NewReaderSize(r, 64<<10)
	var (
		mark    int  // length of content at the beginning of the current line
		pending bool // the current line has begun
		full    bool // no further line is taken
	)
	for {
		part, err := br.ReadSlice('\n')
		if len(part) > 0 {
			if !pending {
				mark, pending = len(l.content), true
			}
			if l.total >= offset && l.total < offset+limit && !full {
				full = l.take(part, mark)
			}
			if part[len(part)-1] == '\n' {
				l.endLine(offset, limit, full)
				pending = false
			}
		}
		switch {
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			if pending {
				l.endLine(offset, limit, full)
			}
			return l, nil
		default:
			return l, err
		}
	}
}

// take adds a part of the current line, which began at mark, and reports whether that was too much.
// Then the line is given back whole, or cut when it is the only one.
func (l *lines) take(part []byte, mark int) (full bool) {
	room := MaxReadBytes - len(l.content)
	if len(part) <= room {
		l.content = append(l.content, part...)
		return false
	}
	if mark > 0 {
		l.content = l.content[:mark]
		return true
	}
	l.content = append(l.content, part[:room]...)
	for range utf8.UTFMax - 1 { // a character that is not whole
		if r, size := utf8.DecodeLastRune(l.content); r != utf8.RuneError || size != 1 {
			break
		}
		l.content = l.content[:len(l.content)-1]
	}
	l.cut, l.taken = true, 1
	return true
}

func (l *lines) endLine(offset, limit int, full bool) {
	if l.total >= offset && l.total < offset+limit && !full {
		l.taken++
	}
	l.total++
}
