package folder

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// bed is a folder of plugins that a Folder follows.
type bed struct {
	*testing.T
	dir, keep string
	*Folder
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, dir: t.TempDir(), keep: t.TempDir()}
	b.write("one/commands/do.md", "do")
	b.open()
	return b
}

func (b *bed) open() {
	b.Helper()
	var err error
	if b.Folder, err = Open(Options{Dir: b.dir, Keep: b.keep, Log: slog.New(slog.DiscardHandler)}); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) write(name, text string) {
	b.Helper()
	file := filepath.Join(b.dir, Installed, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		b.Fatal(err)
	}
}

// await waits until the list is as check wants it.
func (b *bed) await(what string, check func(*List) bool) *List {
	b.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list := b.Current()
		if check(list) {
			return list
		}
		if time.Now().After(end) {
			b.Fatalf("%s: the list is %+v", what, list.Plugins)
		}
	}
}

func (l *List) find(name string) *Plugin {
	i := slices.IndexFunc(l.Plugins, func(p Plugin) bool { return p.Folder == name })
	if i < 0 {
		return nil
	}
	return &l.Plugins[i]
}

func has(p *Plugin, file, text string) bool {
	if p == nil || p.Err != nil {
		return false
	}
	data, err := os.ReadFile(filepath.Join(p.Dir, file))
	return err == nil && string(data) == text
}

// TestFollows: each change of a file, of a name and of the folder itself is seen, and nothing else makes a new list.
func TestFollows(t *testing.T) {
	b := newBed(t)
	if !has(b.Current().find("one"), "commands/do.md", "do") {
		t.Fatalf("%+v", b.Current().Plugins)
	}
	time.Sleep(60 * time.Millisecond) // stamps are no longer of this moment: now they are trusted
	b.next = time.Time{}
	list := b.Current()
	b.next = time.Time{}
	if b.Current() != list {
		t.Error("another list, and nothing has changed")
	}
	b.write("one/commands/do.md", "do more")
	b.await("a changed file", func(l *List) bool { return has(l.find("one"), "commands/do.md", "do more") })
	if !has(list.find("one"), "commands/do.md", "do") {
		t.Error("the files of the former version are gone or others: who uses them now?")
	}
	b.write("two/skills/a/SKILL.md", "a")
	b.await("a new one", func(l *List) bool { return l.find("two") != nil })
	if err := os.Rename(filepath.Join(b.dir, Installed, "two"), filepath.Join(b.dir, Installed, "three")); err != nil {
		t.Fatal(err)
	}
	b.await("another name", func(l *List) bool { return l.find("two") == nil && has(l.find("three"), "skills/a/SKILL.md", "a") })
	if err := os.Remove(filepath.Join(b.dir, Installed, "three/skills/a/SKILL.md")); err != nil {
		t.Fatal(err)
	}
	b.await("an empty one", func(l *List) bool { p := l.find("three"); return p != nil && p.Err != nil && p.Dir == "" })
	if err := os.RemoveAll(filepath.Join(b.dir, Installed)); err != nil {
		t.Fatal(err)
	}
	b.await("none", func(l *List) bool { return len(l.Plugins) == 0 })
	b.write("one/commands/do.md", "again")
	b.await("the folder is there again", func(l *List) bool { return has(l.find("one"), "commands/do.md", "again") })
}

// TestHostileFolders: what cannot be a plugin hides no other, and nothing outside is copied.
func TestHostileFolders(t *testing.T) {
	b := newBed(t)
	outside := filepath.Join(t.TempDir(), "secret")
	in := func(name string) string { return filepath.Join(b.dir, Installed, name) }
	b.write("links/commands/do.md", "do")
	b.write("deep/"+strings.Repeat("d/", 20)+"x", "x")
	b.write(".hidden/commands/do.md", "do")
	b.write("file", "no folder")
	err := errors.Join(os.WriteFile(outside, []byte("secret"), 0o600), os.Symlink(outside, in("links/out.md")), os.Symlink("/", in("root")),
		syscall.Mkfifo(in("links/pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	b.open()
	list := b.Current()
	var names []string
	for _, p := range list.Plugins {
		names = append(names, p.Folder)
	}
	if !slices.Equal(names, []string{"deep", "links", "one"}) {
		t.Errorf("plugins: %v", names)
	}
	if list.find("deep").Err == nil || !has(list.find("one"), "commands/do.md", "do") || !has(list.find("links"), "commands/do.md", "do") {
		t.Errorf("%+v", list.Plugins)
	}
	if left, err := os.ReadDir(list.find("links").Dir); err != nil || len(left) != 1 {
		t.Errorf("copied: %v, %v", left, err)
	}
	if left, err := os.ReadDir(filepath.Join(b.keep, "stage")); err != nil || len(left) > 0 {
		t.Errorf("staged: %v, %v", left, err)
	}
}

// TestCopiesGo: a former process's copies go at the start, and those of a former version when nobody can be starting
// with them.
func TestCopiesGo(t *testing.T) {
	b := newBed(t)
	kept := func() int {
		left, err := os.ReadDir(filepath.Join(b.keep, "store"))
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	b.write("one/commands/do.md", "do more")
	b.await("a changed file", func(l *List) bool { return has(l.find("one"), "commands/do.md", "do more") })
	if n := kept(); n != 2 {
		t.Errorf("%d copies right after a change, want both", n)
	}
	b.sweep(time.Now().Add(staleAfter + time.Second))
	if n := kept(); n != 1 {
		t.Errorf("%d copies later, want one", n)
	}
	b.write("one/commands/do.md", "do less")
	b.open()
	if n := kept(); n != 1 {
		t.Errorf("%d copies after a restart, want one", n)
	}
}

// TestCompiledIn: plugins that are compiled in are read once.
func TestCompiledIn(t *testing.T) {
	files := fstest.MapFS{"installed/a/commands/do.md": {Data: []byte("do")}, "marketplace.json": {Data: []byte("{}")}}
	f, err := Open(Options{FS: files, Keep: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	list := f.Current()
	if len(list.Plugins) != 1 || !has(list.find("a"), "commands/do.md", "do") {
		t.Errorf("%+v", list.Plugins)
	}
	files["installed/b/commands/do.md"] = &fstest.MapFile{Data: []byte("do")}
	if f.Current() != list {
		t.Error("it was read again")
	}
}

// TestMissingFolder: a folder that is not there has no plugins.
func TestMissingFolder(t *testing.T) {
	f, err := Open(Options{Dir: filepath.Join(t.TempDir(), "none"), Keep: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil || len(f.Current().Plugins) != 0 {
		t.Errorf("%v, %+v", err, f)
	}
}
