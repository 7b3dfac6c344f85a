package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/archive"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/platform/s3/s3test"
)

// smallSegments makes logs of a few records a segment.
const smallSegments = 6 << 10

// fakeArchive is an archive in memory that can be away, or harm what it is given.
type fakeArchive struct {
	mu   sync.Mutex
	away bool
	harm func([]byte) []byte
	has  map[string][]byte
}

func newFakeArchive() *fakeArchive { return &fakeArchive{has: map[string][]byte{}} }

func (a *fakeArchive) Name() string { return "memory" }

func (a *fakeArchive) Put(_ context.Context, name string, from io.Reader, size int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return errors.New("away")
	}
	text, err := io.ReadAll(from)
	if err == nil && int64(len(text)) != size {
		err = fmt.Errorf("%d bytes, %d were announced", len(text), size)
	}
	if err != nil {
		return err
	}
	if a.harm != nil {
		text = a.harm(text)
	}
	a.has[name] = text
	return nil
}

func (a *fakeArchive) Get(_ context.Context, name string) (io.ReadCloser, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return nil, errors.New("away")
	}
	text, ok := a.has[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

func (a *fakeArchive) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// folder writes what is archived below a new folder.
func (a *fakeArchive) folder(t *testing.T) string {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	dir := t.TempDir()
	for name, text := range a.has {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

func archived(t *testing.T, l *Log) {
	t.Helper()
	waitFor(t, "archived", func() bool {
		token(l.archive.work)
		s, _ := l.Archive()
		return s.Behind == 0 && s.Err == nil && len(fullSegments(t, l.journal.Dir())) == countMarks(t, l)
	})
}

func countMarks(t *testing.T, l *Log) int {
	t.Helper()
	marks, err := filepath.Glob(filepath.Join(l.o.Dir, markFolder, l.Writer(), "*"+manifestSuffix))
	must(t, err)
	return len(marks)
}

func fullSegments(t testing.TB, dir string) []segment.Segment {
	t.Helper()
	segs, err := segment.List(dir)
	must(t, err)
	return segs[:max(0, len(segs)-1)]
}

// pruned waits until only the segment that is written is left.
func pruned(t *testing.T, l *Log) {
	t.Helper()
	waitFor(t, "removed", func() bool {
		token(l.archive.work)
		return len(fullSegments(t, l.journal.Dir())) == 0
	})
}

// TestArchiveAway: an archive that is away holds up nothing, and gets all when it is back. What it has agrees with the log.
func TestArchiveAway(t *testing.T) {
	t.Parallel()
	to := newFakeArchive()
	to.away = true
	l := openLog(t, Options{Dir: t.TempDir(), SegmentBytes: smallSegments, Archive: to, KeepSegments: time.Nanosecond})
	fill(t, l, 60)
	waitFor(t, "behind", func() bool { s, _ := l.Archive(); return s.Behind > 2 && s.Err != nil })
	before := len(fullSegments(t, l.journal.Dir()))
	wantOK(t, l.o.Dir, l.journal.Appended())
	to.set(func() { to.away = false })
	pruned(t, l)
	if s, ok := l.Archive(); !ok || s.Behind != 0 {
		t.Errorf("%+v", s)
	}
	if len(to.has) < 2*before {
		t.Errorf("%d objects of %d segments", len(to.has), before)
	}
	fill(t, l, 3)
	must(t, l.Close())
	res, err := verify.Verify(context.Background(), l.o.Dir, verify.Options{})
	must(t, err)
	if !res.OK || res.Writers[0].From < 20 || res.Records != l.journal.Appended()-res.Writers[0].From+1 {
		t.Errorf("without the archive: %+v %+v", res, res.FirstBad)
	}
	res, err = verify.Verify(context.Background(), l.o.Dir, verify.Options{More: []string{to.folder(t)}})
	must(t, err)
	if !res.OK || res.Records != l.journal.Appended() || res.Writers[0].From != 0 {
		t.Errorf("with the archive: %+v %+v", res, res.FirstBad)
	}
}

// TestRetentionKeeps: nothing is removed that a sink does not have, that the archive has lost or has otherwise, that was changed, or
// that is young.
func TestRetentionKeeps(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		o      func(o *Options, to *fakeArchive)
		before func(t *testing.T, l *Log, to *fakeArchive) // after all is archived, before it may be removed
		goes   bool
	}{
		"nothing wrong": {goes: true},
		"young":         {o: func(o *Options, _ *fakeArchive) { o.KeepSegments = time.Hour }},
		"for ever":      {o: func(o *Options, _ *fakeArchive) { o.KeepSegments = 0 }},
		"a sink is away": {o: func(o *Options, _ *fakeArchive) {
			o.Sinks = []Sink{&fakeSink{name: "away"}}
		}},
		"the archive has otherwise": {before: func(_ *testing.T, _ *Log, to *fakeArchive) {
			for name := range to.has {
				to.has[name] = to.has[name][:len(to.has[name])/2]
			}
		}},
		"changed on this disk": {before: func(t *testing.T, l *Log, _ *fakeArchive) {
			first := fullSegments(t, l.journal.Dir())[0].Path
			text, err := os.ReadFile(first)
			must(t, err)
			must(t, os.WriteFile(first, bytes.Replace(text, []byte("echo"), []byte("ECHO"), 1), 0o600))
		}},
		"lost by the archive, and made again": {goes: true, before: func(_ *testing.T, _ *Log, to *fakeArchive) { clear(to.has) }},
	} {
		t.Run(name, func(t *testing.T) {
			to, dir := newFakeArchive(), t.TempDir()
			o := Options{Dir: dir, SegmentBytes: smallSegments, Archive: to}
			l := openLog(t, o)
			fill(t, l, 60)
			archived(t, l)
			must(t, l.Close())
			if x.before != nil {
				x.before(t, l, to)
			}
			o.KeepSegments = time.Nanosecond
			if x.o != nil {
				x.o(&o, to)
			}
			before := fullSegments(t, l.journal.Dir())
			l = openLog(t, o)
			if x.goes {
				pruned(t, l)
				return
			}
			for range 3 { // passes end; what they report, and that they do, is seen by the next
				token(l.archive.work)
				waitFor(t, "looked", func() bool {
					return len(l.archive.work) == 0 || func() bool { s, _ := l.Archive(); return s.Err != nil }()
				})
				time.Sleep(20 * time.Millisecond)
			}
			if got := fullSegments(t, l.journal.Dir()); !slices.Equal(got, before) {
				t.Errorf("of %d segments %d are left", len(before), len(got))
			}
		})
	}
}

// TestArchiveHarmed: what cannot be read back is not taken for archived.
func TestArchiveHarmed(t *testing.T) {
	t.Parallel()
	to := newFakeArchive()
	to.harm = func(b []byte) []byte { return b[:len(b)*2/3] }
	l := openLog(t, Options{Dir: t.TempDir(), SegmentBytes: smallSegments, Archive: to, KeepSegments: time.Nanosecond})
	fill(t, l, 60)
	waitFor(t, "found", func() bool {
		s, _ := l.Archive()
		return s.Err != nil && strings.Contains(s.Err.Error(), "archive has something else")
	})
	if s, _ := l.Archive(); s.Behind == 0 || len(fullSegments(t, l.journal.Dir())) < 3 || countMarks(t, l) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestVerifyArchive: copies are compared, and what is missing is found.
func TestVerifyArchive(t *testing.T) {
	t.Parallel()
	ev := gather(t)
	to := newFakeArchive()
	dir := t.TempDir()
	for name, text := range ev.files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		var packed bytes.Buffer
		must(t, segment.Pack(t.Context(), &packed, filepath.Join(dir, name), int64(len(text))))
		to.has[name+".zst"] = packed.Bytes()
	}
	names := slices.Sorted(maps.Keys(ev.files))
	first, second := names[0], names[1]
	for name, x := range map[string]struct {
		local, far func(dir string)
		want       string // reason, "" = all is right
	}{
		"both whole":       {},
		"all in archive":   {local: func(dir string) { _ = os.RemoveAll(filepath.Join(dir, filepath.Dir(first))) }},
		"mixed":            {local: func(dir string) { _ = os.Remove(filepath.Join(dir, first)) }, far: func(dir string) { _ = os.Remove(filepath.Join(dir, second+".zst")) }},
		"in neither":       {local: func(dir string) { _ = os.Remove(filepath.Join(dir, first)) }, far: func(dir string) { _ = os.Remove(filepath.Join(dir, first+".zst")) }, want: verify.BadRemoved},
		"a hole in both":   {local: func(dir string) { _ = os.Remove(filepath.Join(dir, second)) }, far: func(dir string) { _ = os.Remove(filepath.Join(dir, second+".zst")) }, want: verify.BadRemoved},
		"copies differ":    {local: func(dir string) { harmFile(t, filepath.Join(dir, first)) }, want: verify.BadChanged},
		"archive cut":      {far: func(dir string) { cutFile(t, filepath.Join(dir, first+".zst")) }, want: verify.BadChanged},
		"cut, and no copy": {local: func(dir string) { _ = os.Remove(filepath.Join(dir, first)) }, far: func(dir string) { cutFile(t, filepath.Join(dir, first+".zst")) }, want: verify.BadChanged},
	} {
		local, far := t.TempDir(), to.folder(t)
		must(t, os.CopyFS(local, os.DirFS(dir)))
		if x.local != nil {
			x.local(local)
		}
		if x.far != nil {
			x.far(far)
		}
		res, err := verify.Verify(context.Background(), local, verify.Options{Keys: ev.keys, Expect: slices.Collect(maps.Values(ev.heads)), More: []string{far}})
		must(t, err)
		switch {
		case x.want == "" && (!res.OK || res.Records != ev.total):
			t.Errorf("%s: %+v %+v", name, res, res.FirstBad)
		case x.want != "" && (res.OK || res.FirstBad.Reason != x.want):
			t.Errorf("%s: %+v %+v, want %s", name, res, res.FirstBad, x.want)
		}
	}
}

func harmFile(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	text[len(text)/2] ^= 1
	must(t, os.WriteFile(path, text, 0o600))
}

func cutFile(t *testing.T, path string) {
	t.Helper()
	must(t, os.Truncate(path, sizeOf(t, path)*2/3))
}

// TestRetentionIsRecorded: a beginning that is missing is believed only when a record says that it was archived.
func TestRetentionIsRecorded(t *testing.T) {
	t.Parallel()
	l := openLog(t, Options{Dir: t.TempDir(), SegmentBytes: smallSegments, Archive: newFakeArchive(), KeepSegments: time.Nanosecond})
	fill(t, l, 60)
	pruned(t, l)
	must(t, l.Close())
	l = openLog(t, Options{Dir: l.o.Dir, SegmentBytes: smallSegments})
	fill(t, l, 60)
	must(t, l.Close())
	res, err := verify.Verify(context.Background(), l.o.Dir, verify.Options{})
	must(t, err)
	segs, err := segment.List(l.journal.Dir())
	must(t, err)
	if !res.OK || res.Writers[0].From != segs[0].First || len(segs) < 2 {
		t.Fatalf("%+v %+v, %d segments", res, res.FirstBad, len(segs))
	}
	must(t, os.Remove(segs[0].Path))
	if res, err = verify.Verify(context.Background(), l.o.Dir, verify.Options{}); err != nil || res.OK || res.FirstBad.Reason != verify.BadRemoved || res.FirstBad.Seq != 1 || res.FirstBad.Through != segs[1].First-1 {
		t.Errorf("%+v %+v, %v", res, res.FirstBad, err)
	}
}

// TestListEndsAtTheDisk: without Redis a query shows what is on the disk, and ends there, also a query that was begun before.
func TestListEndsAtTheDisk(t *testing.T) {
	t.Parallel()
	to := newFakeArchive()
	to.away = true
	l := openLog(t, Options{Dir: t.TempDir(), SegmentBytes: smallSegments, Archive: to, KeepSegments: time.Nanosecond})
	fill(t, l, 60)
	items, next, err := l.List(t.Context(), Filter{Tenant: "acme", Limit: 5})
	must(t, err)
	if len(items) != 5 || next == "" {
		t.Fatalf("%d items, %q", len(items), next)
	}
	to.set(func() { to.away = false })
	pruned(t, l)
	for seen := uint64(0); next != ""; {
		_, next, err = l.List(t.Context(), Filter{Tenant: "acme", Limit: 5, Cursor: next})
		must(t, err)
		if seen++; seen > 60 {
			t.Fatal("a query does not end")
		}
	}
	if items, _, err = l.List(t.Context(), Filter{Tenant: "acme", Limit: 100}); err != nil || len(items) >= 60 {
		t.Errorf("%d items, %v", len(items), err)
	}
}

// BenchmarkArchive archives a segment of the usual size into a folder.
func BenchmarkArchive(b *testing.B) {
	l := openLog(b, Options{Dir: b.TempDir()})
	for len(fullSegments(b, l.journal.Dir())) < 1 {
		fill(b, l, 1000)
	}
	segs, err := segment.List(l.journal.Dir())
	must(b, err)
	b.SetBytes(sizeOf(b, segs[0].Path))
	b.ReportAllocs()
	for b.Loop() {
		a := &archiver{journal: l.journal, records: l, log: l.o.Log, to: archive.NewFolder(b.TempDir()), marks: map[uint64]record.Manifest{}, step: func(string) {}}
		must(b, a.archive(b.Context(), segs[0], segs[1].First))
	}
}

// TestArchiveS3: a real server has what the log had, and a store that is not there holds up nothing.
func TestArchiveS3(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	server.Put("audit", "x", nil) // makes the bucket
	o := s3.Options{
		Endpoint: server.Endpoint, Region: s3test.Region, AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, PathStyle: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	to, err := archive.NewBucket("s3://audit/logs/skerry/", o)
	must(t, err)
	l := openLog(t, Options{Dir: t.TempDir(), SegmentBytes: 200 << 10, Archive: to, KeepSegments: time.Nanosecond})
	fill(t, l, 2000)
	total := l.journal.Appended()
	waitFor(t, "full", func() bool { s, _ := l.Archive(); return s.Behind == 0 && s.Err == nil })
	pruned(t, l)
	must(t, l.Close())
	res, err := verify.Verify(context.Background(), l.o.Dir, verify.Options{})
	must(t, err)
	if !res.OK || res.Writers[0].From < 1000 {
		t.Fatalf("%+v %+v", res, res.FirstBad)
	}
	reader, err := archive.NewBucket("s3://audit/logs/skerry", o)
	must(t, err)
	defer reader.Close()
	far := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(far, l.Writer()), 0o700))
	for first := uint64(1); first < res.Writers[0].From; {
		name := fmt.Sprintf("%s/%020d", l.Writer(), first)
		copyObject(t, reader, name+manifestSuffix, far)
		copyObject(t, reader, name+segment.PackedSuffix, far)
		text, err := os.ReadFile(filepath.Join(far, name+manifestSuffix))
		must(t, err)
		var last uint64
		_, err = fmt.Sscanf(string(text[bytes.Index(text, []byte(`"last":`))+7:]), "%d", &last)
		must(t, err)
		first = last + 1
	}
	if res, err = verify.Verify(context.Background(), l.o.Dir, verify.Options{More: []string{far}}); err != nil || !res.OK || res.Records < total || res.Writers[0].From != 0 {
		t.Errorf("%+v %+v, %v", res, res.FirstBad, err)
	}
	o.Endpoint = "http://127.0.0.1:1"
	nowhere, err := archive.NewBucket("s3://audit/logs", o)
	must(t, err)
	l = openLog(t, Options{Dir: t.TempDir(), SegmentBytes: smallSegments, Archive: nowhere, KeepSegments: time.Nanosecond})
	fill(t, l, 60)
	waitFor(t, "said", func() bool { s, _ := l.Archive(); return s.Err != nil && s.Behind > 0 })
	if _, err := l.AppendSync(t.Context(), Record{Tenant: "acme", Action: ActionExec}); err != nil {
		t.Error(err)
	}
}

func copyObject(t *testing.T, from Archive, name, dir string) {
	t.Helper()
	r, err := from.Get(t.Context(), name)
	must(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
}

// mortal kills its process at the n-th step that the archiver, or the archive below it, makes.
type mortal struct {
	Archive
	left atomic.Int64
}

func (m *mortal) step(string) {
	if m.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m *mortal) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	m.step("begin of put")
	err := m.Archive.Put(ctx, name, steps{from, m}, size)
	m.step("end of put")
	return err
}

// steps makes a step with each Read, also with the Read that finds the end: what was read is in a file by then.
type steps struct {
	io.Reader
	m *mortal
}

func (s steps) Read(p []byte) (int, error) {
	s.m.step("read")
	return s.Reader.Read(p)
}

// archiveUntilKilled archives and removes all of a log, and is killed at a step.
func archiveUntilKilled(dir string) {
	n, err := strconv.Atoi(os.Getenv("SKERRY_TEST_AUDIT_STEP"))
	m := &mortal{Archive: archive.NewFolder(dir + ".far")}
	m.left.Store(int64(n))
	var l *Log
	if err == nil {
		l, err = Open(Options{Dir: dir, SegmentBytes: smallSegments, Archive: m, KeepSegments: time.Nanosecond, archiveStep: m.step})
	}
	for deadline := time.Now().Add(time.Minute); err == nil; time.Sleep(time.Millisecond) {
		segs, e := segment.List(l.journal.Dir())
		if err = e; len(segs) == 1 {
			break
		}
		if time.Now().After(deadline) {
			err = errors.New("after a minute there is more than one segment")
		}
	}
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestArchiveKill kills the server at every step of archiving and removing: each record is there, on one side or both, nothing
// half is under a final name, and the next server ends what was begun.
func TestArchiveKill(t *testing.T) {
	t.Parallel()
	pattern := t.TempDir()
	l := openLog(t, Options{Dir: pattern, SegmentBytes: smallSegments})
	for fill(t, l, 1); len(fullSegments(t, l.journal.Dir())) < 2; {
		fill(t, l, 1)
	}
	must(t, l.Close())
	original := map[string][]byte{}
	for _, s := range fullSegments(t, l.journal.Dir()) {
		text, err := os.ReadFile(s.Path)
		must(t, err)
		original[filepath.Base(s.Path)] = text
	}
	for n := 1; ; n++ {
		dir := filepath.Join(t.TempDir(), "near")
		must(t, os.CopyFS(dir, os.DirFS(pattern)))
		must(t, os.Mkdir(dir+".far", 0o700))
		killed := archiveOnce(t, dir, n)
		wantAll(t, n, dir, filepath.Base(l.journal.Dir()), original, l.journal.Appended())
		if !killed {
			if n < 30 {
				t.Errorf("only %d steps", n)
			}
			t.Logf("%d steps", n)
			break
		}
		next := openLog(t, Options{Dir: dir, SegmentBytes: smallSegments, Archive: archive.NewFolder(dir + ".far"), KeepSegments: time.Nanosecond})
		pruned(t, next)
		must(t, next.Close())
		wantAll(t, n, dir, filepath.Base(l.journal.Dir()), original, l.journal.Appended())
		if got, err := filepath.Glob(filepath.Join(dir+".far", filepath.Base(l.journal.Dir()), "*")); err != nil || len(got) != 2*len(original) {
			t.Errorf("step %d: %q, %v", n, got, err)
		}
	}
}

func archiveOnce(t *testing.T, dir string, step int) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SKERRY_TEST_AUDIT_ARCHIVER="+dir, fmt.Sprint("SKERRY_TEST_AUDIT_STEP=", step))
	cmd.Stderr = os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL { //nolint:forcetypeassert // it is
		return true
	}
	must(t, err)
	return false
}

// wantAll checks what a killed server left.
func wantAll(t *testing.T, n int, dir, writer string, original map[string][]byte, records uint64) {
	t.Helper()
	for name, text := range original {
		local, err := os.ReadFile(filepath.Join(dir, writer, name))
		if err == nil && !bytes.Equal(local, text) {
			t.Errorf("step %d: %s is another on this disk", n, name)
		}
		packed, far := os.Open(filepath.Join(dir+".far", writer, name+".zst"))
		if err != nil && far != nil {
			t.Errorf("step %d: %s is nowhere", n, name)
		}
		if far != nil {
			continue
		}
		var out bytes.Buffer
		if _, err := segment.Unpack(t.Context(), &out, packed, 1<<20); err != nil || !bytes.Equal(out.Bytes(), text) {
			t.Errorf("step %d: %s is not whole in the archive: %v", n, name, err)
		}
		must(t, packed.Close())
	}
	res, err := verify.Verify(context.Background(), dir, verify.Options{More: []string{dir + ".far"}})
	if err != nil || !res.OK || res.Records < records || res.Writers[0].From != 0 {
		t.Errorf("step %d: with the archive: %+v %+v, %v", n, res, res.FirstBad, err)
	}
	if res, err = verify.Verify(context.Background(), dir, verify.Options{}); err != nil || !res.OK {
		t.Errorf("step %d: without the archive: %+v %+v, %v", n, res, res.FirstBad, err)
	}
}
