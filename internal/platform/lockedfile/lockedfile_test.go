package lockedfile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestEditCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "n")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				err := Edit(t.Context(), path, 100, func(text []byte) ([]byte, error) {
					n, _ := strconv.Atoi(string(text))
					return strconv.AppendInt(nil, int64(n+1), 10), nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, text, err := Read(path, 100)
	if err != nil || string(text) != "40" || s == (Stamp{}) {
		t.Errorf("%s, %v", text, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestEditThatFailsChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	before, err := Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	own := errors.New("own")
	if err := Edit(t.Context(), path, 10, func([]byte) ([]byte, error) { return []byte("x"), own }); !errors.Is(err, own) {
		t.Error(err)
	}
	if err := Edit(t.Context(), path, 10, func([]byte) ([]byte, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
	if after, err := Stat(path); err != nil || after != before {
		t.Errorf("the file is another one: %v", err)
	}
	if err := Edit(t.Context(), path, 10, func([]byte) ([]byte, error) { return []byte("new"), nil }); err != nil {
		t.Error(err)
	}
	if after, err := Stat(path); err != nil || after == before {
		t.Errorf("a file that was replaced has the same stamp: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestEditWaitsForNobodyForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	err := Edit(t.Context(), path, 10, func([]byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := Edit(ctx, path, 10, func([]byte) ([]byte, error) { return []byte("inner"), nil }); !errors.Is(err, ErrBusy) {
			t.Errorf("two at once: %v", err)
		}
		return []byte("outer"), nil
	})
	if _, text, e := Read(path, 10); err != nil || e != nil || string(text) != "outer" {
		t.Errorf("%s, %v, %v", text, err, e)
	}
}

// TestWrites: each way leaves the whole text, the mode that it promises, and nothing else in the folder.
func TestWrites(t *testing.T) {
	for name, c := range map[string]struct {
		write func(path string) error
		mode  fs.FileMode // of a file that was 0640
	}{
		"replace":    {func(p string) error { return Replace(p, []byte("new")) }, 0o640},
		"replace as": {func(p string) error { return ReplaceAs(p, []byte("new"), 0o600) }, 0o600},
		"swap":       {func(p string) error { return Swap(p, []byte("new"), 0o600) }, 0o600},
		"create": {func(p string) error {
			if err := Create(p, []byte("never"), 0o600); !errors.Is(err, fs.ErrExist) {
				t.Errorf("a file that is there: %v", err)
			}
			return errors.Join(os.Remove(p), Create(p, []byte("new"), 0o644))
		}, 0o644},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := errors.Join(os.WriteFile(path, []byte("old text"), 0o600), os.Chmod(path, 0o640), c.write(path)); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil || string(text) != "new" {
				t.Errorf("%q, %v", text, err)
			}
			entries, err := os.ReadDir(filepath.Dir(path))
			if err != nil || len(entries) != 1 {
				t.Errorf("the folder has %v, %v", entries, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.mode {
				t.Errorf("%v, %v, want %v", info.Mode(), err, c.mode)
			}
		})
	}
}
