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
	res, err := Verify(dir)
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
	segs, err := segments(filepath.Join(dir, l.Writer()))
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
		if len(r.Subject) > maxSubject || len(r.UserAgent) > maxAgent || !utf8.ValidString(r.Subject) {
			t.Errorf("subject %d bytes, agent %d bytes", len(r.Subject), len(r.UserAgent))
		}
	}
	wantOK(t, dir, 5)
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"aé", 3, "aé"}, {"😀😀", 7, "😀"}, {"", 3, ""},
		{"a\xff", 9, "a\uFFFD"}, {"\xff\xff\xff", 3, "\uFFFD"},
	} {
		if got := cut(c.in, c.max); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.max, got, c.want)
		}
	}
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
			path := filepath.Join(dir, l.Writer(), segmentName(1))
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
		path := filepath.Join(dir, l.Writer(), segmentName(4))
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
			files, err := filepath.Glob(filepath.Join(dir, "*", "*"+attemptsSuffix))
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

func TestArgs(t *testing.T) {
	t.Parallel()
	args, hash := Args(map[string]any{
		"API_Key": "s1", "nested": []any{map[string]any{"password": map[string]any{"a": "s2"}, "n": 12345678901234567}},
		"Authorization": "Bearer s3", "x-cookie": "s4", "credentials": []string{"s5"}, "path": "/a", "auth_token": nil,
	})
	want := `{"API_Key":"***","Authorization":"***","auth_token":null,"credentials":"***",` +
		`"nested":[{"n":12345678901234567,"password":"***"}],"path":"/a","x-cookie":"***"}`
	if string(args) != want {
		t.Errorf("got  %s\nwant %s", args, want)
	}
	if len(hash) != 64 {
		t.Errorf("hash %q", hash)
	}
	_, raw := Args(json.RawMessage(`{"a": 1}`))
	_, compact := Args(json.RawMessage(`{"a":1}`))
	if raw == compact {
		t.Error("the hash is not of the bytes as they came")
	}
	for _, v := range []any{strings.Repeat("x", 1<<20), strings.Repeat("\x00<", 100_000), json.RawMessage(`{"a":`), json.RawMessage(`{} {}`),
		map[string]any{"token": strings.Repeat("s", 9000)}, make(chan int), nil, json.RawMessage(nil)} {
		args, _ := Args(v)
		if len(args) > maxArgs || args != nil && !json.Valid(args) {
			t.Errorf("%d bytes of arguments: %.100s", len(args), args)
		}
		if strings.Contains(string(args), "sss") {
			t.Errorf("a secret: %.100s", args)
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
	if res, err := Verify(dir); err != nil || !res.OK || res.Records != 6 || len(res.Heads) != 2 {
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

// TestTelling: what is found without the expression is what the expression finds.
func TestTelling(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "k", "ke", "key", "KEY", "kEy", "api_key", "keen", "Authorization", "authorizatio", "COOKIES", "passWord", "pas", "tok", "tokEn",
		"CREDENTIAL", "c", "crcookie", "a\xffkey", "\u212aey", "pa\u017fs", "ſecret", "é", "k\u00e9y", "{[@`argv", strings.Repeat("x", 100) + "secre", strings.Repeat("c", 100) + "ookie",
	} {
		if got, want := telling([]byte(text)), secretName.MatchString(text); got != want {
			t.Errorf("%q: %v, the expression says %v", text, got, want)
		}
	}
}

// FuzzTelling: likewise, for any text.
func FuzzTelling(f *testing.F) {
	f.Add([]byte(`{"Argv":["true"],"api_Key":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := telling(text), secretName.Match(text); got != want {
			t.Errorf("%q: %v, the expression says %v", text, got, want)
		}
	})
}

// BenchmarkArgs is what the arguments of a small exec cost.
func BenchmarkArgs(b *testing.B) {
	args := map[string]any{"argv": []string{"true"}, "cwd": "/mnt/user-data/workspace", "timeout_s": 60, "background": false, "max_output_bytes": 1048576}
	b.ReportAllocs()
	for b.Loop() {
		text, _ := Args(args)
		needsRedaction(text)
	}
}
