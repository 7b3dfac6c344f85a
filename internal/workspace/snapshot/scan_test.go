package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestScanHoldsFewNames: names count when they are read, whatever they are: a walk that is in many folders
// would hold those of each. A name that code could make hides nothing.
func TestScanHoldsFewNames(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "workspace")
	for _, sub := range []string{"", "z", "z/z"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if err := syscall.Mkfifo(filepath.Join(dir, sub, fmt.Sprint(i)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".skerry-tmp-1"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for most, kind := range map[int]sandbox.Kind{17: sandbox.QuotaExceeded, 18: ""} { // 15 FIFOs, a file and two folders
		s := &scanner{ctx: t.Context(), most: most, room: 1000, hard: map[uint64]name{}, many: func() error { return nil }}
		if err := s.visit(root, "workspace", "workspace", 1); sandbox.KindOf(err) != kind {
			t.Errorf("at most %d: %v, want kind %q", most, err, kind)
		} else if err == nil && len(s.found) != 4 {
			t.Errorf("%+v", s.found)
		}
	}
}

// TestCacheIsBounded: what is remembered of threads is bounded by what it takes, not by how many files they
// have.
func TestCacheIsBounded(t *testing.T) {
	s := indexes{&Snapshots{cache: map[sandbox.Thread]cached{}}}
	for i := range 200 { // each with one file of many parts
		idx := &index{Entries: []seen{{Entry: entry{Path: "workspace/a", Chunks: make([]chunk, 1<<20/chunkCost)}}}}
		s.remember(sandbox.Thread{ID: fmt.Sprint(i)}, cached{idx: idx, cost: idx.cost()})
	}
	if n := len(s.cache); n > 100 || n < 50 || s.cachedBytes > mostCached {
		t.Errorf("%d indexes of a MiB are in memory, %d bytes", n, s.cachedBytes)
	}
	for th := range s.cache {
		s.forgetCached(th)
	}
	if s.cachedBytes != 0 {
		t.Errorf("%d bytes are left of none", s.cachedBytes)
	}
}
