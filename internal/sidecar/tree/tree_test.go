package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var plenty = Limits{Entries: 1000, Bytes: 1 << 30, FileBytes: 1 << 30, Names: 1 << 20}

func TestOrder(t *testing.T) {
	want := []string{"a", "a/b", "a/b/c", "a/b!", "a!", "a!/x", "a.", "a0", "b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Compare)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// FuzzCompare holds it against the comparison name by name.
func FuzzCompare(f *testing.F) {
	f.Add("a/b", "a!")
	f.Fuzz(func(t *testing.T, a, b string) {
		want := slices.CompareFunc(strings.Split(a, "/"), strings.Split(b, "/"), cmp.Compare[string])
		if a == "" || b == "" {
			want = cmp.Compare(len(a), len(b))
		}
		if got := Compare(a, b); cmp.Compare(got, 0) != want {
			t.Errorf("Compare(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

// FuzzCheckPath: what passes cannot lead out, nor to what holds changes.
func FuzzCheckPath(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../a", "/a", "a//b", "a/.", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if CheckPath(p) != nil {
			return
		}
		if !filepath.IsLocal(p) || filepath.Clean(p) != p || strings.ContainsRune(p, 0) || len(p) > 4096 {
			t.Errorf("%q passes", p)
		}
	})
}

func TestCheckList(t *testing.T) {
	file := func(p string) Entry { return Entry{Path: p, Kind: File} }
	folder := func(p string) Entry { return Entry{Path: p, Kind: Folder} }
	for name, c := range map[string]struct {
		list  List
		under string
		ok    bool
	}{
		"good":                {List{folder("a"), file("a/b"), file("c")}, "", true},
		"a part":              {List{folder("a/b"), file("a/b/c")}, "a/b", true},
		"twice":               {List{file("a"), file("a")}, "", false},
		"wrong order":         {List{file("b"), file("a")}, "", false},
		"no folder above":     {List{file("a/b")}, "", false},
		"a file above":        {List{file("a"), file("a/b")}, "", false},
		"a link above":        {List{{Path: "a", Kind: Link, Target: "/"}, file("a/b")}, "", false},
		"outside of the part": {List{file("a/c")}, "a/b", false},
		"leads out":           {List{file("../a")}, "", false},
		"setuid":              {List{{Path: "a", Kind: File, Mode: 0o4755}}, "", false},
		"no target":           {List{{Path: "a", Kind: Link}}, "", false},
		"a negative size":     {List{{Path: "a", Kind: File, Size: -1}}, "", false},
	} {
		if err := c.list.Check(c.under); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func open(t *testing.T, path string, only []string) *Tree {
	t.Helper()
	tr, err := Open(path, only)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build makes files with their paths as texts; a path that ends in a slash is a folder.
func build(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		name, text, ok := strings.Cut(name, "=")
		if !ok {
			text = name
		}
		p := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(p, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(text), 0o644))
	}
}

func full(t *testing.T, dir, path string) List {
	t.Helper()
	tr := open(t, dir, nil)
	list, err := tr.List(t.Context(), path, plenty)
	must(t, err)
	var d Digests
	must(t, d.Fill(t.Context(), tr, list, 1<<30))
	return list
}

// TestWhole changes one tree into another, for each pair of a few, at each path, and touches nothing else.
func TestWhole(t *testing.T) {
	trees := [][]string{
		{},
		{"a/x", "a/y", "b/x", "c"},
		{"a/x=other", "a/y", "b/x", "c"},
		{"a/x=other", "a/y=other", "b/deep/er/x", "c/now/a/folder"},
		{"a", "b/", "c", "d/e/f/g=c"},
		{"a/x/y/z", "a/x/q", "b/x=a/x", "b/y=a/x", "b/z=a/x"},
	}
	for i, from := range trees {
		for j, to := range trees {
			for _, path := range []string{"", "a", "b", "c"} {
				old, now := t.TempDir(), t.TempDir()
				build(t, old, from...)
				build(t, now, to...)
				build(t, old, "other/o")
				if path == "" {
					build(t, now, "other/o")
				}
				before, err := os.Stat(filepath.Join(old, "other"))
				must(t, err)
				if err := change(t, old, now, path); err != nil {
					t.Fatalf("%d to %d at %q: %v", i, j, path, err)
				}
				if d := Diff(full(t, old, path), full(t, now, path), Differs); len(d) > 0 {
					t.Errorf("%d to %d at %q: %+v", i, j, path, d)
				}
				if after, err := os.Stat(filepath.Join(old, "other")); err != nil || !os.SameFile(before, after) {
					t.Errorf("%d to %d at %q: what has no change was touched", i, j, path)
				}
				if left, _ := filepath.Glob(filepath.Join(old, Aside+"*")); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
			}
		}
	}
}

// change makes old what now is, at a path.
func change(t *testing.T, old, now, path string) error {
	t.Helper()
	w := Whole{Path: path, Old: full(t, old, path), New: full(t, now, path)}
	tr := open(t, old, nil)
	c, err := tr.Change(0, false)
	must(t, err)
	incoming := map[Digest]*Incoming{}
	for _, i := range w.Missing() {
		in, err := c.New()
		must(t, err)
		text, err := os.ReadFile(filepath.Join(now, w.New[i].Path))
		must(t, err)
		_, err = in.Write(text)
		must(t, err)
		if in.Digest() != w.New[i].Digest {
			t.Fatal("digest")
		}
		incoming[in.Digest()] = in
	}
	if err := c.Apply(t.Context(), w, incoming); err != nil {
		c.Abort(t.Context())
		return err
	}
	return c.Finish(t.Context())
}

// TestOneChangedFileCostsOneFile: its neighbours keep their inodes, and its folder, too.
func TestOneChangedFileCostsOneFile(t *testing.T) {
	old, now := t.TempDir(), t.TempDir()
	build(t, old, "p/s/a", "p/s/b", "p/t/a")
	build(t, now, "p/s/a=new", "p/s/b", "p/t/a")
	ids := func() (out []uint64) {
		for _, name := range []string{"p", "p/s", "p/s/b", "p/t", "p/t/a"} {
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(old, name), &st))
			out = append(out, st.Ino)
		}
		return out
	}
	before := ids()
	must(t, change(t, old, now, ""))
	if got := ids(); !slices.Equal(got, before) {
		t.Errorf("inodes %v, then %v", before, got)
	}
	// Two of a folder: the folder is exchanged, and what did not change is linked.
	build(t, now, "p/s/a=newer", "p/s/c")
	must(t, change(t, old, now, ""))
	got := ids()
	if got[1] == before[1] || got[2] != before[2] || got[3] != before[3] || got[0] != before[0] {
		t.Errorf("inodes %v, then %v", before, got)
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "a", "b/c", "b/d=0123456789")
	for name, c := range map[string]struct {
		limits Limits
		ok     bool
	}{
		"enough":        {Limits{Entries: 4, Bytes: 14, FileBytes: 10, Names: 1000}, true},
		"entries":       {Limits{Entries: 3, Bytes: 14, FileBytes: 10, Names: 1000}, false},
		"bytes":         {Limits{Entries: 4, Bytes: 13, FileBytes: 10, Names: 1000}, false},
		"bytes of one":  {Limits{Entries: 4, Bytes: 14, FileBytes: 9, Names: 1000}, false},
		"names":         {Limits{Entries: 4, Bytes: 14, FileBytes: 10, Names: 8}, true},
		"long names":    {Limits{Entries: 4, Bytes: 14, FileBytes: 10, Names: 7}, false},
		"none are some": {Limits{}, false},
	} {
		if _, err := open(t, dir, nil).List(t.Context(), "", c.limits); errors.Is(err, ErrTooMuch) == c.ok || err != nil && c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestListHoldsFewNames: names count when they are read, whatever they are: a walk that is in many folders
// would hold those of each.
func TestListHoldsFewNames(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"", "z", "z/z"} {
		must(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
		for i := range 5 {
			must(t, unix.Mkfifo(filepath.Join(dir, sub, fmt.Sprint(i)), 0o600))
		}
	}
	for most, ok := range map[int]bool{16: false, 17: true} { // 15 FIFOs and two folders
		list, err := open(t, dir, nil).List(t.Context(), "", Limits{Names: 1 << 20, Entries: most, Bytes: 1, FileBytes: 1})
		if ok && (err != nil || len(list) != 2) || !ok && !errors.Is(err, ErrTooMuch) {
			t.Errorf("at most %d: %d, %v", most, len(list), err)
		}
	}
}

// TestRemoveFolderHoldsFewNames: a folder of more names than are read at a time goes.
func TestRemoveFolderHoldsFewNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	for _, sub := range []string{"", "z"} {
		must(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
		for i := range 2500 {
			must(t, os.WriteFile(filepath.Join(dir, sub, fmt.Sprint(i)), nil, 0o600))
		}
	}
	must(t, RemoveFolder(t.Context(), dir))
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestDigestsAreRemembered by what a stat tells, and not beyond.
func TestDigestsAreRemembered(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "a=one")
	tr := open(t, dir, nil)
	list := func() List {
		l, err := tr.List(t.Context(), "", plenty)
		must(t, err)
		return l
	}
	var d Digests
	l := list()
	l[0].Racy = false
	d.Put(l[0].Stamp, Digest{1})
	must(t, d.Fill(t.Context(), tr, l, 1<<20))
	if l[0].Digest != (Digest{1}) {
		t.Error("the file was read")
	}
	build(t, dir, "a=two")
	l = list()
	must(t, d.Fill(t.Context(), tr, l, 1<<20))
	if l[0].Digest == (Digest{1}) || !l[0].Digest.Known() {
		t.Errorf("after a change: %x", l[0].Digest)
	}
	for i := range 2*maxDigests + 10 {
		d.Put(Stamp{Ino: uint64(i)}, Digest{2})
	}
	if n := len(d.known) + len(d.old); n > 2*maxDigests {
		t.Errorf("%d are remembered", n)
	}
}

// TestCancelled ends a walk and a removal.
func TestCancelled(t *testing.T) {
	dir := t.TempDir()
	for i := range 50 {
		build(t, dir, fmt.Sprintf("%d/f", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t, dir, nil).List(ctx, "", plenty); !errors.Is(err, context.Canceled) {
		t.Errorf("a walk: %v", err)
	}
}
