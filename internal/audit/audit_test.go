package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SKERRY_TEST_AUDIT_CHILD"); dir != "" {
		appendUntilKilled(dir)
	}
	if dir := os.Getenv("SKERRY_TEST_AUDIT_ARCHIVER"); dir != "" {
		archiveUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, k sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != k {
		t.Errorf("error %v of kind %q, want %q", err, sandbox.KindOf(err), k)
	}
}

func openLog(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	must(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func fill(t testing.TB, l *Log, n int) []Record {
	t.Helper()
	var out []Record
	for i := range n {
		r, err := l.Append(t.Context(), Record{Tenant: "acme", User: "ann", Thread: "main", Phase: PhaseResult, Action: ActionExec, Subject: fmt.Sprint("echo ", i)})
		must(t, err)
		out = append(out, r)
	}
	return out
}

func wantOK(t *testing.T, dir string, records uint64) {
	t.Helper()
	res, err := verify.Verify(context.Background(), dir, verify.Options{})
	must(t, err)
	if !res.OK || res.Records != records {
		t.Errorf("verify: %+v (first bad %+v), want %d good records", res, res.FirstBad, records)
	}
}

var uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestAppend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, Options{Dir: dir})
	recs := fill(t, l, 3)
	for i, r := range recs {
		if !uuid7.MatchString(r.ID) || r.Seq != uint64(i+1) || r.Writer != l.Writer() || r.Time.IsZero() || len(r.Hash) != 64 {
			t.Errorf("record %+v", r)
		}
		if i > 0 && (r.Prev != recs[i-1].Hash || r.ID <= recs[i-1].ID) {
			t.Errorf("record %d does not follow: %+v", i, r)
		}
	}
	must(t, l.Commit(t.Context(), recs[2]))
	wantKind(t, l.Commit(t.Context(), Record{}), sandbox.Internal)
	_, err := Open(Options{Dir: dir})
	wantKind(t, err, sandbox.Conflict)
	wantOK(t, dir, 3)

	must(t, l.Close())
	_, err = l.Append(t.Context(), Record{})
	wantKind(t, err, sandbox.Unavailable)
	wantKind(t, l.Commit(t.Context(), recs[0]), "") // it is durable already

	l2 := openLog(t, Options{Dir: dir})
	more := fill(t, l2, 1)
	if more[0].Seq != 4 || more[0].Prev != recs[2].Hash || more[0].Writer != l.Writer() {
		t.Errorf("after the restart: %+v", more[0])
	}
	wantOK(t, dir, 4)
}

func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, Options{Dir: dir, SegmentBytes: 4 << 10})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if _, err := l.AppendSync(t.Context(), Record{Tenant: "acme", Action: ActionExec}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	segs, err := segment.List(filepath.Join(dir, l.Writer()))
	must(t, err)
	if len(segs) < 10 {
		t.Errorf("%d segments", len(segs))
	}
	wantOK(t, dir, 200)
	must(t, l.Close())
	l = openLog(t, Options{Dir: dir, SegmentBytes: 4 << 10})
	if r := fill(t, l, 20); r[0].Seq != 201 {
		t.Errorf("seq %d", r[0].Seq)
	}
	wantOK(t, dir, 220)
}

func TestHostileText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, Options{Dir: dir})
	long := strings.Repeat("é", 3000)
	for _, text := range []string{"\xff\xfe bad \x00", long, "a" + long, strings.Repeat("\xf0\x9f", 2000), "</script>\u2028\"hash\":\"\"}"} {
		r, err := l.Append(t.Context(), Record{Tenant: "acme", Subject: text, Detail: text, UserAgent: text, Outcome: text, Args: json.RawMessage(text)})
		must(t, err)
		if len(r.Subject) > record.MaxSubject || len(r.UserAgent) > record.MaxAgent || !utf8.ValidString(r.Subject) {
			t.Errorf("subject %d bytes, agent %d bytes", len(r.Subject), len(r.UserAgent))
		}
	}
	wantOK(t, dir, 5)
}

func TestTornTail(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string]string{
		"half a record":   `{"id":"0190","time":"2026`,
		"half, then room": `{"id":"0190","time":"2026` + strings.Repeat("\x00", 5000),
		"garbage lines":   "x\ny\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := openLog(t, Options{Dir: dir})
			recs := fill(t, l, 3)
			must(t, l.Close())
			path := filepath.Join(dir, l.Writer(), segment.Name(1))
			appendTo(t, path, tail)
			var report bytes.Buffer
			l = openLog(t, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&report, nil))})
			if !strings.Contains(report.String(), "torn") {
				t.Errorf("nothing is reported: %s", report.String())
			}
			aside, err := filepath.Glob(filepath.Join(dir, l.Writer(), "*.torn-*"))
			must(t, err)
			if len(aside) != 1 {
				t.Fatalf("moved aside: %v", aside)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != strings.TrimRight(tail, "\x00") {
				t.Errorf("kept %q, %v", kept, err)
			}
			if r := fill(t, l, 1)[0]; r.Seq != 4 || r.Prev != recs[2].Hash {
				t.Errorf("the next record is %+v", r)
			}
			wantOK(t, dir, 4)
		})
	}
}

// TestCrashAfterRotation: the new segment is there, its first record is not.
func TestCrashAfterRotation(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"", `{"id":`} {
		dir := t.TempDir()
		l := openLog(t, Options{Dir: dir})
		fill(t, l, 3)
		must(t, l.Close())
		path := filepath.Join(dir, l.Writer(), segment.Name(4))
		appendTo(t, path, tail)
		l = openLog(t, Options{Dir: dir})
		if r := fill(t, l, 1)[0]; r.Seq != 4 {
			t.Errorf("seq %d", r.Seq)
		}
		wantOK(t, dir, 4)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

func TestOpenAttempts(t *testing.T) {
	t.Parallel()
	for _, withHelp := range []bool{true, false} {
		dir := t.TempDir()
		o := Options{Dir: dir, SegmentBytes: 4 << 10}
		l := openLog(t, o)
		if len(l.OpenAttempts()) != 0 {
			t.Error("a new log has open attempts")
		}
		add := func(r Record) Record {
			r.Tenant = "acme"
			r, err := l.Append(t.Context(), r)
			must(t, err)
			return r
		}
		early := add(Record{Phase: PhaseAttempt, Action: ActionExec})
		code := add(Record{Phase: PhaseAttempt, Action: ActionCode})
		done := add(Record{Phase: PhaseAttempt, Action: ActionExec})
		add(Record{Phase: PhaseResult, Action: ActionExec, Parent: done.ID})
		// A tool call has the run as its parent, and does not end it.
		add(Record{Phase: PhaseResult, Action: ActionToolCall, Parent: code.ID})
		fill(t, l, 100) // some segments
		late := add(Record{Phase: PhaseAttempt, Action: ActionSkillRun})
		must(t, l.Close())
		if !withHelp {
			files, err := filepath.Glob(filepath.Join(dir, "*", "*"+segment.AttemptsSuffix))
			must(t, err)
			if len(files) < 3 {
				t.Errorf("%d files of open attempts", len(files))
			}
			for _, f := range files {
				must(t, os.Remove(f))
			}
		}
		l = openLog(t, o)
		got := l.OpenAttempts()
		if len(got) != 3 || got[0].ID != early.ID || got[1].ID != code.ID || got[2].ID != late.ID {
			t.Fatalf("with help %v: open attempts %+v", withHelp, got)
		}
		if got[0].Hash != early.Hash || got[0].Action != ActionExec {
			t.Errorf("the attempt came back as %+v", got[0])
		}
		for _, a := range got {
			add(Record{Phase: PhaseResult, Action: a.Action, Parent: a.ID, Outcome: "lost"})
		}
		must(t, l.Close())
		if l = openLog(t, o); len(l.OpenAttempts()) != 0 {
			t.Errorf("still open: %+v", l.OpenAttempts())
		}
	}
}

func TestAppendRedacts(t *testing.T) {
	t.Parallel()
	l := openLog(t, Options{Dir: t.TempDir()})
	for _, in := range []string{`{"token":"hunter2"}`, `{"t\u006fken":"hunter2"}`, `{"a":[{"PASSWORD":"hunter2"}]}`} {
		r, err := l.Append(t.Context(), Record{Args: json.RawMessage(in)})
		must(t, err)
		if bytes.Contains(r.Args, []byte("hunter2")) {
			t.Errorf("%s was written as %s", in, r.Args)
		}
	}
}

func TestCommitEndsWithContext(t *testing.T) {
	t.Parallel()
	l := openLog(t, Options{Dir: t.TempDir()})
	r := fill(t, l, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Commit(ctx, r); err != nil {
		wantKind(t, err, sandbox.Unavailable)
	}
	must(t, l.Commit(t.Context(), r))
}

// TestSlots: two logs of one folder are written side by side, each is one process's, and both are verified.
func TestSlots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := openLog(t, Options{Dir: dir}), openLog(t, Options{Dir: dir, Slot: 2})
	if one.Writer() == two.Writer() {
		t.Fatal("both have one name")
	}
	_, err := Open(Options{Dir: dir, Slot: 2})
	wantKind(t, err, sandbox.Conflict)
	var open Record
	for range 3 {
		for _, l := range []*Log{one, two} {
			if open, err = l.AppendSync(t.Context(), Record{Action: ActionExec, Phase: PhaseAttempt}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if res, err := verify.Verify(context.Background(), dir, verify.Options{}); err != nil || !res.OK || res.Records != 6 || len(res.Heads) != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	again := openLog(t, Options{Dir: dir, Slot: 2})
	left := again.OpenAttempts()
	if again.Writer() != two.Writer() || len(left) != 3 || left[2].ID != open.ID {
		t.Errorf("writer %s after %s, open: %+v", again.Writer(), two.Writer(), left)
	}
}
