package archive

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const skillText = "---\nname: pdf\ndescription: reads PDF files\n---\nRun scripts/run.py.\n"

// item is one entry of an archive that a test makes.
type item struct {
	name string
	text string
	mode fs.FileMode
	edit func(*zip.FileHeader)
}

func build(t testing.TB, items ...item) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, it := range items {
		h := &zip.FileHeader{Name: it.name, Method: zip.Deflate}
		if it.mode != 0 {
			h.SetMode(it.mode)
		}
		if it.edit != nil {
			it.edit(h)
		}
		w, err := z.CreateHeader(h)
		if err == nil && !strings.HasSuffix(it.name, "/") {
			_, err = w.Write([]byte(it.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func unpack(t testing.TB, data []byte, l Limits) (*Staged, string, error) {
	t.Helper()
	parent := t.TempDir()
	s, err := Unpack(t.Context(), bytes.NewReader(data), int64(len(data)), parent, l)
	return s, parent, err
}

// TestUnpack: with and without a wrapper, modes are normalised whatever the umask, junk is left out.
func TestUnpack(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for wrapper, prefix := range map[string]string{"": "", "pdf": "pdf/"} {
		data := build(t,
			item{name: prefix + "SKILL.md", text: skillText, mode: 0o600},
			item{name: "__MACOSX/._SKILL.md", text: "junk"},
			item{name: prefix + ".DS_Store", text: "junk"},
			item{name: prefix + "scripts/", mode: fs.ModeDir | 0o700},
			item{name: prefix + "scripts/run.py", text: "#!/usr/bin/env python3\nprint(1)\n"},
			item{name: prefix + "scripts/tool", text: "x", mode: 0o711},
			item{name: prefix + "data/ä.csv", text: strings.Repeat("0", 300_000)},
		)
		s, parent, err := unpack(t, data, DefaultLimits())
		if err != nil {
			t.Fatalf("wrapper %q: %v", wrapper, err)
		}
		if s.Wrapper != wrapper || s.Files != 4 || s.Bytes != int64(len(skillText)+32+1+300_000) {
			t.Errorf("%+v", s)
		}
		want := map[string]fs.FileMode{
			".": 0o755, "SKILL.md": 0o644, "scripts": 0o755, "scripts/run.py": 0o755, "scripts/tool": 0o755, "data": 0o755, "data/ä.csv": 0o644,
		}
		got := map[string]fs.FileMode{}
		err = filepath.WalkDir(s.Dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			rel, _ := filepath.Rel(s.Dir, p)
			got[rel] = info.Mode().Perm()
			return err
		})
		if err != nil || len(got) != len(want) {
			t.Errorf("%v: %v", err, got)
		}
		for p, mode := range want {
			if got[p] != mode {
				t.Errorf("%s: %o, want %o", p, got[p], mode)
			}
		}
		text, err := os.ReadFile(filepath.Join(s.Dir, "SKILL.md"))
		if err != nil || string(text) != skillText {
			t.Errorf("%q, %v", text, err)
		}
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
		empty(t, parent)
	}
}

func empty(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRealPackers: archives of Python's zipfile and Info-ZIP are let in. They are written to a file or
// through a pipe, with sizes after the data or in the fields of ZIP64.
func TestRealPackers(t *testing.T) {
	found, err := filepath.Glob("testdata/*.skill")
	if err != nil || len(found) != 5 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, file := range found {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := unpack(t, data, DefaultLimits())
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if info, err := os.Stat(filepath.Join(s.Dir, "scripts/run.sh")); err != nil || info.Mode().Perm() != 0o755 || s.Wrapper != "pdf" {
			t.Errorf("%s: %+v, %v", file, s, err)
		}
	}
}

// TestCancelled: an end in the middle leaves nothing.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	data, parent := build(t, item{name: "SKILL.md", text: skillText}), t.TempDir()
	if _, err := Unpack(ctx, bytes.NewReader(data), int64(len(data)), parent, DefaultLimits()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	empty(t, parent)
}

// TestPackInstallsElsewhere: what Pack writes is the same each time, and Unpack writes the same files.
func TestPackInstallsElsewhere(t *testing.T) {
	folder := t.TempDir()
	files := map[string]string{
		"SKILL.md": skillText, "scripts/run.py": "print(1)\n", "references/a b.md": "text", "__pycache__/x.pyc": "x", "evals/e.json": "{}",
		"node_modules/m/index.js": "x", ".git/config": "x", "scripts/x.pyc": "x", ".DS_Store": "x", "scripts/evals/keep.txt": "k",
	}
	for p, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(folder, p)), 0o700), os.WriteFile(filepath.Join(folder, p), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(folder, "scripts/run.py"), 0o700); err != nil {
		t.Fatal(err)
	}
	var one, two bytes.Buffer
	if err := Pack(t.Context(), &one, folder, "pdf", DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(folder, "SKILL.md"), epoch, epoch); err != nil {
		t.Fatal(err)
	}
	if err := Pack(t.Context(), &two, folder, "pdf", DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two packings of the same files differ")
	}
	s, _, err := unpack(t, one.Bytes(), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if s.Wrapper != "pdf" || s.Files != 4 {
		t.Errorf("%+v", s)
	}
	for _, p := range []string{"SKILL.md", "scripts/run.py", "references/a b.md", "scripts/evals/keep.txt"} {
		got, err := os.ReadFile(filepath.Join(s.Dir, p))
		if err != nil || string(got) != files[p] {
			t.Errorf("%s: %q, %v", p, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(s.Dir, "scripts/run.py")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestPackRefuses: what would not install is not packed.
func TestPackRefuses(t *testing.T) {
	for want, make := range map[Reason]func(dir string) error{
		NoSkill:     func(dir string) error { return os.Remove(filepath.Join(dir, "SKILL.md")) },
		Link:        func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "x")) },
		SpecialFile: func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "x"), 0o600) },
		Executable: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "x"), []byte("\x7fELF\x02\x01\x01\x00"), 0o600)
		},
		CaseCollision: func(dir string) error { return os.WriteFile(filepath.Join(dir, "skill.MD"), nil, 0o600) },
		WindowsName:   func(dir string) error { return os.WriteFile(filepath.Join(dir, "nul.txt"), nil, 0o600) },
		NTFSStream:    func(dir string) error { return os.WriteFile(filepath.Join(dir, "ab:c"), nil, 0o600) },
		TooManyBytes:  func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), make([]byte, 17<<20), 0o600) },
	} {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(skillText), 0o600), make(dir)); err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		if err := Pack(t.Context(), &buf, dir, "pdf", DefaultLimits()); RefusedFor(err) != want || !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", want, err)
		}
	}
	var buf bytes.Buffer
	for _, name := range []string{"", "..", "a/b", "nul"} {
		if err := Pack(t.Context(), &buf, t.TempDir(), name, DefaultLimits()); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
