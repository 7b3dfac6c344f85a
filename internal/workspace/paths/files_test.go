package paths

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/rename/refused"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestReadLimits(t *testing.T) {
	f, host := thread(t)
	w := filepath.Join(host, "workspace")
	put(t, filepath.Join(w, "empty"), "")
	put(t, filepath.Join(w, "bin"), "a\x00b")
	put(t, filepath.Join(w, "latin1"), "caf\xe9\n")
	put(t, filepath.Join(w, "long"), strings.Repeat("é", 300_000)+"\nnext\n")
	put(t, filepath.Join(w, "many"), strings.Repeat(strings.Repeat("x", 99)+"\n", 6000))

	got, err := f.Read(ws+"/empty", 0, 0)
	if err != nil || got.TotalLines != 0 || got.StartLine != 0 || got.EndLine != 0 || got.NextOffset != nil || got.Encoding != "utf-8" {
		t.Errorf("empty = %+v, %v", got, err)
	}
	wantKind(t, errOf(f.Read(ws+"/empty", 1, 0)), sandbox.Invalid)
	wantKind(t, errOf(f.Read(ws+"/empty", -1, 0)), sandbox.Invalid)
	for _, name := range []string{"bin", "latin1"} {
		got, err = f.Read(ws+"/"+name, 0, 0)
		raw, _ := base64.StdEncoding.DecodeString(got.Content)
		want, _ := os.ReadFile(filepath.Join(w, name))
		if err != nil || got.Encoding != "base64" || !bytes.Equal(raw, want) {
			t.Errorf("%s = %+v, %v", name, got, err)
		}
	}
	got, err = f.Read(ws+"/long", 0, 0)
	if err != nil || !got.Truncated || got.Encoding != "utf-8" || len(got.Content) != MaxReadBytes || got.TotalLines != 2 || got.NextOffset == nil || *got.NextOffset != 1 {
		t.Errorf("long: %d bytes, %+v", len(got.Content), got.NextOffset)
	}
	got, err = f.Read(ws+"/long", 1, 0)
	if err != nil || got.Content != "next\n" || got.StartLine != 2 || got.EndLine != 2 || got.NextOffset != nil {
		t.Errorf("after long = %+v, %v", got, err)
	}
	lines, offset := 0, 0
	for {
		got, err = f.Read(ws+"/many", offset, 5999)
		if err != nil || len(got.Content) > MaxReadBytes {
			t.Fatalf("many = %d bytes, %v", len(got.Content), err)
		}
		lines += strings.Count(got.Content, "\n")
		if got.NextOffset == nil {
			break
		}
		offset = *got.NextOffset
	}
	if lines != 6000 {
		t.Errorf("paged through %d lines", lines)
	}
	wantKind(t, errOf(f.Read(ws, 0, 0)), sandbox.Invalid)
	wantKind(t, errOf(f.Read(ws+"/nope", 0, 0)), sandbox.NotFound)
	wantKind(t, errOf(f.Read(ws+"/no/pe", 0, 0)), sandbox.NotFound)
	wantKind(t, errOf(f.Read(ws+"/empty/x", 0, 0)), sandbox.Invalid)
	if _, err := f.Read("/mnt/skills", 0, 0); !errors.Is(err, ErrIsDirectory) {
		t.Errorf("reading a folder: %v", err)
	}
}

func TestOpenRanges(t *testing.T) {
	f, host := thread(t)
	put(t, filepath.Join(host, "outputs/a"), "0123456789")
	file, err := f.Open("/mnt/user-data/outputs/a")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // test
	if _, err := file.Seek(4, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(file)
	if err != nil || string(rest) != "456789" || file.Entry().Bytes != 10 || file.Entry().Mode != "0644" {
		t.Errorf("rest %q, %+v, %v", rest, file.Entry(), err)
	}
	tag := file.ETag()
	time.Sleep(20 * time.Millisecond) // more than the clock tick of the file system
	write(t, f, "/mnt/user-data/outputs/a", "0123456789")
	again, err := f.Open("/mnt/user-data/outputs/a")
	if err != nil || again.ETag() == tag || !strings.HasPrefix(tag, `"`) {
		t.Errorf("ETag %s, then %s, %v", tag, again.ETag(), err)
	}
	_ = again.Close()
}

func TestEdit(t *testing.T) {
	f, host := thread(t)
	put(t, filepath.Join(host, "workspace/a"), "one two two")
	ctx := context.Background()
	for old, why := range map[string]string{"three": "absent", "two": "not unique"} {
		err := errOf(f.Edit(ctx, ws+"/a", old, "x", false))
		wantKind(t, err, sandbox.Conflict)
		var e *sandbox.Error
		if !errors.As(err, &e) || len(e.Fields) != 1 || e.Fields[0] != (sandbox.Field{Name: "old", Detail: why}) {
			t.Errorf("%s: %+v", old, e)
		}
	}
	wantKind(t, errOf(f.Edit(ctx, ws+"/a", "", "x", false)), sandbox.Invalid)
	wantKind(t, errOf(f.Edit(ctx, ws+"/b", "x", "y", false)), sandbox.NotFound)
	wantKind(t, errOf(f.Edit(ctx, "/mnt/skills/public/csv/SKILL.md", "csv", "y", false)), sandbox.Forbidden)
	if e, err := f.Edit(ctx, ws+"/a", "two", "2", true); err != nil || e.Occurrences != 2 {
		t.Errorf("Edit = %+v, %v", e, err)
	}
	if b, _ := os.ReadFile(filepath.Join(host, "workspace/a")); string(b) != "one 2 2" {
		t.Errorf("content %q", b)
	}
}

func TestMoveMkdirRemove(t *testing.T) { moveMkdirRemove(t) }

// TestMoveOnNetworkFiles: the same on a file system that knows no flags of rename.
func TestMoveOnNetworkFiles(t *testing.T) { refused.Flags(t, func() { moveMkdirRemove(t) }) }

func moveMkdirRemove(t *testing.T) {
	f, _ := thread(t)
	ctx := context.Background()
	write(t, f, ws+"/a", "a")
	if e, err := f.Move(ws+"/a", "/mnt/user-data/outputs/x/y/a"); err != nil || e.Path != "/mnt/user-data/outputs/x/y/a" || e.Bytes != 1 {
		t.Errorf("Move = %+v, %v", e, err)
	}
	write(t, f, ws+"/b", "b")
	wantKind(t, errOf(f.Move(ws+"/b", "/mnt/user-data/outputs/x/y/a")), sandbox.Conflict)
	wantKind(t, errOf(f.Move(ws+"/nope", ws+"/c")), sandbox.NotFound)
	if _, err := f.Mkdir(ws + "/d/e"); err != nil {
		t.Error(err)
	}
	if e, err := f.Mkdir(ws + "/d/e"); err != nil || !e.IsDir {
		t.Errorf("Mkdir again = %+v, %v", e, err)
	}
	wantKind(t, errOf(f.Mkdir(ws+"/b")), sandbox.Conflict)
	wantKind(t, errOf(f.Move(ws+"/d", ws+"/d/e/f")), sandbox.Invalid)
	wantKind(t, errOf(f.Move(ws+"/b", "/mnt/skills/b")), sandbox.Forbidden)
	wantKind(t, f.Remove(ctx, ws+"/d", false), sandbox.Conflict)
	wantKind(t, f.Remove(ctx, ws+"/nope", true), sandbox.NotFound)
	if err := f.Remove(ctx, ws+"/d", true); err != nil {
		t.Error(err)
	}
	if err := f.Remove(ctx, ws+"/b", false); err != nil {
		t.Error(err)
	}
	if l, err := f.List(ctx, ws, 9, 0); err != nil || len(l.Items) != 0 {
		t.Errorf("left %+v, %v", l, err)
	}
	if _, err := f.Write(ctx, ws, strings.NewReader(""), false); err == nil {
		t.Error("wrote over a folder")
	}
}

func TestQuota(t *testing.T) {
	f, host := thread(t, func(o *Options) { o.DiskBytes = 1000 })
	ctx := context.Background()
	write(t, f, ws+"/a", strings.Repeat("a", 900))
	_, err := f.Write(ctx, "/mnt/user-data/outputs/b", strings.NewReader(strings.Repeat("b", 101)), false)
	wantKind(t, err, sandbox.QuotaExceeded)
	_, err = f.Write(ctx, ws+"/a", strings.NewReader(strings.Repeat("b", 101)), true)
	wantKind(t, err, sandbox.QuotaExceeded)
	_, err = f.Edit(ctx, ws+"/a", "a", "aa", true)
	wantKind(t, err, sandbox.QuotaExceeded)
	write(t, f, ws+"/a", strings.Repeat("c", 1000)) // the space of a replaced file is free again
	write(t, f, ws+"/a", strings.Repeat("d", 100))
	if w, err := f.Write(ctx, "/mnt/user-data/uploads/b", strings.NewReader(strings.Repeat("b", 900)), false); err != nil || w.Bytes != 900 {
		t.Errorf("Write = %+v, %v", w, err)
	}
	u, err := f.Usage(ctx)
	if err != nil || u.Bytes != 1000 || u.Files != 2 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if e, _ := os.ReadDir(filepath.Join(host, "outputs")); len(e) != 0 {
		t.Errorf("left over: %v", e)
	}
	// Holes and hard links count what they hold.
	if err := os.Truncate(filepath.Join(host, "uploads/b"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(host, "uploads/b"), filepath.Join(host, "workspace/b2")); err != nil {
		t.Fatal(err)
	}
	u, err = f.Usage(ctx)
	if err != nil || u.Bytes > 1<<20 || u.Files != 2 {
		t.Errorf("Usage with holes = %+v, %v", u, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := f.Write(ended, ws+"/late", strings.NewReader("x"), false); err == nil {
		t.Error("wrote after the end of ctx")
	}
}

func TestGlobGrep(t *testing.T) {
	f, host := thread(t)
	w := filepath.Join(host, "workspace")
	mkdirs(t, filepath.Join(w, "src/deep"))
	put(t, filepath.Join(w, "a.py"), "import os\nprint('Hello')\r\nend\n")
	put(t, filepath.Join(w, "src/b.py"), "hello = 1")
	put(t, filepath.Join(w, "src/deep/c.txt"), "say hello\n")
	put(t, filepath.Join(w, "src/d.bin"), "hello\x00")
	ctx := context.Background()
	for pattern, want := range map[string]string{
		"**/*.py": "a.py src/b.py", "*.py": "a.py", "src/*": "src/b.py src/d.bin src/deep", "**/{c,b}.*": "src/b.py src/deep/c.txt", "nope": "",
	} {
		l, err := f.Glob(ctx, ws, pattern)
		var got []string
		for _, e := range l.Items {
			got = append(got, strings.TrimPrefix(e.Path, ws+"/"))
		}
		if s := strings.Join(got, " "); err != nil || s != want {
			t.Errorf("Glob %s = %s, %v", pattern, s, err)
		}
	}
	for _, bad := range []string{"", "/abs", "[", strings.Repeat("a", 1001), "**/**/**/**/**"} {
		wantKind(t, errOf(f.Glob(ctx, ws, bad)), sandbox.Invalid)
	}
	grep := func(o GrepOptions) string {
		t.Helper()
		m, err := f.Grep(ctx, ws, o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range m.Items {
			got = append(got, fmt.Sprintf("%s:%d:%s", strings.TrimPrefix(i.Path, ws+"/"), i.Line, i.Text))
		}
		return strings.Join(got, "|") + map[bool]string{true: "+"}[m.Truncated]
	}
	for want, o := range map[string]GrepOptions{
		"src/b.py:1:hello = 1|src/deep/c.txt:1:say hello":                       {Pattern: "hello"},
		"a.py:2:print('Hello')|src/b.py:1:hello = 1|src/deep/c.txt:1:say hello": {Pattern: "hello", IgnoreCase: true},
		"a.py:2:print('Hello')":      {Pattern: `^print\(.*\)$`, Regexp: true},
		"src/deep/c.txt:1:say hello": {Pattern: "hello", Glob: "*.txt"},
		"src/b.py:1:hello = 1":       {Pattern: "hello", Glob: "src/*.py"},
		"src/b.py:1:hello = 1+":      {Pattern: "hello", Max: 1},
		"":                           {Pattern: "(x", Regexp: false},
	} {
		if got := grep(o); got != want {
			t.Errorf("Grep %+v = %s, want %s", o, got, want)
		}
	}
	m, err := f.Grep(ctx, ws+"/a.py", GrepOptions{Pattern: "Hello", Context: 3})
	if err != nil || len(m.Items) != 1 || strings.Join(m.Items[0].Before, "|") != "import os" || strings.Join(m.Items[0].After, "|") != "end" {
		t.Errorf("context = %+v, %v", m, err)
	}
	for _, o := range []GrepOptions{{}, {Pattern: "(", Regexp: true}, {Pattern: "a", Max: 1001}, {Pattern: "a", Context: 11}, {Pattern: "a", Glob: "["}} {
		wantKind(t, errOf(f.Grep(ctx, ws, o)), sandbox.Invalid)
	}
	wantKind(t, errOf(f.Grep(ctx, ws+"/nope", GrepOptions{Pattern: "a"})), sandbox.NotFound)
}

func TestChanges(t *testing.T) {
	f, host := thread(t)
	w := filepath.Join(host, "workspace")
	ctx := context.Background()
	put(t, filepath.Join(w, "same"), "s")
	put(t, filepath.Join(w, "mod"), "1")
	put(t, filepath.Join(w, "gone"), "g")
	before, err := f.Snapshot(ctx)
	if err != nil || !before.OK() {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	put(t, filepath.Join(w, "mod"), "2")
	old := time.Unix(1, 0)
	if err := os.Chtimes(filepath.Join(w, "mod"), old, old); err != nil { // a forged mtime hides nothing
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w, "gone")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(host, "outputs/a.png"), "\x89PNG\r\n\x1a\n0000")
	mkdirs(t, filepath.Join(w, ".skerry/exec"))
	put(t, filepath.Join(w, ".skerry/exec/stdout"), "spill")
	big, err := os.Create(filepath.Join(host, "outputs/big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(MaxHashBytes + 1); err != nil {
		t.Fatal(err)
	}
	_ = big.Close()
	got, ok, err := f.Changes(ctx, before)
	if err != nil || !ok {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range got {
		lines = append(lines, fmt.Sprintf("%s %s %d %s %.8s", strings.TrimPrefix(c.Path, sandbox.UserDataDir), c.Change, c.Bytes, c.MIME, c.SHA256))
	}
	want := []string{
		"/outputs/a.png created 12 image/png 6b49ba8f",
		"/outputs/big created 10485761 application/octet-stream ",
		"/workspace/gone deleted 0  ",
		"/workspace/mod modified 1 text/plain; charset=utf-8 d4735e3a",
	}
	want[0] = want[0][:len(want[0])-8] + lines[0][len(lines[0])-8:] // any hash, but one
	if strings.Join(lines, "\n") != strings.Join(want, "\n") || len(got[0].SHA256) != 64 {
		t.Errorf("Changes =\n%s", strings.Join(lines, "\n"))
	}
}

// TestManyFiles holds every operation to its bound in a folder of a hundred thousand files.
func TestManyFiles(t *testing.T) {
	f, host := thread(t)
	for i := range 100_000 {
		if err := os.WriteFile(fmt.Sprintf("%s/workspace/f%06d", host, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	start := time.Now()
	l, err := f.List(ctx, ws, 1, 0)
	if err != nil || len(l.Items) != MaxEntries || !l.Truncated {
		t.Errorf("List: %d items, %v, %v", len(l.Items), l.Truncated, err)
	}
	if l, err = f.List(ctx, ws, 1, 10); err != nil || len(l.Items) != 10 || !l.Truncated {
		t.Errorf("List 10: %d items, %v, %v", len(l.Items), l.Truncated, err)
	}
	if l, err = f.Glob(ctx, ws, "f*"); err != nil || len(l.Items) != MaxEntries || !l.Truncated {
		t.Errorf("Glob: %d items, %v, %v", len(l.Items), l.Truncated, err)
	}
	s, err := f.Snapshot(ctx)
	if err != nil || s.OK() || len(s.files) > MaxEntries {
		t.Errorf("Snapshot: %d, %v", len(s.files), err)
	}
	if c, ok, err := f.Changes(ctx, s); err != nil || ok || len(c) != 0 {
		t.Errorf("Changes: %d, %v", len(c), err)
	}
	if u, err := f.Usage(ctx); err != nil || u.Files != 100_000 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if err := f.Remove(ctx, ws+"/f000001", false); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestMaskHostPaths(t *testing.T) {
	f, host := thread(t)
	top := filepath.Dir(host)
	in := "open " + host + "/workspace/a: x; " + host + "2/b; " + host + "; " + filepath.Join(top, "skills") + "/public"
	want := "open /mnt/user-data/workspace/a: x; " + host + "2/b; /mnt/user-data; /mnt/skills/public"
	if got := f.MaskHostPaths(in); got != want {
		t.Errorf("MaskHostPaths = %s", got)
	}
}

func TestInnerMounts(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	put(t, filepath.Join(a, "SKILL.md"), "a")
	put(t, filepath.Join(b, "plugin.json"), "{}")
	f, err := New(Options{Mounts: []Mount{
		{Virtual: "/mnt/skills/public/a", Host: a},
		{Virtual: "/mnt/plugins/b", Host: b},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // test
	l, err := f.List(context.Background(), "/mnt/skills", 5, 0)
	if err != nil || len(l.Items) != 3 || l.Items[2].Path != "/mnt/skills/public/a/SKILL.md" {
		t.Errorf("List = %+v, %v", l, err)
	}
	if e, err := f.Stat("/mnt/plugins"); err != nil || !e.IsDir {
		t.Errorf("Stat = %+v, %v", e, err)
	}
	if text, err := f.Read("/mnt/plugins/b/plugin.json", 0, 0); err != nil || text.Content != "{}" {
		t.Errorf("Read = %+v, %v", text, err)
	}
	wantKind(t, errOf(f.Read("/mnt/plugins/c/plugin.json", 0, 0)), sandbox.NotFound)
	wantKind(t, errOf(New(Options{Mounts: []Mount{{Virtual: "/mnt/skills", Host: a, Writable: true}}})), sandbox.Invalid)
	wantKind(t, errOf(New(Options{Mounts: []Mount{{Virtual: "/etc", Host: a}}})), sandbox.Forbidden)
	wantKind(t, errOf(New(Options{Mounts: []Mount{{Virtual: "/mnt/skills", Host: "rel"}}})), sandbox.Invalid)
}

// TestReadOnlyView reads a thread without the right to change it.
func TestReadOnlyView(t *testing.T) {
	w, host := thread(t)
	write(t, w, ws+"/a", "12345")
	f, err := New(Options{Mounts: []Mount{{Virtual: sandbox.UserDataDir, Host: host}, {Virtual: sandbox.PluginsDir}}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // test
	ctx := context.Background()
	if u, err := f.Usage(ctx); err != nil || u.Bytes != 5 || u.Files != 1 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if text, err := f.Read(ws+"/a", 0, 0); err != nil || text.Content != "12345" {
		t.Errorf("Read = %+v, %v", text, err)
	}
	wantKind(t, errOf(f.Write(ctx, ws+"/a", strings.NewReader("x"), false)), sandbox.Forbidden)
	wantKind(t, errOf(f.Write(ctx, ws+"/n/b", strings.NewReader("x"), false)), sandbox.Forbidden)
	wantKind(t, f.Remove(ctx, ws+"/a", false), sandbox.Forbidden)
	if l, err := f.List(ctx, sandbox.PluginsDir, 1, 0); err != nil || len(l.Items) != 0 {
		t.Errorf("List = %+v, %v", l, err)
	}
	for name, want := range map[string]bool{ws + "/x": true, ws: true, ws + "2": false, ws + "/../x": false, "/etc": false, "": false} {
		if Within(name, ws) != want {
			t.Errorf("Within(%q) = %v", name, !want)
		}
	}
}
