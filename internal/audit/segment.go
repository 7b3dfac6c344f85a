package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/lockedfile"
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
func segments(dir string) ([]segment, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, n := range names {
		digits, ok := strings.CutSuffix(n.Name(), segmentSuffix)
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

// lines reads a segment line by line.
type lines struct {
	r    *bufio.Reader
	long []byte
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, maxLine)} }

// next gives a line without its newline, which stays valid until the call after; n is the bytes that
// it took. whole is false for an end of the file without a newline. A line above maxLine is given
// cut. io.EOF: nothing is left (now: a file that grows may be asked again).
func (l *lines) next() (line []byte, n int64, whole bool, err error) {
	line, err = l.r.ReadSlice('\n')
	n = int64(len(line))
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = l.r.ReadSlice('\n')
			n += int64(len(more))
		}
		if err == nil {
			return l.long, n, true, nil
		}
		line = l.long
	}
	switch {
	case err == nil:
		return line[:len(line)-1], n, true, nil
	case errors.Is(err, io.EOF) && n > 0:
		return line, n, false, nil
	}
	return nil, 0, false, err
}

// scan calls each with every intact record of a segment, in the order of the file, and gives the
// offset behind the last one.
func scan(path string, each func(Record)) (end int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in, at := newLines(f), int64(0)
	for {
		line, n, whole, err := in.next()
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		at += n
		if !whole {
			continue
		}
		if r, intact := decode(line); intact {
			end = at
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
