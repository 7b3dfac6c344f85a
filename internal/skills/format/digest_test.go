package format

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const good = "---\nname: a\ndescription: does it\n---\nbody\n"

func digestOf(t *testing.T, m fstest.MapFS) string {
	t.Helper()
	d, err := Digest(m)
	if err != nil || !CheckDigest(d) {
		t.Fatalf("%q, %v", d, err)
	}
	return d
}

func TestDigest(t *testing.T) {
	base := func() fstest.MapFS {
		return fstest.MapFS{
			"SKILL.md":  {Data: []byte(good), Mode: 0o644},
			"a/run.py":  {Data: []byte("x"), Mode: 0o755},
			"a-b/c.txt": {Data: []byte("y"), Mode: 0o600},
		}
	}
	// Fixed, because digests are kept on disk and in lock files.
	const want = "sha256:1c4508cfab6205487ba2d3071e3210a2ae7ba142b5e533a900feb570c3946430"
	d := digestOf(t, base())
	if d != want {
		t.Errorf("the digest of a known skill is %s", d)
	}
	same := map[string]func(fstest.MapFS){
		"owner's bits": func(m fstest.MapFS) { m["SKILL.md"].Mode = 0o444; m["a/run.py"].Mode = 0o511 },
		"time":         func(m fstest.MapFS) { m["SKILL.md"].ModTime = time.Now() },
		"a link":       func(m fstest.MapFS) { m["l"] = &fstest.MapFile{Data: []byte("SKILL.md"), Mode: fs.ModeSymlink} },
		"a folder":     func(m fstest.MapFS) { m["empty"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755} },
	}
	for name, change := range same {
		m := base()
		if change(m); digestOf(t, m) != d {
			t.Errorf("%s changes the digest", name)
		}
	}
	other := map[string]func(fstest.MapFS){
		"bytes":   func(m fstest.MapFS) { m["a/run.py"].Data = []byte("z") },
		"execute": func(m fstest.MapFS) { m["a/run.py"].Mode = 0o644 },
		"name":    func(m fstest.MapFS) { m["a/run2.py"] = m["a/run.py"]; delete(m, "a/run.py") },
		"more":    func(m fstest.MapFS) { m["b"] = &fstest.MapFile{} },
		"fewer":   func(m fstest.MapFS) { delete(m, "a-b/c.txt") },
	}
	for name, change := range other {
		m := base()
		if change(m); digestOf(t, m) == d {
			t.Errorf("%s does not change the digest", name)
		}
	}
}

func TestDigestHasLimits(t *testing.T) {
	many := fstest.MapFS{}
	for i := range MaxFiles + 1 {
		many[fmt.Sprintf("f%d", i)] = &fstest.MapFile{}
	}
	folders := fstest.MapFS{}
	for i := range MaxEntries + 1 {
		folders[fmt.Sprintf("f%d", i)] = &fstest.MapFile{Mode: fs.ModeDir}
	}
	for name, m := range map[string]fstest.MapFS{
		"files":   many,
		"folders": folders,
		"bytes":   {"a": {Data: make([]byte, MaxBytes)}, "b": {Data: []byte("x")}},
		"deep":    {strings.Repeat("d/", MaxDepth) + "f": {}},
		"long":    {strings.Repeat("x", maxPath+1): {}},
		"newline": {"a\nb": {}},
		"stream":  {"a:b": {}},
		"latin-1": {"a\xff": {}},
	} {
		if d, err := Digest(m); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %q, %v", name, d, err)
		}
	}
}
