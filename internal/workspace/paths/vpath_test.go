package paths

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// thread is a view of a fresh thread folder, and the folder.
func thread(t *testing.T, change ...func(*Options)) (*FS, string) {
	t.Helper()
	host := filepath.Join(t.TempDir(), "thread")
	skills := filepath.Join(filepath.Dir(host), "skills")
	for _, d := range []string{"workspace", "uploads", "outputs"} {
		mkdirs(t, filepath.Join(host, d))
	}
	mkdirs(t, filepath.Join(skills, "public", "csv"))
	put(t, filepath.Join(skills, "public", "csv", "SKILL.md"), "# csv\n")
	o := Options{Mounts: []Mount{
		{Virtual: sandbox.UserDataDir, Host: host, Writable: true},
		{Virtual: sandbox.SkillsDir, Host: skills},
		{Virtual: sandbox.CodeAPIDir, Host: filepath.Join(filepath.Dir(host), "missing")},
	}}
	for _, c := range change {
		c(&o)
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, host
}

func mkdirs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, k sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != k {
		t.Errorf("error %v: kind %q, want %q", err, sandbox.KindOf(err), k)
	}
}

func write(t *testing.T, f *FS, name, content string) Written {
	t.Helper()
	w, err := f.Write(context.Background(), name, strings.NewReader(content), false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

const ws = sandbox.WorkspaceDir

func TestWriteReadList(t *testing.T) {
	f, host := thread(t)
	w := write(t, f, ws+"/a/b/c.txt", "one\ntwo\nthree")
	if !w.Created || w.Bytes != 13 || w.Path != ws+"/a/b/c.txt" {
		t.Errorf("Write = %+v", w)
	}
	got, err := f.Read(ws+"/a/b/c.txt", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got.Content != "two\n" || got.TotalLines != 3 || got.StartLine != 2 || got.EndLine != 2 || got.NextOffset == nil || *got.NextOffset != 2 {
		t.Errorf("Read = %+v", got)
	}
	if w := write(t, f, ws+"/a/b/c.txt", "x"); w.Created {
		t.Error("second write says created")
	}
	if w, err := f.Write(context.Background(), ws+"/a/b/c.txt", strings.NewReader("yz"), true); err != nil || w.Bytes != 3 {
		t.Errorf("add = %+v, %v", w, err)
	}
	raw, err := os.ReadFile(filepath.Join(host, "workspace/a/b/c.txt"))
	if err != nil || string(raw) != "xyz" {
		t.Errorf("on disk %q, %v", raw, err)
	}
	l, err := f.List(context.Background(), sandbox.UserDataDir, 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range l.Items {
		paths = append(paths, strings.TrimPrefix(e.Path, sandbox.UserDataDir+"/"))
	}
	if s := strings.Join(paths, " "); s != "outputs uploads workspace workspace/a workspace/a/b workspace/a/b/c.txt" {
		t.Errorf("List = %s", s)
	}
	l, err = f.List(context.Background(), "/mnt/skills", 3, 0)
	if err != nil || len(l.Items) != 3 {
		t.Errorf("List skills = %+v, %v", l, err)
	}
	for _, empty := range []string{"/mnt/code-api", "/mnt/plugins"} {
		if l, err := f.List(context.Background(), empty, 1, 0); err != nil || len(l.Items) != 0 || l.Truncated {
			t.Errorf("List %s = %+v, %v", empty, l, err)
		}
	}
}
