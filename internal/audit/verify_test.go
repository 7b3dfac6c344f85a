package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

// tamper is a change to the lines of a log of ten records in two segments of five.
type tamper struct {
	change func(l [][]byte) [][]byte
	seq    uint64
	reason string
	good   uint64
}

func rehash(line []byte, change func(*Record)) []byte {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		panic(err)
	}
	change(&r)
	line, err := record.Encode(&r)
	if err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(line, []byte("\n"))
}

var tampers = map[string]tamper{
	"nothing": {func(l [][]byte) [][]byte { return l }, 0, "", 10},
	"a byte":  {func(l [][]byte) [][]byte { l[3] = bytes.Replace(l[3], []byte("echo"), []byte("Echo"), 1); return l }, 4, verify.BadChanged, 3},
	"a member added": {func(l [][]byte) [][]byte {
		l[3] = bytes.Replace(l[3], []byte(`{"id"`), []byte(`{"x":1,"id"`), 1)
		return l
	}, 4, verify.BadChanged, 3},
	"the first":         {func(l [][]byte) [][]byte { l[0] = bytes.Replace(l[0], []byte("ann"), []byte("bob"), 1); return l }, 1, verify.BadChanged, 0},
	"the last":          {func(l [][]byte) [][]byte { l[9] = bytes.Replace(l[9], []byte("ann"), []byte("bob"), 1); return l }, 10, verify.BadChanged, 9},
	"the hash":          {func(l [][]byte) [][]byte { l[9][len(l[9])-3] ^= 1; return l }, 10, verify.BadChanged, 9},
	"hashed anew":       {func(l [][]byte) [][]byte { l[6] = rehash(l[6], func(r *Record) { r.User = "bob" }); return l }, 7, verify.BadChanged, 6},
	"first hashed anew": {func(l [][]byte) [][]byte { l[0] = rehash(l[0], func(r *Record) { r.User = "bob" }); return l }, 1, verify.BadChanged, 0},
	"prev hashed anew":  {func(l [][]byte) [][]byte { l[0] = rehash(l[0], func(r *Record) { r.Prev = "x" }); return l }, 1, verify.BadChanged, 0},
	"emptied":           {func(l [][]byte) [][]byte { l[2] = nil; return l }, 3, verify.BadChanged, 2},
	"removed":           {func(l [][]byte) [][]byte { return slices.Delete(l, 3, 4) }, 4, verify.BadRemoved, 3},
	"removed first":     {func(l [][]byte) [][]byte { return l[1:] }, 1, verify.BadRemoved, 0},
	"removed some":      {func(l [][]byte) [][]byte { return slices.Delete(l, 3, 6) }, 4, verify.BadRemoved, 3},
	"segment removed":   {func(l [][]byte) [][]byte { return l[5:] }, 1, verify.BadRemoved, 0},
	"swapped":           {func(l [][]byte) [][]byte { l[3], l[4] = l[4], l[3]; return l }, 5, verify.BadReordered, 3},
	"moved":             {func(l [][]byte) [][]byte { return slices.Insert(slices.Delete(slices.Clone(l), 2, 3), 7, l[2]) }, 4, verify.BadReordered, 2},
	"copied":            {func(l [][]byte) [][]byte { return slices.Insert(l, 4, bytes.Clone(l[1])) }, 2, verify.BadInserted, 4},
	"copied forward":    {func(l [][]byte) [][]byte { return slices.Insert(l, 4, bytes.Clone(l[7])) }, 8, verify.BadInserted, 4},
	"made up":           {func(l [][]byte) [][]byte { return slices.Insert(l, 4, rehash(l[4], func(r *Record) { r.ID = "x" })) }, 5, verify.BadInserted, 4},
	"a line of nothing": {func(l [][]byte) [][]byte { return slices.Insert(l, 4, []byte("hello")) }, 5, verify.BadInserted, 4},
	"another writer's":  {func(l [][]byte) [][]byte { l[4] = rehash(l[4], func(r *Record) { r.Writer = "w2" }); return l }, 5, verify.BadInserted, 4},
	"a long line":       {func(l [][]byte) [][]byte { l[4] = bytes.Repeat([]byte("x"), 3*segment.MaxLine); return l }, 5, verify.BadChanged, 4},
	"a cut end":         {func(l [][]byte) [][]byte { return l[:8] }, 0, "", 8}, // Verify says that it cannot see this
}

func TestVerifyNamesTheRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, Options{Dir: dir})
	recs := fill(t, l, 10)
	must(t, l.Close())
	text, err := os.ReadFile(filepath.Join(dir, l.Writer(), segment.Name(1)))
	must(t, err)
	for name, c := range tampers {
		t.Run(name, func(t *testing.T) {
			lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
			for i := range lines {
				lines[i] = bytes.Clone(lines[i])
			}
			lines = c.change(lines)
			bad := t.TempDir()
			must(t, os.Mkdir(filepath.Join(bad, l.Writer()), 0o700))
			half := min(5, len(lines))
			for first, part := range map[uint64][][]byte{1: lines[:half], 6: lines[half:]} {
				var file []byte
				for _, line := range part {
					file = append(append(file, line...), '\n')
				}
				must(t, os.WriteFile(filepath.Join(bad, l.Writer(), segment.Name(first)), file, 0o600))
			}
			res, err := verify.Verify(context.Background(), bad, verify.Options{})
			must(t, err)
			if res.OK != (c.reason == "") || res.Records != c.good {
				t.Fatalf("result %+v, want %d good", res, c.good)
			}
			if res.OK {
				if len(res.Heads) != 1 || res.Heads[0].Hash != recs[c.good-1].Hash {
					t.Errorf("heads %+v", res.Heads)
				}
				return
			}
			b := res.FirstBad
			if b.Seq != c.seq || b.Reason != c.reason || b.Writer != l.Writer() || b.Line == 0 || strings.Contains(b.Segment, "/") {
				t.Errorf("first bad %+v, want %d %s", b, c.seq, c.reason)
			}
			if b.Reason == verify.BadReordered && b.ID != recs[b.Seq-1].ID {
				t.Errorf("it is named %q, want %q", b.ID, recs[b.Seq-1].ID)
			}
		})
	}
}

// TestVerifyWhileWriting: a record that is being written is no damage.
func TestVerifyWhileWriting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, Options{Dir: dir, SegmentBytes: 16 << 10})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			if _, err := l.Append(t.Context(), Record{Tenant: "acme", Subject: strings.Repeat("x", 900)}); err != nil {
				t.Error(err)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		res, err := verify.Verify(context.Background(), dir, verify.Options{})
		must(t, err)
		if !res.OK {
			t.Fatalf("first bad %+v", res.FirstBad)
		}
	}
	wantOK(t, dir, 2000)
}

func TestVerifyNothing(t *testing.T) {
	t.Parallel()
	wantOK(t, filepath.Join(t.TempDir(), "missing"), 0)
	wantOK(t, t.TempDir(), 0)
}
