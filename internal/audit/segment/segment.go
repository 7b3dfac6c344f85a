package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
)

// A writer's log is a folder of segments, each named after the Seq of its first record.
const (
	// Suffix is that of a segment.
	Suffix = ".jsonl"
	// AttemptsSuffix names what was open when a segment was begun (attempts.go).
	AttemptsSuffix = ".open"
	// MaxLine bounds a line when it is read. What Append writes is well below.
	MaxLine = 256 << 10
)

// Name is the name of the segment that begins with a record.
func Name(first uint64) string { return fmt.Sprintf("%020d%s", first, Suffix) }

// Segment is one file of a writer's log.
type Segment struct {
	Path  string
	First uint64
}

// List lists a writer's folder in order. Files with other names are not of the log.
func List(dir string) ([]Segment, error) { return ListNamed(dir, Suffix) }

// ListNamed lists the files with another suffix.
func ListNamed(dir, suffix string) ([]Segment, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Segment
	for _, n := range names {
		digits, ok := strings.CutSuffix(n.Name(), suffix)
		if !ok || len(digits) != 20 || !n.Type().IsRegular() {
			continue
		}
		if first, err := strconv.ParseUint(digits, 10, 64); err == nil && first > 0 {
			out = append(out, Segment{Path: filepath.Join(dir, n.Name()), First: first})
		}
	}
	slices.SortFunc(out, func(a, b Segment) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Scanned is what scan found besides records. Offsets are those behind an intact record, 0 before the first.
type Scanned struct {
	End  int64 // behind the last one
	Hole int64 // before the first damage that has zeros in it and something behind them; -1: there is none
	Head int64 // behind the last signed head
}

// Scan calls each with every intact record of a segment, in the order of the file.
func Scan(path string, each func(record.Record)) (s Scanned, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	in := NewLines(f)
	s.Hole = -1
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			left, err := in.Leftover()
			if err != nil || left != Damage {
				return s, err
			}
			if s.Hole < 0 {
				s.Hole = s.End
			}
			if err := in.Skip(); err != nil {
				return s, err
			}
			continue
		}
		if err != nil {
			return s, err
		}
		if r, intact := record.Decode(line); intact {
			s.End = in.At
			if r.Action == record.ActionHead {
				s.Head = s.End
			}
			each(r)
		}
	}
}

// Writers lists the writers of a folder.
func Writers(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var writers []string
	for _, e := range entries {
		if e.IsDir() && record.IsWriter(e.Name()) {
			writers = append(writers, e.Name())
		}
	}
	return writers, err
}
