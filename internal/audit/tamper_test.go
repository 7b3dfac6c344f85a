package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

// evidence is the log of two writers that the tampering begins with: its files by path, and its heads.
type evidence struct {
	files map[string][]byte
	heads map[string]Head
	keys  []verify.PublicKey
	total uint64
}

// lastHash reads the hash of the last record from the file.
func lastHash(t testing.TB, l *Log) (hash string) {
	t.Helper()
	segs, err := segment.List(l.journal.Dir())
	must(t, err)
	_, err = segment.Scan(segs[len(segs)-1].Path, func(r Record) { hash = r.Hash })
	must(t, err)
	return hash
}

// gather writes a log of two writers in some segments, signed every few records.
func gather(t testing.TB) evidence {
	t.Helper()
	dir := t.TempDir()
	key := testKey(1)
	ev := evidence{files: map[string][]byte{}, heads: map[string]Head{}, keys: []verify.PublicKey{key.public()}}
	for slot := 1; slot <= 2; slot++ {
		l := openLog(t, Options{Dir: dir, Slot: slot, SegmentBytes: 6 << 10, Signer: key, SignEvery: 4, SignWithin: time.Hour})
		for range 6 {
			fill(t, l, 4)
			waitFor(t, "signed", func() bool { return l.State().Unsigned == 0 })
		}
		must(t, l.Close())
		ev.heads[l.Writer()] = Head{Writer: l.Writer(), Seq: l.journal.Appended(), Hash: lastHash(t, l)}
		ev.total += l.journal.Appended()
	}
	res, err := verify.Verify(context.Background(), dir, verify.Options{Keys: ev.keys, Expect: slices.Collect(maps.Values(ev.heads))})
	must(t, err)
	if !res.OK || res.Records != ev.total || len(res.Writers) != 2 || res.Writers[0].SignedSeq != res.Writers[0].Seq-1 {
		t.Fatalf("before anything is done to it: %+v", res)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "w*", "*"+segment.Suffix))
	must(t, err)
	for _, path := range paths {
		name, err := filepath.Rel(dir, path)
		must(t, err)
		ev.files[name], err = os.ReadFile(path)
		must(t, err)
	}
	if len(ev.files) < 6 {
		t.Fatalf("%d segments", len(ev.files))
	}
	return ev
}

// forgery is one way to tamper.
type forgery struct {
	name string
	do   func(r *rand.Rand, ev evidence, files map[string][]byte)
}

// pick returns the segments of a random writer, in order.
func pick(r *rand.Rand, files map[string][]byte) (writer string, segments []string) {
	names := slices.Sorted(maps.Keys(files))
	writer = filepath.Dir(names[r.IntN(len(names))])
	for _, n := range names {
		if filepath.Dir(n) == writer {
			segments = append(segments, n)
		}
	}
	return writer, segments
}

func linesOf(text []byte) [][]byte {
	return bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}

func joined(l [][]byte) []byte {
	text := bytes.Join(l, nil)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text
}

// onLines is a change to the lines of a random segment.
func onLines(change func(r *rand.Rand, l [][]byte) [][]byte) func(*rand.Rand, evidence, map[string][]byte) {
	return func(r *rand.Rand, _ evidence, files map[string][]byte) {
		_, segs := pick(r, files)
		name := segs[r.IntN(len(segs))]
		l := linesOf(files[name])
		for i := range l {
			l[i] = append(bytes.TrimSuffix(bytes.Clone(l[i]), []byte("\n")), '\n')
		}
		files[name] = joined(change(r, l))
	}
}

// rechain changes a record and makes its hash and those of all after it right. heads says what becomes of the signatures.
func rechain(heads func(r *rand.Rand, h *Record) (keep bool)) func(*rand.Rand, evidence, map[string][]byte) {
	return func(r *rand.Rand, ev evidence, files map[string][]byte) {
		writer, segs := pick(r, files)
		from := r.Uint64N(ev.heads[writer].Seq) + 1
		prev, seq := "", uint64(0)
		for _, name := range segs {
			var out [][]byte
			for _, line := range linesOf(files[name]) {
				var rec Record
				if json.Unmarshal(line, &rec) != nil {
					panic("not a record")
				}
				if rec.Seq == from {
					rec.User = "mallory"
				}
				if rec.Seq >= from && rec.Action == ActionHead && !heads(r, &rec) {
					continue
				}
				seq++
				rec.Prev, rec.Seq = prev, seq
				line, err := record.Encode(&rec)
				if err != nil {
					panic(err)
				}
				prev = rec.Hash
				out = append(out, line)
			}
			files[name] = joined(out)
		}
	}
}

var forgeries = []forgery{
	{"flip", func(r *rand.Rand, _ evidence, files map[string][]byte) {
		_, segs := pick(r, files)
		text := bytes.Clone(files[segs[r.IntN(len(segs))]])
		for name, was := range files {
			if len(was) == len(text) && bytes.Equal(was, text) {
				text[r.IntN(len(text))] ^= 1 << r.IntN(8)
				files[name] = text
				return
			}
		}
	}},
	{"drop", onLines(func(r *rand.Rand, l [][]byte) [][]byte {
		at := r.IntN(len(l))
		return slices.Delete(l, at, min(len(l), at+1+r.IntN(3)))
	})},
	{"swap", onLines(func(r *rand.Rand, l [][]byte) [][]byte {
		a, b := r.IntN(len(l)), r.IntN(len(l))
		l[a], l[b] = l[b], l[a]
		return l
	})},
	{"duplicate", onLines(func(r *rand.Rand, l [][]byte) [][]byte {
		return slices.Insert(l, r.IntN(len(l)+1), l[r.IntN(len(l))])
	})},
	{"cut", func(r *rand.Rand, _ evidence, files map[string][]byte) {
		_, segs := pick(r, files)
		at := r.IntN(len(segs))
		files[segs[at]] = files[segs[at]][:r.IntN(len(files[segs[at]]))]
		for _, name := range segs[at+1:] {
			delete(files, name)
		}
	}},
	{"zeroed", func(r *rand.Rand, _ evidence, files map[string][]byte) {
		_, segs := pick(r, files)
		name := segs[r.IntN(len(segs))]
		text := bytes.Clone(files[name])
		from := r.IntN(len(text))
		clear(text[from:min(len(text), from+1+r.IntN(2000))])
		files[name] = text
	}},
	{"segment removed", func(r *rand.Rand, _ evidence, files map[string][]byte) {
		_, segs := pick(r, files)
		delete(files, segs[r.IntN(len(segs))])
	}},
	{"segments swapped", func(r *rand.Rand, _ evidence, files map[string][]byte) {
		_, segs := pick(r, files)
		a := r.IntN(len(segs))
		b := (a + 1 + r.IntN(len(segs)-1)) % len(segs)
		files[segs[a]], files[segs[b]] = files[segs[b]], files[segs[a]]
	}},
	{"another writer's segment", func(r *rand.Rand, _ evidence, files map[string][]byte) {
		writer, segs := pick(r, files)
		for name, text := range files {
			if filepath.Dir(name) != writer {
				if r.IntN(2) == 0 {
					files[segs[r.IntN(len(segs))]] = text
				} else {
					files[filepath.Join(writer, segment.Name(r.Uint64N(1000)+100))] = text
				}
				return
			}
		}
	}},
	{"rechained, signatures as they were", rechain(func(*rand.Rand, *Record) bool { return true })},
	{"rechained, signatures left out", rechain(func(*rand.Rand, *Record) bool { return false })},
	{"rechained, signed with another key", rechain(func(_ *rand.Rand, rec *Record) bool {
		h, _ := record.HeadOf(*rec)
		h, _ = testKey(2).Sign(context.Background(), h)
		rec.Args, _ = json.Marshal(h)
		return true
	})},
	{"rechained, signed with another key of the same name", rechain(func(_ *rand.Rand, rec *Record) bool {
		h, _ := record.HeadOf(*rec)
		h.Signature = ed25519.Sign(testKey(2).PrivateKey, h.Text())
		rec.Args, _ = json.Marshal(h)
		return true
	})},
}

// tamperings is how many are made; with -short fewer.
const tamperings = 10_000

// TestTamper tampers with a log at random. Each is found, or leaves a log that is shorter, and then the answer says up
// to where it is signed; and a head that is held elsewhere finds those, too.
func TestTamper(t *testing.T) {
	t.Parallel()
	ev := gather(t)
	n := tamperings
	if testing.Short() {
		n = 600
	}
	var mu sync.Mutex
	count := map[string]int{}
	var wg sync.WaitGroup
	const workers = 4
	for w := range workers {
		wg.Go(func() {
			dir := t.TempDir()
			lay(t, dir, nil, ev.files)
			for i := w; i < n; i += workers {
				verdict := tamperOnce(t, ev, dir, uint64(i))
				mu.Lock()
				count[verdict]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&text, "\n%6d %s", count[k], k)
	}
	t.Logf("%d tamperings:%s", n, text.String())
}

func tamperOnce(t *testing.T, ev evidence, dir string, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test that can be repeated
	f := forgeries[seed%uint64(len(forgeries))]
	files := maps.Clone(ev.files)
	for maps.EqualFunc(files, ev.files, bytes.Equal) { // two equal lines swapped are none
		f.do(r, ev, files)
	}
	lay(t, dir, ev.files, files)
	defer lay(t, dir, files, ev.files)
	res, err := verify.Verify(context.Background(), dir, verify.Options{Keys: ev.keys})
	if err != nil {
		t.Errorf("%d, %s: %v", seed, f.name, err)
	}
	if !res.OK {
		if b := res.FirstBad; b.Seq == 0 || b.Writer == "" || b.Segment == "" || b.Line == 0 {
			t.Errorf("%d, %s: found, and badly named: %+v", seed, f.name, b)
		}
		return f.name + ": found, " + res.FirstBad.Reason
	}
	held, err := verify.Verify(context.Background(), dir, verify.Options{Keys: ev.keys, Expect: slices.Collect(maps.Values(ev.heads))})
	if err != nil || held.OK {
		t.Errorf("%d, %s: not found against the head that is held elsewhere (%v)", seed, f.name, err)
	}
	// The answer says up to where it is signed. Up to there all is as it was.
	signed := uint64(0)
	for _, w := range res.Writers {
		was := ev.heads[w.Writer]
		signed += w.SignedSeq
		for name, text := range ev.files {
			if filepath.Dir(name) != w.Writer {
				continue
			}
			for _, line := range linesOf(text) {
				if rec, _ := record.Decode(bytes.TrimSuffix(line, []byte("\n"))); rec.Seq <= w.SignedSeq && !anyHas(files, w.Writer, line) {
					t.Fatalf("%d, %s: signed to record %d of %d, and record %d is not what it was", seed, f.name, w.SignedSeq, was.Seq, rec.Seq)
				}
			}
		}
	}
	if signed >= ev.total {
		t.Errorf("%d, %s: all of it is signed, it is said: %+v", seed, f.name, res)
	}
	return f.name + ": told"
}

// lay makes the files in dir, which are those of was, those of files.
func lay(t *testing.T, dir string, was, files map[string][]byte) {
	for name := range was {
		if _, ok := files[name]; !ok {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
	for name, text := range files {
		if old, ok := was[name]; ok && bytes.Equal(old, text) {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Error(err)
		}
	}
}

func anyHas(files map[string][]byte, writer string, line []byte) bool {
	for name, text := range files {
		if filepath.Dir(name) == writer && bytes.Contains(text, bytes.TrimSuffix(line, []byte("\n"))) {
			return true
		}
	}
	return false
}
