package mcp

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestGeneratedFiles: what the command wrote is replaced and cleaned up, what others wrote never.
func TestGeneratedFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "code")
	write := func(clean bool, files ...string) generated {
		t.Helper()
		tree := map[string][]byte{}
		for _, f := range files {
			tree[f] = []byte("made " + f)
		}
		var d generated
		if err := d.write(dir, tree, clean); err != nil {
			t.Fatal(err)
		}
		return d
	}
	there := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return ""
		}
		return string(raw)
	}
	own := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := write(false, "servers/a/x.ts", "servers/b/y.ts", "example.py"); d.Files != 3 || d.Removed != 0 {
		t.Errorf("first: %+v", d)
	}
	if write(false, "servers/c/z.ts", "example.py"); there("servers/a/x.ts") == "" {
		t.Error("without --clean the wrappers of another server went")
	}
	own("servers/c/z.ts", "bent")
	own("servers/mine.ts", "mine")
	own("example.py", "mine, too")
	d := write(true, "servers/c/z.ts", "example.py")
	if d.Removed != 2 || there("servers/a/x.ts") != "" || there("servers/mine.ts") != "mine" || there("servers/c/z.ts") != "made servers/c/z.ts" {
		t.Errorf("clean: %+v", d)
	}
	if _, err := os.Stat(filepath.Join(dir, "servers/a")); err == nil {
		t.Error("an empty folder stayed")
	}
	for range 2 {
		if d := write(true, "servers/c/z.ts", "example.py"); !slices.Equal(d.Kept, []string{"example.py"}) || there("example.py") != "mine, too" {
			t.Errorf("a changed example: %+v", d)
		}
	}
	own("other.py", "somebody's")
	if d := write(false, "other.py"); !slices.Equal(d.Kept, []string{"other.py"}) || there("other.py") != "somebody's" {
		t.Errorf("a file of other hands: %+v", d)
	}
}

// TestGeneratedLinks: a link in the folder leads nowhere outside of it, neither does the list of files.
func TestGeneratedLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "victim.ts")
	if err := os.WriteFile(victim, []byte("whole"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "servers")); err != nil {
		t.Fatal(err)
	}
	var d generated
	if err := d.write(dir, map[string][]byte{"servers/victim.ts": []byte("made")}, false); err == nil {
		t.Error("it wrote through a link")
	}
	manifest := `{"../` + filepath.Base(outside) + `/victim.ts":"x","servers/victim.ts":"x"}`
	if err := os.WriteFile(filepath.Join(dir, manifestFile), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.write(dir, map[string][]byte{"example.py": []byte("made")}, true); err == nil {
		t.Error("it cleaned outside of the folder")
	}
	if raw, err := os.ReadFile(victim); err != nil || string(raw) != "whole" {
		t.Errorf("%q %v", raw, err)
	}
}
