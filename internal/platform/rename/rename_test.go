package rename

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/rename/refused"
)

// bothWays runs a test with a file system that knows the flags, and with a file system that refuses them.
func bothWays(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("known", func(t *testing.T) { test(t, t.TempDir()) })
	t.Run("refused", func(t *testing.T) { refused.Flags(t, func() { test(t, t.TempDir()) }) })
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Error(err)
	}
}

func has(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); want == "" && !errors.Is(err, os.ErrNotExist) || want != "" && string(text) != want {
		t.Errorf("%s has %q, %v, want %q", filepath.Base(path), text, err, want)
	}
}

// TestNoReplace: files, links and folders move to a free name, and never to a taken name, be it that of an empty folder.
func TestNoReplace(t *testing.T) {
	bothWays(t, func(t *testing.T, dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		put(t, at("file"), "file")
		put(t, at("folder/in"), "in")
		if err := errors.Join(os.Symlink("file", at("link")), os.Mkdir(at("empty"), 0o700), os.Symlink("nowhere", at("dangling"))); err != nil {
			t.Error(err)
			return
		}
		for _, from := range []string{"file", "folder", "link"} {
			for _, to := range []string{"empty", "dangling", "file", "folder", "link"} {
				if from == to {
					continue
				}
				if err := NoReplace(at(from), at(to)); !errors.Is(err, os.ErrExist) {
					t.Errorf("%s over %s: %v, want that it exists", from, to, err)
				}
			}
		}
		for _, name := range []string{"file", "folder", "link"} {
			if err := NoReplace(at(name), at("new-"+name)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Lstat(at(name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", name, err)
			}
		}
		has(t, at("new-file"), "file")
		has(t, at("new-folder/in"), "in")
		if to, err := os.Readlink(at("new-link")); err != nil || to != "file" {
			t.Errorf("the link leads to %q, %v", to, err)
		}
		if err := NoReplace(at("new-folder"), at("new-folder/in-itself")); !errors.Is(err, unix.EINVAL) {
			t.Errorf("into itself: %v", err)
		}
		if _, err := os.Lstat(at("new-folder/in-itself")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left by that: %v", err)
		}
		if err := NoReplace(at("never"), at("x")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what is not there: %v", err)
		}
	})
}

// TestNoReplaceRace: of many who want the same name at once one gets it, and no files are lost.
func TestNoReplaceRace(t *testing.T) {
	for _, kind := range []string{"file", "folder"} {
		bothWays(t, func(t *testing.T, dir string) {
			const many = 16
			var got atomic.Int32
			var wg sync.WaitGroup
			for i := range many {
				from := filepath.Join(dir, string(rune('a'+i)))
				if kind == "folder" {
					put(t, from+"/in", "in")
				} else {
					put(t, from, "in")
				}
				wg.Go(func() {
					refused.Flags(t, func() {
						switch err := NoReplace(from, filepath.Join(dir, "to")); {
						case err == nil:
							got.Add(1)
						case !errors.Is(err, os.ErrExist):
							t.Error(err)
						}
					})
				})
			}
			wg.Wait()
			entries, err := os.ReadDir(dir)
			if got.Load() != 1 || err != nil || len(entries) != many {
				t.Errorf("%s: %d got it, %d are there, %v", kind, got.Load(), len(entries), err)
			}
		})
	}
}

// TestExchange: two names have each other's content, and where one is not there nothing changes.
func TestExchange(t *testing.T) {
	bothWays(t, func(t *testing.T, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		put(t, a+"/new", "new")
		put(t, b+"/old", "old")
		if err := Exchange(a, b); err != nil {
			t.Error(err)
		}
		has(t, b+"/new", "new")
		has(t, a+"/old", "old")
		if err := Exchange(a, filepath.Join(dir, "none")); !errors.Is(err, unix.ENOENT) {
			t.Errorf("with what is not there: %v", err)
		}
		if err := Exchange(filepath.Join(dir, "none"), b); !errors.Is(err, unix.ENOENT) {
			t.Errorf("what is not there: %v", err)
		}
		has(t, b+"/new", "new")
		has(t, a+"/old", "old")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("left: %v, %v", entries, err)
		}
	})
}
