package lockedfile

import (
	"context"
	"errors"
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
