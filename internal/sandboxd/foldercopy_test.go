package sandboxd

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestKeepCopy: a copy can be written to, stays, and goes when the folder is another one.
func TestKeepCopy(t *testing.T) {
	t.Parallel()
	from, home := t.TempDir(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(from, "bin"), 0o755))
	must(os.WriteFile(filepath.Join(from, "bin/run"), []byte("#!/bin/sh\n"), 0o555))
	must(os.WriteFile(filepath.Join(from, "data"), []byte("v1"), 0o444))
	must(os.Symlink("data", filepath.Join(from, "link")))
	c := &sandbox.FolderCopy{From: from, To: filepath.Join(home, "plugin"), Key: "sha256:1"}
	old := filepath.Join(home, copyStage+"left")
	must(os.Mkdir(old, 0o755))
	hours := time.Now().Add(-2 * staleCopy)
	must(os.Chtimes(old, hours, hours))

	var wg sync.WaitGroup
	for range 8 { // servers of one home start at once
		wg.Go(func() {
			if err := keepCopy(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if info, err := os.Stat(filepath.Join(c.To, "bin/run")); err != nil || info.Mode().Perm()&0o300 != 0o300 {
		t.Errorf("%v %v", info, err)
	}
	if target, err := os.Readlink(filepath.Join(c.To, "link")); err != nil || target != "data" {
		t.Errorf("%q %v", target, err)
	}
	must(os.WriteFile(filepath.Join(c.To, "data"), []byte("written"), 0o600))
	must(keepCopy(c))
	if text, err := os.ReadFile(filepath.Join(c.To, "data")); err != nil || string(text) != "written" {
		t.Errorf("what was written is %q, %v", text, err)
	}
	c.Key = "sha256:2"
	must(keepCopy(c))
	if text, err := os.ReadFile(filepath.Join(c.To, "data")); err != nil || string(text) != "v1" {
		t.Errorf("the files of another one: %q, %v", text, err)
	}
	entries, err := os.ReadDir(home)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v stays behind, %v", entries, err)
	}
	c.From, c.Key = filepath.Join(from, "gone"), "sha256:3"
	if err := keepCopy(c); err == nil {
		t.Error("a folder that is not there is copied")
	}
	if text, err := os.ReadFile(filepath.Join(c.To, copyKey)); err != nil || string(text) != "sha256:2" {
		t.Errorf("a copy that failed left %q, %v", text, err)
	}
}
