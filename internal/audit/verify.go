package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The ways in which a record can be bad.
const (
	BadChanged   = "changed"   // it is not what its hash says, or its hash is not what the next record says
	BadRemoved   = "removed"   // it is not there
	BadReordered = "reordered" // it stands where an earlier one belongs, which comes later
	BadInserted  = "inserted"  // it does not belong there: a copy, another writer's, or made up
)

// BadRecord names the first record that is not as it was written.
type BadRecord struct {
	Writer  string `json:"writer"`
	Seq     uint64 `json:"seq"`          // its number, or the number that belongs there
	ID      string `json:"id,omitempty"` // when it can be read
	Segment string `json:"segment,omitempty"`
	Line    int    `json:"line,omitempty"` // in the segment, from 1
	Reason  string `json:"reason"`
}

// Head is the last record of a writer. A cut end of a log cannot be seen in its files: compare the
// head with one that is kept elsewhere.
type Head struct {
	Writer string    `json:"writer"`
	Seq    uint64    `json:"seq"`
	Hash   string    `json:"hash"`
	Time   time.Time `json:"time"`
}

// VerifyResult says whether a log is as it was written, up to the heads.
type VerifyResult struct {
	OK       bool       `json:"ok"`
	Records  uint64     `json:"records"` // that are good, up to the first bad one of each writer
	FirstBad *BadRecord `json:"first_bad,omitempty"`
	Heads    []Head     `json:"heads,omitempty"` // of the writers whose records are all good
}

// Verify reads a log's files (Options.Dir) and checks every record: its hash, its number, and that it
// follows the one before. The log may be in use. What the files alone cannot show is a cut end, and a
// log that was written anew from some record on with all its hashes.
func Verify(dir string) (VerifyResult, error) {
	res := VerifyResult{OK: true}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return res, nil
	}
	if err != nil {
		return VerifyResult{}, fmt.Errorf("verify the audit log: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || !writerPattern.MatchString(e.Name()) {
			continue
		}
		v := verifier{writer: e.Name(), dir: filepath.Join(dir, e.Name())}
		bad, err := v.run()
		if err != nil {
			return VerifyResult{}, fmt.Errorf("verify the audit log: %w", err)
		}
		res.Records += v.good
		if bad == nil && v.good > 0 {
			res.Heads = append(res.Heads, Head{Writer: v.writer, Seq: v.last.Seq, Hash: v.last.Hash, Time: v.last.Time})
		}
		if bad != nil && res.OK {
			res.OK, res.FirstBad = false, bad
		}
	}
	return res, nil
}

// found is a line of a log.
type found struct {
	Record
	intact  bool
	segment string
	line    int
}

// verifier checks one writer's log.
type verifier struct {
	writer, dir string
	good        uint64
	last        found // the last good one
}

func (v *verifier) run() (*BadRecord, error) {
	in, err := openChain(v.dir)
	if err != nil {
		return nil, err
	}
	defer in.close()
	for {
		at, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if at.intact && at.Writer == v.writer && at.Seq == v.good+1 && at.Prev == v.last.Hash {
			v.good++
			v.last = at
			continue
		}
		return v.judge(at, in)
	}
}

// judge says what is wrong at a line that is not the next record, by what follows it.
func (v *verifier) judge(at found, in *chain) (*BadRecord, error) {
	want := v.good + 1
	ahead, err := lookAhead(in, want, at.Seq)
	if err != nil {
		return nil, err
	}
	bad := &BadRecord{Writer: v.writer, Seq: at.Seq, ID: at.ID, Segment: at.segment, Line: at.line}
	// When the next record stands right behind, the line before it is one too many or out of place.
	fits := ahead.line.intact && ahead.line.Writer == v.writer && ahead.line.Seq == want && ahead.line.Prev == v.last.Hash
	switch {
	case at.intact && at.Seq == v.good && at.Prev == v.last.Prev && ahead.line.intact && ahead.line.Prev == at.Hash:
		// Two records have this number, and what follows goes on from the second.
		return v.blameLast(BadInserted), nil
	case at.intact && (at.Writer != v.writer || at.Seq < want), fits && (!at.intact || at.Seq == want || ahead.copy):
		bad.Reason = BadInserted
		if bad.Seq == 0 {
			bad.Seq = want
		}
	case !at.intact:
		bad.Reason, bad.Seq = BadChanged, want
	case at.Seq > want && ahead.wanted:
		bad.Reason = BadReordered
	case at.Seq > want:
		return &BadRecord{Writer: v.writer, Seq: want, Segment: at.segment, Line: at.line, Reason: BadRemoved}, nil
	default:
		// It is the right number and its own hash is right, but it names another record before it:
		// that one was changed and hashed anew.
		if v.good > 0 {
			return v.blameLast(BadChanged), nil
		}
		bad.Reason = BadChanged
	}
	return bad, nil
}

// blameLast names the record before, which looked good by itself.
func (v *verifier) blameLast(reason string) *BadRecord {
	v.good--
	return &BadRecord{Writer: v.writer, Seq: v.last.Seq, ID: v.last.ID, Segment: v.last.segment, Line: v.last.line, Reason: reason}
}

// ahead is what follows a line.
type ahead struct {
	line   found // the next one
	wanted bool  // the record that belongs here comes later
	copy   bool  // a record with the number of this line comes later
}

func lookAhead(in *chain, want, seq uint64) (ahead, error) {
	var a ahead
	for n := 0; ; n++ {
		at, err := in.next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		if n == 0 {
			a.line = at
		}
		a.wanted = a.wanted || at.intact && at.Seq == want
		a.copy = a.copy || at.intact && at.Seq == seq
	}
}

// chain reads the lines of a writer's segments in order.
type chain struct {
	segs []segment
	f    *os.File
	in   *lines
	name string
	line int
}

func openChain(dir string) (*chain, error) {
	segs, err := segments(dir)
	return &chain{segs: segs}, err
}

func (c *chain) close() {
	if c.f != nil {
		_ = c.f.Close()
	}
}

// next gives a line, or io.EOF. The end of the last segment without a newline is a record that is
// being written, or was when its server died: it is no record yet.
func (c *chain) next() (found, error) {
	for {
		if c.in == nil {
			if len(c.segs) == 0 {
				return found{}, io.EOF
			}
			f, err := os.Open(c.segs[0].path)
			if err != nil {
				return found{}, err
			}
			c.close()
			c.f, c.in, c.name, c.line = f, newLines(f), filepath.Base(c.segs[0].path), 0
			c.segs = c.segs[1:]
		}
		line, _, whole, err := c.in.next()
		if errors.Is(err, io.EOF) || err == nil && !whole && len(c.segs) == 0 {
			c.in = nil
			continue
		}
		if err != nil {
			return found{}, err
		}
		c.line++
		r, intact := decode(line)
		return found{Record: r, intact: intact, segment: c.name, line: c.line}, nil
	}
}
