package skills

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

func write(t testing.TB, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

const good = "---\nname: a\ndescription: does it\n---\nbody\n"

var (
	anna = sandbox.Owner{Tenant: "t", User: "anna"}
	bert = sandbox.Owner{Tenant: "t", User: "bert"}
)

func text(name string) string {
	return "---\nname: " + name + "\ndescription: does " + name + "\n---\nbody\n"
}

func files(name string) fstest.MapFS {
	return fstest.MapFS{"SKILL.md": {Data: []byte(text(name))}, "scripts/run.py": {Data: []byte("print(1)\n"), Mode: 0o755}}
}

// switches is a State of a test.
type switches struct{ off map[string]bool }

func (s *switches) Skill(name string) (bool, bool) { return !s.off[name], s.off[name] }

// house is a library of a test, with what goes into it.
type house struct {
	*Library
	source  string
	off     map[sandbox.Owner]*switches
	plugins map[sandbox.Owner]*Plugins
}

func newHouse(t testing.TB, fill func(public string)) *house {
	t.Helper()
	data := t.TempDir()
	h := &house{source: filepath.Join(data, "source"), off: map[sandbox.Owner]*switches{}, plugins: map[sandbox.Owner]*Plugins{}}
	if fill != nil {
		fill(h.source)
	}
	var err error
	h.Library, err = Open(Options{
		Dir: filepath.Join(data, "skills"), Users: filepath.Join(data, "tenants"), Public: []Source{{Dir: h.source}}, Log: slog.New(slog.DiscardHandler),
		State: func(o sandbox.Owner) (State, error) {
			if s := h.off[o]; s != nil {
				return s, nil
			}
			return noneOff, nil
		},
		Plugins: func(o sandbox.Owner) (*Plugins, error) { return h.plugins[o], nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var noneOff = &switches{}

func (h *house) switchOff(o sandbox.Owner, names ...string) {
	s := &switches{off: map[string]bool{}}
	for _, n := range names {
		s.off[n] = true
	}
	h.off[o] = s
}

func (h *house) set(t testing.TB, o sandbox.Owner) *Set {
	t.Helper()
	s, err := h.Set(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func names(list []sandbox.Skill) (all []string) {
	for _, s := range list {
		all = append(all, s.Name)
	}
	return all
}

func hasRule(s sandbox.Skill, rule string) bool {
	return slices.ContainsFunc(s.Findings, func(f sandbox.Finding) bool { return f.Rule == rule })
}

// TestUntrustedSource: a skill is trusted as its source is; the first source with a name wins.
func TestUntrustedSource(t *testing.T) {
	data := t.TempDir()
	l, err := Open(Options{
		Dir: filepath.Join(data, "skills"), Users: filepath.Join(data, "tenants"), Log: slog.New(slog.DiscardHandler),
		Public: []Source{{FS: fstest.MapFS{"a/SKILL.md": {Data: []byte(text("a"))}}}, {Untrusted: true, FS: fstest.MapFS{
			"a/SKILL.md": {Data: []byte(text("a"))}, "b/SKILL.md": {Data: []byte(text("b"))},
		}}},
		State:   func(sandbox.Owner) (State, error) { return noneOff, nil },
		Plugins: func(sandbox.Owner) (*Plugins, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	set, err := l.Set(anna)
	if err != nil || len(set.List()) != 2 || !set.List()[0].Trusted || set.List()[1].Trusted {
		t.Errorf("%+v, %v", set.List(), err)
	}
}

func TestPublicSkills(t *testing.T) {
	h := newHouse(t, func(public string) {
		write(t, filepath.Join(public, "good/SKILL.md"), text("good"), 0o600)
		write(t, filepath.Join(public, "good/scripts/run.py"), "print(1)\n", 0o700)
		write(t, filepath.Join(public, "broken/SKILL.md"), "no front", 0o600)
		write(t, filepath.Join(public, "empty/readme"), "x", 0o600)
		write(t, filepath.Join(public, ".git/SKILL.md"), good, 0o600)
		if err := os.Symlink("/etc/passwd", filepath.Join(public, "good/link")); err != nil {
			t.Fatal(err)
		}
	})
	set := h.set(t, anna)
	if got := names(set.List()); !slices.Equal(got, []string{"broken", "empty", "good"}) {
		t.Fatalf("%q", got)
	}
	for i, rule := range []string{"no-frontmatter", "no-skill-file"} {
		if s := set.List()[i]; !s.Broken || s.Enabled || !hasRule(s, rule) {
			t.Errorf("%+v", s)
		}
	}
	s, err := set.Get("good")
	if err != nil || !s.Enabled || !s.Trusted || s.Category != "public" || s.Location != "/mnt/skills/public/good/SKILL.md" || !format.CheckDigest(s.Digest) {
		t.Errorf("%+v, %v", s, err)
	}
	view := set.View(nil, nil)
	m, err := view.Manifest("good")
	if err != nil || len(m.Files) != 2 || m.Files[0].Path != "SKILL.md" || m.Files[1].Path != "scripts/run.py" || len(m.Frontmatter) == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	for name, mode := range map[string]os.FileMode{"SKILL.md": 0o644, "scripts/run.py": 0o755, "scripts": os.ModeDir | 0o755, "": os.ModeDir | 0o755} {
		info, err := os.Lstat(filepath.Join(h.store.path(s.Digest), name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// TestPublicSkillsChange: what an administrator does to the folder is seen at the next call.
func TestPublicSkillsChange(t *testing.T) {
	h := newHouse(t, func(public string) { write(t, filepath.Join(public, "a/SKILL.md"), text("a"), 0o600) })
	first := h.set(t, anna)
	if h.set(t, anna) != first {
		t.Error("the set of skills that stay is another one")
	}
	write(t, filepath.Join(h.source, "b/SKILL.md"), text("b"), 0o600)
	if got := names(h.set(t, anna).List()); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
	digest := func() string { s, _ := h.set(t, anna).Get("a"); return s.Digest }
	before := digest()
	write(t, filepath.Join(h.source, "a/SKILL.md"), text("other"), 0o600)
	for start := time.Now(); digest() == before; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("a changed SKILL.md is not seen")
		}
	}
	before = digest()
	write(t, filepath.Join(h.source, "a/deep/er/x.py"), "1", 0o600)
	for start := time.Now(); digest() == before; time.Sleep(50 * time.Millisecond) {
		h.Refresh()
		if time.Since(start) > time.Minute {
			t.Fatal("a file in a folder is not seen")
		}
	}
	if err := os.RemoveAll(filepath.Join(h.source, "a")); err != nil {
		t.Fatal(err)
	}
	if got := names(h.set(t, anna).List()); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%q", got)
	}
}

func TestCustomSkills(t *testing.T) {
	h := newHouse(t, nil)
	ctx := t.Context()
	s, err := h.Add(ctx, anna, "a", files("a"), AddOptions{Source: "test", Findings: []sandbox.Finding{{Rule: "scan"}}})
	if err != nil || !s.Enabled || s.Trusted || s.Category != "custom" || s.Location != "/mnt/skills/custom/a/SKILL.md" || !hasRule(s, "scan") {
		t.Fatalf("%+v, %v", s, err)
	}
	if want, err := format.Digest(files("a")); err != nil || s.Digest != want {
		t.Errorf("the digest is not that of the files: %v", err)
	}
	if _, err := h.Add(ctx, anna, "a", files("x"), AddOptions{}); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("%v", err)
	}
	if got := h.set(t, bert).List(); len(got) != 0 {
		t.Errorf("another user has %q", names(got))
	}
	// A second library on the same folders stands for another process.
	other, err := Open(h.o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Add(ctx, anna, "b", files("b"), AddOptions{Trusted: true}); err != nil {
		t.Fatal(err)
	}
	set := h.set(t, anna)
	if b, err := set.Get("b"); err != nil || !b.Trusted || len(set.List()) != 2 {
		t.Errorf("%+v, %v", b, err)
	}
	after, err := h.SetText(ctx, anna, "a", []byte(text("new")))
	if err != nil || after.Digest == s.Digest || after.Description != "does new" || !hasRule(after, "scan") {
		t.Errorf("%+v, %v", after, err)
	}
	if m, err := h.set(t, anna).View(nil, nil).Manifest("a"); err != nil || len(m.Files) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if raw, err := other.Text(anna, "a"); err != nil || string(raw) != text("new") {
		t.Errorf("%s, %v", raw, err)
	}
	if err := errors.Join(h.Remove(ctx, anna, "a"), h.Remove(ctx, anna, "b")); err != nil || len(h.set(t, anna).List()) != 0 || len(list(t, other)) != 0 {
		t.Errorf("%v", err)
	}
	_, e1 := h.Text(anna, "a")
	_, e2 := h.SetText(ctx, anna, "a", []byte(good))
	if e3 := h.Remove(ctx, anna, "a"); !errors.Is(e1, sandbox.NotFound) || !errors.Is(e2, sandbox.NotFound) || !errors.Is(e3, sandbox.NotFound) {
		t.Errorf("%v, %v, %v", e1, e2, e3)
	}
}

func list(t *testing.T, l *Library) []sandbox.Skill {
	t.Helper()
	s, err := l.Set(anna)
	if err != nil {
		t.Fatal(err)
	}
	return s.List()
}

func TestAddRefuses(t *testing.T) {
	h := newHouse(t, nil)
	for name, c := range map[string]struct {
		name string
		fsys fstest.MapFS
	}{
		"a name":         {"../a", files("a")},
		"no SKILL.md":    {"a", fstest.MapFS{"x": {}}},
		"no description": {"a", fstest.MapFS{"SKILL.md": {Data: []byte("---\nname: a\n---\n")}}},
		"a large one":    {"a", fstest.MapFS{"SKILL.md": {Data: []byte(good)}, "x": {Data: make([]byte, format.MaxBytes)}}},
	} {
		if _, err := h.Add(t.Context(), anna, c.name, c.fsys, AddOptions{}); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := h.Add(t.Context(), sandbox.Owner{Tenant: "../..", User: "x"}, "a", files("a"), AddOptions{}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(h.store.dir); err != nil || slices.ContainsFunc(list, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), stagePrefix) }) {
		t.Errorf("%v, %v", list, err)
	}
}

// TestAddRaces: of many that add one name at once, also in several processes, one wins.
func TestAddRaces(t *testing.T) {
	h := newHouse(t, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			own, err := Open(h.o)
			if err == nil {
				_, err = own.Add(t.Context(), anna, "a", files(fmt.Sprint(i)), AddOptions{})
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, sandbox.Conflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

func TestShadowing(t *testing.T) {
	h := newHouse(t, func(public string) {
		for _, name := range []string{"a", "b", "c", "d"} {
			write(t, filepath.Join(public, name, "SKILL.md"), text("public-"+name), 0o600)
		}
	})
	plugin := func(name string, skills ...string) Plugin {
		p := Plugin{Name: name, Dir: filepath.Join(t.TempDir(), name), Key: name + "-1"}
		for _, s := range skills {
			write(t, filepath.Join(p.Dir, "skills", s, "SKILL.md"), text(name+"-"+s), 0o444)
			p.Skills = append(p.Skills, "skills/"+s)
		}
		write(t, filepath.Join(p.Dir, "commands/x.md"), "x", 0o444)
		return p
	}
	h.plugins[anna] = &Plugins{List: []Plugin{plugin("zeta", "a", "b"), plugin("alpha", "b")}}
	if _, err := h.Add(t.Context(), anna, "a", files("mine"), AddOptions{}); err != nil {
		t.Fatal(err)
	}
	set := h.set(t, anna)
	for name, want := range map[string]string{
		"a": "custom", "zeta:a": "plugin:zeta", "b": "plugin:alpha", "alpha:b": "plugin:alpha", "zeta:b": "plugin:zeta", "c": "public", "d": "public",
	} {
		if s, err := set.Get(name); err != nil || s.Category != want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if got := names(set.List()); !slices.Equal(got, []string{"a", "b", "c", "d", "zeta:a", "zeta:b"}) {
		t.Errorf("%q", got)
	}
	for name, rule := range map[string]string{"a": "shadows", "b": "shadows", "zeta:a": "shadowed", "zeta:b": "shadowed"} {
		if s, err := set.Get(name); err != nil || !hasRule(s, rule) {
			t.Errorf("%s: %+v, %v", name, s.Findings, err)
		}
	}
	if s, err := set.Get("zeta:b"); err != nil || s.Location != "/mnt/plugins/zeta/skills/b/SKILL.md" {
		t.Errorf("%+v, %v", s, err)
	}
	h.switchOff(anna, "zeta:b", "c")
	view := h.set(t, anna).View(nil, nil)
	if got := names(view.List()); !slices.Equal(got, []string{"a", "b", "d", "zeta:a"}) {
		t.Errorf("%q", got)
	}
	var paths []string
	for _, tree := range view.Trees() {
		paths = append(paths, tree.Path+fmt.Sprint(tree.Without))
	}
	if want := []string{"plugins/alpha[]", "plugins/zeta[skills/b]", "skills/custom/a[]", "skills/public/d[]"}; !slices.Equal(paths, want) {
		t.Errorf("%q", paths)
	}
	if got := names(h.set(t, anna).View([]string{"alpha:b", "c", "d"}, nil).List()); !slices.Equal(got, []string{"b", "d"}) {
		t.Errorf("%q", got)
	}
	if got := h.set(t, anna).View([]string{}, nil).List(); len(got) != 0 {
		t.Errorf("%q", names(got))
	}
}

func TestBrokenHidesNothing(t *testing.T) {
	h := newHouse(t, func(public string) { write(t, filepath.Join(public, "a/SKILL.md"), text("a"), 0o600) })
	s, err := h.Add(t.Context(), anna, "a", files("mine"), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(h.store.path(s.Digest)); err != nil {
		t.Fatal(err)
	}
	fresh, err := Open(h.o) // which has not read the skill yet
	if err != nil {
		t.Fatal(err)
	}
	set, err := fresh.Set(anna)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := set.Get("a"); err != nil || a.Category != "public" || !a.Enabled || !hasRule(a, "shadows") {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestModesOfBefore: files that a version up to 0.1 has stored as read-only get the modes of today.
func TestModesOfBefore(t *testing.T) {
	h := newHouse(t, nil)
	s, err := h.Add(t.Context(), anna, "a", files("a"), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := h.store.path(s.Digest)
	for name, mode := range map[string]os.FileMode{"SKILL.md": 0o444, "scripts/run.py": 0o555, "scripts": 0o555, "": 0o555} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	fresh, err := Open(h.o)
	if err != nil {
		t.Fatal(err)
	}
	if set, err := fresh.Set(anna); err != nil {
		t.Fatal(err)
	} else if a, err := set.Get("a"); err != nil || a.Broken {
		t.Fatalf("%+v, %v", a, err)
	}
	for name, mode := range map[string]os.FileMode{"SKILL.md": 0o644, "scripts/run.py": 0o755, "scripts": os.ModeDir | 0o755, "": os.ModeDir | 0o755} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestDamageIsFound: files in the store that are not those of their digest are not used.
func TestDamageIsFound(t *testing.T) {
	h := newHouse(t, nil)
	s, err := h.Add(t.Context(), anna, "a", files("a"), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.store.path(s.Digest), "scripts/run.py"), []byte("evil"), 0o555); err != nil {
		t.Fatal(err)
	}
	fresh, err := Open(h.o)
	if err != nil {
		t.Fatal(err)
	}
	set, err := fresh.Set(anna)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := set.Get("a"); err != nil || !a.Broken || !hasRule(a, "files-damaged") || len(set.View(nil, nil).Trees()) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := fresh.Remove(t.Context(), anna, "a"); err != nil {
		t.Fatal(err)
	}
	if a, err := fresh.Add(t.Context(), anna, "a", files("a"), AddOptions{}); err != nil || a.Digest != s.Digest {
		t.Errorf("%v", err)
	}
	if set, err = fresh.Set(anna); err != nil || set.List()[0].Broken {
		t.Errorf("%v", err)
	}
}

func TestSweep(t *testing.T) {
	h := newHouse(t, func(public string) { write(t, filepath.Join(public, "p/SKILL.md"), text("p"), 0o600) })
	kept, e1 := h.Add(t.Context(), anna, "kept", files("kept"), AddOptions{})
	gone, e2 := h.Add(t.Context(), anna, "gone", files("gone"), AddOptions{})
	young, e3 := h.Add(t.Context(), anna, "young", files("young"), AddOptions{})
	if err := errors.Join(e1, e2, e3, h.Remove(t.Context(), anna, "gone"), h.Remove(t.Context(), anna, "young")); err != nil {
		t.Fatal(err)
	}
	public, err := h.set(t, anna).Get("p")
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * stageAge)
	for _, s := range []sandbox.Skill{kept, gone, public} {
		if err := os.Chtimes(h.store.path(s.Digest), old, old); err != nil {
			t.Fatal(err)
		}
	}
	// What a process that died in the middle of an Add left, and what a living one is writing.
	left, writing := filepath.Join(h.store.dir, stagePrefix+"left"), filepath.Join(h.store.dir, stagePrefix+"writing")
	for _, dir := range []string{left, writing} {
		write(t, filepath.Join(dir, "skill/SKILL.md"), "half", 0o600)
	}
	if err := errors.Join(os.Chtimes(left, old, old), h.Sweep()); err != nil {
		t.Fatal(err)
	}
	_, e1 = os.Stat(left)
	if _, e2 = os.Stat(writing); e1 == nil || e2 != nil {
		t.Errorf("unfinished folders: %v, %v", e1, e2)
	}
	for _, c := range []struct {
		skill sandbox.Skill
		there bool
	}{{kept, true}, {public, true}, {young, true}, {gone, false}} {
		if _, err := os.Stat(h.store.path(c.skill.Digest)); (err == nil) != c.there {
			t.Errorf("%s: %v", c.skill.Name, err)
		}
	}
}

func TestReadFileAndArgv(t *testing.T) {
	h := newHouse(t, nil)
	fsys := files("s")
	fsys["run.py"] = &fstest.MapFile{Data: []byte("print(1)\n")}
	fsys["data.bin"] = &fstest.MapFile{Data: []byte{0}}
	if _, err := h.Add(t.Context(), anna, "s", fsys, AddOptions{}); err != nil {
		t.Fatal(err)
	}
	v := h.set(t, anna).View(nil, nil)
	argv, err := v.Argv("s", "run.py")
	if want := []string{"python3", "/mnt/skills/custom/s/run.py"}; err != nil || !reflect.DeepEqual(argv, want) {
		t.Errorf("got %q, %v", argv, err)
	}
	for _, c := range []struct {
		skill, script string
		kind          sandbox.Kind
	}{
		{"nope", "run.py", sandbox.NotFound}, {"s", "nope.py", sandbox.NotFound}, {"s", "../s/run.py", sandbox.Invalid},
		{"s", "/etc/passwd", sandbox.Invalid}, {"s", "data.bin", sandbox.NotSupported},
	} {
		if _, err := v.Argv(c.skill, c.script); !errors.Is(err, c.kind) {
			t.Errorf("%s %s: got %v, want %s", c.skill, c.script, err, c.kind)
		}
	}
	argv, err = v.ModuleArgv("s", "run")
	if n := len(argv); err != nil || n < 3 || argv[n-2] != "/mnt/skills/custom/s" || argv[n-1] != "run" {
		t.Errorf("got %q, %v", argv, err)
	}
	for _, c := range [][2]string{{"nope", "run"}, {"s", "nope"}, {"s", "run.py"}, {"s", "data"}} {
		if _, err := v.ModuleArgv(c[0], c[1]); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s %s: got %v", c[0], c[1], err)
		}
	}
	if data, err := v.ReadFile("s", "SKILL.md"); err != nil || string(data) != text("s") {
		t.Errorf("%s, %v", data, err)
	}
	h.off[anna] = &switches{map[string]bool{"s": true}}
	if data, err := h.set(t, anna).Text("s"); err != nil || string(data) != text("s") {
		t.Errorf("of a skill that is off: %s, %v", data, err)
	}
	if _, err := h.set(t, bert).Text("s"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another user reads it: %v", err)
	}
	for _, bad := range [][2]string{{"s", "../../x"}, {"s", "/etc/passwd"}, {"s", "scripts"}, {"s", ""}, {"none", "SKILL.md"}} {
		if _, err := v.ReadFile(bad[0], bad[1]); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestRefusedSkillsLeaveNothing: what is refused is not in the store, where no quota counts it.
func TestRefusedSkillsLeaveNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	if _, err := h.Add(t.Context(), anna, "first", files("first"), AddOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(h.store.dir)
	if err != nil {
		t.Fatal(err)
	}
	other := files("first")
	other["more"] = &fstest.MapFile{Data: []byte("more")}
	if _, err := h.Add(t.Context(), anna, "first", other, AddOptions{}); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a second one of the name: %v", err)
	}
	if _, err := h.Add(t.Context(), anna, "none", fstest.MapFS{"README.md": {Data: []byte("x")}}, AddOptions{}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("no skill: %v", err)
	}
	after, err := os.ReadDir(h.store.dir)
	if err != nil || len(after) != len(before) {
		t.Errorf("the store has %d entries, then %d, %v", len(before), len(after), err)
	}
}

// TestEverybody: a folder that is ready for the next sandbox has the plugins that come with the server, too, and is
// made anew when these are others.
func TestEverybody(t *testing.T) {
	h := newHouse(t, func(public string) { write(t, filepath.Join(public, "pdf/SKILL.md"), text("pdf"), 0o600) })
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/SKILL.md"), text("a"), 0o444)
	h.plugins[sandbox.Owner{}] = &Plugins{List: []Plugin{{Name: "zeta", Dir: dir, Key: "1", Skills: []string{"a"}}}}
	paths := func() (all []string) {
		for _, tree := range h.Everybody().Trees() {
			all = append(all, tree.Path)
		}
		return all
	}
	if got := paths(); !slices.Equal(got, []string{"plugins/zeta", "skills/public/pdf"}) {
		t.Errorf("%v", got)
	}
	view := h.Everybody()
	if h.Everybody() != view {
		t.Error("another view, and nothing has changed")
	}
	h.plugins[sandbox.Owner{}] = &Plugins{}
	if got := paths(); !slices.Equal(got, []string{"skills/public/pdf"}) {
		t.Errorf("%v", got)
	}
}
