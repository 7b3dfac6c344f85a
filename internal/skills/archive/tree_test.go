package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func keepNone(string) bool { return false }

type tarFile struct {
	name, text string
	kind       byte
	mode       int64
}

func makeTar(t *testing.T, zipped bool, files ...tarFile) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(&b)
	if zipped {
		w = tar.NewWriter(z)
	}
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, Size: int64(len(f.text))}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink {
			h.Linkname, h.Size = f.text, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(f.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if zipped {
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// listed returns what is in a folder: mode and text by path.
func listed(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := fs.ReadFile(os.DirFS(dir), p)
		all[p] = info.Mode().String() + " " + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUnpackTar(t *testing.T) {
	files := []tarFile{
		{name: "repo-1/", kind: tar.TypeDir, mode: 0o700}, {name: "repo-1/plugin.json", text: "{}", mode: 0o600}, {name: "repo-1/bin/run", text: "#!/bin/sh\n", mode: 0o644},
		{name: "repo-1/x.sh", text: "x", mode: 0o777}, {name: "repo-1/.DS_Store", text: "junk"},
	}
	want := map[string]string{"plugin.json": "-rw-r--r-- {}", "bin/run": "-rwxr-xr-x #!/bin/sh\n", "x.sh": "-rwxr-xr-x x"}
	for _, zipped := range []bool{true, false} {
		s, err := UnpackTar(context.Background(), bytes.NewReader(makeTar(t, zipped, files...)), t.TempDir(), DefaultLimits(), keepNone)
		if err != nil {
			t.Fatal(err)
		}
		if got := listed(t, s.Dir); !maps.Equal(got, want) || s.Wrapper != "repo-1" || s.Files != 3 {
			t.Errorf("%v %+v", got, s)
		}
	}
	// A folder that belongs to the content stays.
	s, err := UnpackTar(context.Background(), bytes.NewReader(makeTar(t, true, tarFile{name: "./skills/a/SKILL.md", text: "x"})), t.TempDir(), DefaultLimits(), func(top string) bool { return top == "skills" })
	if err != nil || s.Wrapper != "" || len(listed(t, s.Dir)) != 1 {
		t.Errorf("%v %+v", err, s)
	}
	// A folder within that bears the name of the one around it.
	s, err = UnpackTar(context.Background(), bytes.NewReader(makeTar(t, true, tarFile{name: "a/a/x", text: "x"}, tarFile{name: "a/b", text: "b"})), t.TempDir(), DefaultLimits(), keepNone)
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(listed(t, s.Dir))), []string{"a/x", "b"}) {
		t.Errorf("%v %v", err, listed(t, s.Dir))
	}
}

func TestHostileTars(t *testing.T) {
	l := DefaultLimits()
	l.Bytes, l.Files, l.ArchiveBytes = 1<<20, 20, 2<<20
	many := make([]tarFile, 21)
	for i := range many {
		many[i] = tarFile{name: strings.Repeat("x", i+1)}
	}
	whole := makeTar(t, true, tarFile{name: "a", text: strings.Repeat("abcdefg", 1000)})
	for name, c := range map[string]struct {
		data []byte
		want Reason
	}{
		"parent":       {makeTar(t, true, tarFile{name: "../x"}), ParentPath},
		"absolute":     {makeTar(t, true, tarFile{name: "/etc/passwd"}), AbsolutePath},
		"backslash":    {makeTar(t, true, tarFile{name: `a\b`}), Backslash},
		"stream":       {makeTar(t, true, tarFile{name: "ab:c"}), NTFSStream},
		"symlink":      {makeTar(t, true, tarFile{name: "a", kind: tar.TypeSymlink, text: "/etc"}, tarFile{name: "a/x"}), Link},
		"hard link":    {makeTar(t, true, tarFile{name: "a", kind: tar.TypeLink, text: "/etc/passwd"}), Link},
		"device":       {makeTar(t, true, tarFile{name: "a", kind: tar.TypeChar}), SpecialFile},
		"pipe":         {makeTar(t, true, tarFile{name: "a", kind: tar.TypeFifo}), SpecialFile},
		"setuid":       {makeTar(t, true, tarFile{name: "a", mode: 0o4755}), SetUID},
		"case":         {makeTar(t, true, tarFile{name: "README"}, tarFile{name: "readme"}), CaseCollision},
		"twice":        {makeTar(t, true, tarFile{name: "a"}, tarFile{name: "a"}), Duplicate},
		"file, folder": {makeTar(t, true, tarFile{name: "a"}, tarFile{name: "a/b"}), FileAsFolder},
		"bomb":         {makeTar(t, true, tarFile{name: "a", text: strings.Repeat("\x00", 5<<20)}), TooManyBytes},
		"many":         {makeTar(t, true, many...), TooManyFiles},
		"nothing":      {makeTar(t, true), NoFiles},
		"cut":          {whole[:len(whole)/2], BrokenArchive},
		"no tar":       {[]byte(strings.Repeat("hello", 500)), BrokenArchive},
		"program":      {makeTar(t, false, tarFile{name: "a", text: "\x7fELF......."}), Executable},
	} {
		dir := t.TempDir()
		_, err := UnpackTar(context.Background(), bytes.NewReader(c.data), dir, l, keepNone)
		if RefusedFor(err) != c.want || sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v stays behind, %v", name, left, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := UnpackTar(ctx, bytes.NewReader(whole), t.TempDir(), l, keepNone); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestUnpackTree(t *testing.T) {
	pack := func(names ...string) []byte {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, n := range names {
			if _, err := w.Create(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for _, c := range []struct {
		names   []string
		wrapper string
		want    []string
	}{
		{[]string{"p/", "p/plugin.json", "p/a/b"}, "p", []string{"a/b", "plugin.json"}},
		{[]string{"plugin.json", "a/b"}, "", []string{"a/b", "plugin.json"}},
		{[]string{"skills/a/SKILL.md"}, "", []string{"skills/a/SKILL.md"}},
		{[]string{"a/x", "b/x", "a/y"}, "", []string{"a/x", "a/y", "b/x"}},
	} {
		data := pack(c.names...)
		s, err := UnpackTree(context.Background(), bytes.NewReader(data), int64(len(data)), t.TempDir(), DefaultLimits(), func(top string) bool { return top == "skills" })
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(listed(t, s.Dir))); !slices.Equal(got, c.want) || s.Wrapper != c.wrapper {
			t.Errorf("%v: %v, %q", c.names, got, s.Wrapper)
		}
	}
	data := pack("p/")
	if _, err := UnpackTree(context.Background(), bytes.NewReader(data), int64(len(data)), t.TempDir(), DefaultLimits(), keepNone); RefusedFor(err) != NoFiles {
		t.Error(err)
	}
}
