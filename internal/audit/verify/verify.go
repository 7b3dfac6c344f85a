package verify

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
)

// The ways in which a record can be bad.
const (
	BadChanged   = "changed"   // it is not what its hash says, or its hash is not what the next record says
	BadRemoved   = "removed"   // it is not there
	BadReordered = "reordered" // it stands where an earlier one belongs, which comes later
	BadInserted  = "inserted"  // it does not belong there: a copy, another writer's, or made up
	BadRechained = "rechained" // from some record on all were hashed anew: a signature, or a head held elsewhere, says otherwise
	BadLost      = "lost"      // a head held elsewhere has it, and the log ends before
)

// BadRecord names the first record that is not as it was written.
type BadRecord struct {
	Writer  string `json:"writer"`
	Seq     uint64 `json:"seq"`          // its number, or the number that belongs there
	ID      string `json:"id,omitempty"` // when it can be read
	Segment string `json:"segment,omitempty"`
	Line    int    `json:"line,omitempty"` // in the segment, from 1
	Reason  string `json:"reason"`
	// Through is the last record that may be the first bad one (rechained): hashes show that records between two
	// signatures were hashed anew, not from which of them on.
	Through uint64 `json:"through,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Writer is one server's part of the log.
type Writer struct {
	record.Head // its last good record
	// From is the first record that was checked; those before are not here: the log says that they were archived and removed, up
	// to a record of the hash that this one follows. 0: all were.
	From       uint64 `json:"from,omitempty"`
	SignedSeq  uint64 `json:"signed_seq"` // the last record that a good signature covers; 0: none
	SignedAt   string `json:"signed_at,omitempty"`
	SignedWith string `json:"signed_with,omitempty"` // KeyID
	// Unchecked is how many signatures there are of keys that were not given.
	Unchecked uint64 `json:"unchecked,omitempty"`
	// Overdue: the records behind the last signature are more, or of a longer time, than a server leaves unsigned
	// when it runs or crashes.
	Overdue bool `json:"overdue,omitempty"`
}

// Result says whether a log is as it was written, up to the heads.
type Result struct {
	OK       bool          `json:"ok"`
	Records  uint64        `json:"records"` // that are good, up to the first bad one of each writer
	FirstBad *BadRecord    `json:"first_bad,omitempty"`
	Heads    []record.Head `json:"heads,omitempty"`   // of the writers whose records are all good
	Writers  []Writer      `json:"writers,omitempty"` // the same writers, with what is signed
}

// PublicKey is a key whose signatures are believed.
type PublicKey struct {
	ID  string
	Key ed25519.PublicKey
}

// Options say against what a log is checked, besides itself.
type Options struct {
	// Keys are the keys that signed, the oldest first: an older one is not believed behind a newer one.
	// Without keys signatures are not checked.
	Keys []PublicKey
	// Expect are heads that are held elsewhere.
	Expect []record.Head
	// More are folders with segments of the same log: an archive, or copies of parts. A segment that is in
	// several must be the same in all.
	More []string
}

// What a server leaves unsigned at most, with its defaults and much to spare.
const (
	overdueRecords = 20 * record.DefaultSignEvery
	overdueTime    = time.Minute
)

// Verify reads a log's files and checks every record: its hash, its number, and that it
// follows the one before; that signatures are good; and that what is expected is there. The log may be in use. What
// the files alone cannot show is a cut end: the result says up to where and when a writer's log is signed. Without
// keys and expectations they cannot show either a log that was written anew with all its hashes.
func Verify(ctx context.Context, dir string, o Options) (Result, error) {
	res := Result{OK: true}
	var writers []string
	for _, d := range append([]string{dir}, o.More...) {
		in, err := segment.Writers(d)
		if err != nil {
			return Result{}, fmt.Errorf("verify the audit log: %w", err)
		}
		writers = append(writers, in...)
	}
	slices.Sort(writers)
	expect := map[string][]record.Head{}
	for _, h := range o.Expect {
		expect[h.Writer] = append(expect[h.Writer], h)
	}
	for _, w := range slices.Compact(writers) {
		v := verifier{writer: w, keys: o.Keys, expect: expect[w]}
		for _, d := range append([]string{dir}, o.More...) {
			v.dirs = append(v.dirs, filepath.Join(d, w))
		}
		delete(expect, w)
		bad, err := v.run(ctx)
		if err != nil {
			return Result{}, fmt.Errorf("verify the audit log: %w", err)
		}
		res.Records += v.good - min(v.base, v.good)
		if bad == nil && v.good > v.base {
			res.Heads = append(res.Heads, v.head())
			res.Writers = append(res.Writers, v.state())
		}
		res.blame(bad)
	}
	for _, writer := range slices.Sorted(maps.Keys(expect)) {
		res.blame(&BadRecord{Writer: writer, Seq: 1, Reason: BadLost, Detail: "nothing of this writer is there, and " + expect[writer][0].String() + " is expected"})
	}
	return res, nil
}

func (r *Result) blame(bad *BadRecord) {
	if bad != nil && r.OK {
		r.OK, r.FirstBad = false, bad
	}
}

// found is a line of a log.
type found struct {
	record.Record
	intact  bool
	segment string
	line    int
}

// verifier checks one writer's log.
type verifier struct {
	writer string
	dirs   []string
	keys   []PublicKey
	expect []record.Head

	base     uint64 // the last record that is not here; the prev of the next one was taken on trust, until retained says so
	trusted  found  // that one
	retained bool   // a record says that those up to base were archived and removed

	good      uint64
	last      found       // the last good one
	signed    record.Head // the last good signature
	rank      int         // of its key among keys
	covered   uint64
	unchecked uint64
	// loose are the good records that no signature covers, or the newest of them.
	loose []looseRecord
}

type looseRecord struct {
	seq      uint64
	id, hash string
	segment  string
	line     int
	time     time.Time
}

// maxLoose bounds them: a signature is never so far behind what it signs.
const maxLoose = 1 << 18

func (v *verifier) head() record.Head {
	return record.Head{Writer: v.writer, Seq: v.last.Seq, Hash: v.last.Hash, Time: v.last.Time}
}

func (v *verifier) state() Writer {
	w := Writer{Head: v.head(), SignedSeq: v.signed.Seq, SignedWith: v.signed.Signer, Unchecked: v.unchecked}
	if v.base > 0 {
		w.From = v.base + 1
	}
	if v.signed.Seq == 0 {
		return w
	}
	w.SignedAt = v.signed.Time.Format(time.RFC3339Nano)
	if n := len(v.loose); v.last.Seq > v.covered {
		w.Overdue = v.last.Seq-v.covered > overdueRecords || n > 0 && v.loose[n-1].time.Sub(v.signed.Time) > overdueTime
	}
	return w
}

func (v *verifier) run(ctx context.Context) (*BadRecord, error) {
	in, bad, err := openChain(ctx, v.dirs)
	if err != nil {
		return nil, err
	}
	if bad != nil {
		bad.Writer = v.writer
		return bad, nil
	}
	defer in.close()
	for first := true; ; first = false {
		if v.good%1000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at, err := in.next()
		if errors.Is(err, io.EOF) {
			return cmp.Or(v.cut(), v.missing()), nil
		}
		if err != nil {
			return nil, err
		}
		if first && at.intact && at.Writer == v.writer && at.Seq == in.begin && at.Seq > 1 {
			v.base, v.good, v.trusted, v.last.Hash = at.Seq-1, at.Seq-1, at, at.Prev
		}
		if !at.intact || at.Writer != v.writer || at.Seq != v.good+1 || at.Prev != v.last.Hash {
			return v.judge(at, in)
		}
		v.good++
		v.last = at
		if bad := v.vouch(at); bad != nil {
			v.good = bad.Seq - 1
			return bad, nil
		}
	}
}

// cut is what is wrong with a log whose beginning is not here, when no record says that it was archived and removed.
func (v *verifier) cut() *BadRecord {
	if v.base == 0 || v.retained {
		return nil
	}
	v.good = v.base
	return &BadRecord{
		Writer: v.writer, Seq: 1, Segment: v.trusted.segment, Line: v.trusted.line, Reason: BadRemoved, Through: v.base,
		Detail: "the log begins behind it, and has no record that what is before was archived and removed from this disk; when there is an archive, name its folder too",
	}
}

// vouch checks what signatures and expected heads say of a record that is good by itself.
func (v *verifier) vouch(at found) *BadRecord {
	if len(v.loose) == maxLoose {
		v.loose = slices.Delete(v.loose, 0, maxLoose/2)
	}
	v.loose = append(v.loose, looseRecord{at.Seq, at.ID, at.Hash, at.segment, at.line, at.Time})
	for _, h := range v.expect {
		if h.Seq == at.Seq && h.Hash != at.Hash {
			return v.rechained(at.Seq, "a head that is held elsewhere says that record "+fmt.Sprint(h.Seq)+" had another hash")
		}
	}
	if at.Action == record.ActionRetention && v.base > 0 {
		var m record.Manifest
		v.retained = v.retained || json.Unmarshal(at.Args, &m) == nil && m.Last == v.base && m.Hash == v.trusted.Prev
	}
	if at.Action != record.ActionHead {
		return nil
	}
	h, ok := record.HeadOf(at.Record)
	if !ok || h.Writer != v.writer {
		return v.rechained(at.Seq, "it holds no signature of this log")
	}
	if len(v.keys) == 0 {
		v.unchecked++
		return nil
	}
	rank := slices.IndexFunc(v.keys, func(k PublicKey) bool { return k.ID == h.Signer })
	switch {
	case rank < 0:
		return v.rechained(at.Seq, "it is signed with the key "+h.Signer+", which is none of those that are believed")
	case !h.SignedBy(v.keys[rank].Key):
		return v.rechained(at.Seq, "the signature is not one of the key "+h.Signer)
	case rank < v.rank:
		return v.rechained(at.Seq, "it is signed with the key "+h.Signer+", which was replaced before")
	case h.Seq <= v.signed.Seq:
		return v.rechained(at.Seq, "it repeats an earlier signature")
	}
	i := slices.IndexFunc(v.loose, func(l looseRecord) bool { return l.seq == h.Seq })
	if i >= 0 && v.loose[i].hash != h.Hash {
		return v.rechained(h.Seq, "what was signed is not what is there")
	}
	if i >= 0 {
		v.signed, v.rank, v.covered = h, rank, record.CoveredBy(at.Record, h)
		v.loose = append(v.loose[:0], v.loose[i+1:]...)
	}
	return nil
}

// rechained names the first record that may be another than it was: the one behind the last that is vouched for.
func (v *verifier) rechained(through uint64, detail string) *BadRecord {
	first := v.loose[0]
	return &BadRecord{
		Writer: v.writer, Seq: first.seq, ID: first.id, Segment: first.segment, Line: first.line, Reason: BadRechained, Through: through, Detail: detail,
	}
}

// missing is what is expected behind the end of the log.
func (v *verifier) missing() *BadRecord {
	for _, h := range v.expect {
		if h.Seq > v.good {
			return &BadRecord{
				Writer: v.writer, Seq: v.good + 1, Segment: v.last.segment, Line: v.last.line + 1, Reason: BadLost, Through: h.Seq,
				Detail: fmt.Sprintf("the log ends with record %d, and a head that is held elsewhere is of record %d", v.good, h.Seq),
			}
		}
	}
	return nil
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
		if v.good > v.base {
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
