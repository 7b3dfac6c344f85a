package skills

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/platform/rename/refused"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// shown lists the files below a folder.
func shown(t testing.TB, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			p, err = filepath.Rel(dir, p)
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFolderShowsAView(t *testing.T) {
	h := newHouse(t, func(public string) {
		write(t, filepath.Join(public, "p/SKILL.md"), text("p"), 0o600)
		write(t, filepath.Join(public, "p/a/b/run.sh"), "#!/bin/sh\n", 0o700)
	})
	if _, err := h.Add(t.Context(), anna, "c", files("c"), AddOptions{}); err != nil {
		t.Fatal(err)
	}
	v, err := h.Virtual(anna, "v", map[string][]byte{"SKILL.md": []byte(text("v")), "ref/x.md": []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "view")
	f, err := openFolder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	show := func(view *View, want ...string) {
		t.Helper()
		if err := f.Show("", view); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, f.Skills()); !slices.Equal(got, want) || !f.Shows(view) {
			t.Errorf("%q", got)
		}
		if left := shown(t, filepath.Join(dir, "stage")); len(left) != 0 {
			t.Errorf("left over: %q", left)
		}
	}
	c, p, virtual := []string{"custom/c/SKILL.md", "custom/c/scripts/run.py"}, []string{"public/p/SKILL.md", "public/p/a/b/run.sh"}, []string{"virtual/v/SKILL.md", "virtual/v/ref/x.md"}
	set := h.set(t, anna)
	show(set.View(nil, nil), slices.Concat(c, p)...)
	show(set.View(nil, []*Member{v}), slices.Concat(c, p, virtual)...)
	untouched, err := os.Stat(filepath.Join(f.Skills(), "public/p"))
	if err != nil {
		t.Fatal(err)
	}
	h.switchOff(anna, "c")
	show(h.set(t, anna).View(nil, nil), p...)
	if again, err := os.Stat(filepath.Join(f.Skills(), "public/p")); err != nil || !os.SameFile(untouched, again) {
		t.Errorf("a tree that stays was made anew: %v", err)
	}
	info, err := os.Stat(filepath.Join(f.Skills(), "public/p/a/b/run.sh"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	show(NoView())
	// What a former process left is not trusted.
	write(t, filepath.Join(f.Skills(), "public/p/SKILL.md"), "forged", 0o444)
	write(t, filepath.Join(f.Skills(), "custom/left/SKILL.md"), "left over", 0o444)
	if f, err = openFolder(dir, nil); err != nil {
		t.Fatal(err)
	}
	show(h.set(t, anna).View(nil, nil), p...)
	if data, err := os.ReadFile(filepath.Join(f.Skills(), "public/p/SKILL.md")); err != nil || string(data) != text("p") {
		t.Errorf("%s, %v", data, err)
	}
	f.Close()
	if err := f.Show("", NoView()); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("%v", err)
	}
}

// TestFolderOnNetworkFiles: trees appear and are exchanged on a file system that knows no flags of rename.
func TestFolderOnNetworkFiles(t *testing.T) {
	h := newHouse(t, func(public string) { write(t, filepath.Join(public, "p/SKILL.md"), text("p"), 0o600) })
	f, err := openFolder(filepath.Join(t.TempDir(), "view"), nil)
	if err != nil {
		t.Fatal(err)
	}
	trees := h.set(t, anna).View(nil, nil).trees
	if len(trees) != 1 {
		t.Fatalf("%+v", trees)
	}
	file := filepath.Join(f.Skills(), "public/p/SKILL.md")
	refused.Flags(t, func() {
		for range 2 { // where nothing is, and where something is
			if err := f.place(trees[0]); err != nil {
				t.Error(err)
			}
			if data, err := os.ReadFile(file); err != nil || string(data) != text("p") {
				t.Errorf("%s, %v", data, err)
			}
			write(t, filepath.Join(filepath.Dir(file), "of-before"), "x", 0o444)
		}
		if err := f.place(trees[0]); err != nil {
			t.Error(err)
		}
	})
	if got := shown(t, f.Skills()); !slices.Equal(got, []string{"public/p/SKILL.md"}) {
		t.Errorf("%q", got)
	}
}

func TestFolderShowsPlugins(t *testing.T) {
	h := newHouse(t, nil)
	plugin := t.TempDir()
	for _, name := range []string{"skills/a/SKILL.md", "skills/ab/SKILL.md", "commands/x.md"} {
		write(t, filepath.Join(plugin, name), text("a"), 0o444)
	}
	h.plugins[anna] = &Plugins{List: []Plugin{{Name: "pl", Dir: plugin, Key: "1", Skills: []string{"skills/a", "skills/ab"}}}}
	f, err := openFolder(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		off  []string
		want []string
	}{
		{nil, []string{"pl/commands/x.md", "pl/skills/a/SKILL.md", "pl/skills/ab/SKILL.md"}},
		{[]string{"a"}, []string{"pl/commands/x.md", "pl/skills/ab/SKILL.md"}},
	} {
		h.switchOff(anna, c.off...)
		if err := f.Show("", h.set(t, anna).View(nil, nil)); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, f.Plugins()); !slices.Equal(got, c.want) {
			t.Errorf("%q", got)
		}
	}
	h.plugins[anna] = nil
	if err := f.Show("", h.set(t, anna).View(nil, nil)); err != nil || len(shown(t, f.Plugins())) != 0 {
		t.Errorf("%v", err)
	}
}

// TestReadersSeeWholeTrees: a program that reads all the time finds one of two versions of a skill, whole. A
// program that has a file open reads on.
func TestReadersSeeWholeTrees(t *testing.T) {
	h := newHouse(t, nil)
	if _, err := h.Add(t.Context(), anna, "a", files("a"), AddOptions{}); err != nil {
		t.Fatal(err)
	}
	one := h.set(t, anna).View(nil, nil)
	if _, err := h.SetText(t.Context(), anna, "a", []byte(text("other"))); err != nil {
		t.Fatal(err)
	}
	two := h.set(t, anna).View(nil, nil)
	f, err := openFolder(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Show("", one); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(f.Skills(), "custom/a/SKILL.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			data, err := os.ReadFile(filepath.Join(f.Skills(), "custom/a/SKILL.md"))
			if err != nil || string(data) != text("a") && string(data) != text("other") {
				t.Errorf("%q, %v", data, err)
			}
		}
	})
	for i := range 50 {
		if err := f.Show("", []*View{two, one}[i%2]); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	buf := make([]byte, 1000)
	if n, err := open.Read(buf); err != nil || string(buf[:n]) != text("a") {
		t.Errorf("an open file: %q, %v", buf[:n], err)
	}
}

// TestCopyWhereNoLinkCanBe: a tree on another file system.
func TestCopyWhereNoLinkCanBe(t *testing.T) {
	source := t.TempDir()
	write(t, filepath.Join(source, "s/run.sh"), "#!/bin/sh\n", 0o555)
	to := t.TempDir()
	if err := copyOver(source, filepath.Join(to, "run.sh"), format.File{SkillFile: sandbox.SkillFile{Path: "s/run.sh"}, Exec: true}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(to, "run.sh"))
	if data, e := os.ReadFile(filepath.Join(to, "run.sh")); err != nil || e != nil || info.Mode() != 0o755 || string(data) != "#!/bin/sh\n" {
		t.Errorf("%q, %v, %v", data, info, errors.Join(err, e))
	}
}

func many(t testing.TB, n int) *house {
	return newHouse(t, func(public string) {
		for i := range n {
			write(t, filepath.Join(public, fmt.Sprintf("skill-%04d", i), "SKILL.md"), text(strings.Repeat("x", i%50)+"y"), 0o600)
		}
	})
}

func TestSparesAndSharedViews(t *testing.T) {
	h := many(t, spareTrees+1)
	dir := t.TempDir()
	views, err := NewViews(filepath.Join(dir, "skills"))
	if err != nil {
		t.Fatal(err)
	}
	all := h.set(t, anna).View(nil, nil)
	few := h.set(t, anna).View([]string{"skill-0000"}, nil)
	if err := views.Prepare(all); err != nil || len(views.spares) != 1 {
		t.Fatalf("%d spares, %v", len(views.spares), err)
	}
	box := func(name string, view *View) *Folder {
		t.Helper()
		f, err := views.Folder(filepath.Join(dir, name))
		if err == nil {
			err = f.Show("", view)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if views, err = NewViews(filepath.Join(dir, "skills")); err != nil || len(views.spares) != 1 || views.spares[0].known() {
		t.Fatalf("a former server's spare is not there: %d, %v", len(views.spares), err)
	}
	kept, err := os.Stat(filepath.Join(views.spares[0].Skills(), "public/skill-0001"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(views.spares[0].Skills(), "public/skill-0002/evil"), "x", 0o444)
	if err := views.Prepare(all); err != nil || len(views.spares) != 1 || !views.spares[0].known() {
		t.Fatalf("%d spares, %v", len(views.spares), err)
	}
	if again, err := os.Stat(filepath.Join(views.spares[0].Skills(), "public/skill-0001")); err != nil || !os.SameFile(kept, again) {
		t.Errorf("a tree that was right was made anew: %v", err)
	}
	if got := shown(t, views.spares[0].Skills()); len(got) != spareTrees+1 {
		t.Errorf("%d files", len(got))
	}
	// A spare of all becomes the folder of a sandbox that has few.
	if got := shown(t, box("a", few).Skills()); !slices.Equal(got, []string{"public/skill-0000/SKILL.md"}) || len(views.spares) != 0 {
		t.Errorf("%q", got)
	}
	b := box("b", all)
	if got := shown(t, b.Skills()); len(got) != spareTrees+1 {
		t.Errorf("%d files", len(got))
	}
	if err := views.Return(b); err != nil || len(views.spares) != 1 {
		t.Errorf("%d spares, %v", len(views.spares), err)
	}
	if err := b.Show("", few); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("%v", err)
	}
	skills, plugins, err := views.Shared(few)
	if err != nil || !slices.Equal(shown(t, skills), []string{"public/skill-0000/SKILL.md"}) || len(shown(t, plugins)) != 0 {
		t.Errorf("%v", err)
	}
	if again, _, err := views.Shared(h.set(t, anna).View([]string{"skill-0000"}, nil)); err != nil || again != skills {
		t.Errorf("the same view is made twice: %v", err)
	}
	for i := range 5 * maxShared {
		if _, _, err := views.Shared(h.set(t, anna).View([]string{fmt.Sprintf("skill-%04d", i%spareTrees), "skill-0000"}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := views.Clean(); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(filepath.Join(dir, "skills/spare")); err != nil || slices.ContainsFunc(list, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), oldPrefix) }) {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := os.ReadDir(filepath.Join(dir, "skills/views")); err != nil || len(list) > 4*maxShared {
		t.Errorf("%d views, %v", len(list), err)
	}
}

func BenchmarkList5000(b *testing.B) {
	h := many(b, 5000)
	h.set(b, anna)
	for b.Loop() {
		h.Library.public.next = h.Library.public.next.AddDate(-1, 0, 0) // each time with a look at all folders
		if got := h.set(b, anna).List(); len(got) != 5000 {
			b.Fatal(len(got))
		}
	}
}

// BenchmarkView5000 makes the view of a sandbox: with a spare folder, as in a server that has run for a
// second, without one, and for a change of one skill.
func BenchmarkView5000(b *testing.B) {
	h := many(b, 5000)
	all := h.set(b, anna).View(nil, nil)
	h.switchOff(anna, "skill-2500")
	less := h.set(b, anna).View(nil, nil)
	dir := b.TempDir()
	views, err := NewViews(filepath.Join(dir, "skills"))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	run := func(b *testing.B, prepare bool) {
		for b.Loop() {
			b.StopTimer()
			if prepare {
				if err := views.Prepare(all); err != nil {
					b.Fatal(err)
				}
			}
			n++
			b.StartTimer()
			f, err := views.Folder(filepath.Join(dir, fmt.Sprint(n)))
			if err == nil {
				err = f.Show("", all)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("spare", func(b *testing.B) { run(b, true) })
	b.Run("new", func(b *testing.B) { run(b, false) })
	b.Run("toggle", func(b *testing.B) {
		f, err := views.Folder(filepath.Join(dir, "toggle"))
		if err == nil {
			err = f.Show("", less)
		}
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			if err := f.Show("", []*View{all, less}[i%2]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
