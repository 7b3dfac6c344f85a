package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestLongPathsWait: few long paths are a large thread as many short ones are, which waits for its turn when it is looked at, kept and
// restored.
func TestLongPathsWait(t *testing.T) {
	t.Parallel()
	sv := newServer(t, NewFolder(t.TempDir()), nil)
	dir := filepath.Join(sv.make(thread1), "workspace", strings.Repeat(strings.Repeat("d", 250)+"/", 14))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for n := range manyBytes/3600 + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0100d", n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sv.mustKeep(thread1)
	sv.large <- struct{}{}
	for len(sv.large) < cap(sv.large) {
		sv.large <- struct{}{}
	}
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	root, err := os.OpenRoot(sv.dir(thread1))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := scan(t.Context(), root, maxScanBytes, sv.largeThread(soon()).wait); sandbox.KindOf(err) != sandbox.Timeout {
		t.Errorf("looked at: %v", err)
	}
	keep := func(sv *server) error {
		return sv.Save(soon(), thread1, Thread{Dir: sv.dir(thread1), UID: sv.uid, About: func() ([]byte, error) { return nil, nil }})
	}
	h, version, err := sv.head(t.Context(), thread1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sv.fill(soon(), thread1, h, version, t.TempDir(), sv.uid); sandbox.KindOf(err) != sandbox.Timeout || !strings.Contains(err.Error(), "many files") {
		t.Errorf("restored: %v", err)
	}
	// Of what was deleted since, the index is as large as it was.
	if err := os.RemoveAll(filepath.Join(sv.dir(thread1), "workspace", strings.Repeat("d", 250))); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"kept": keep(sv), "looked for": sv.Restore(soon(), thread1, sv.dir(thread1), true, func(Restored) error { return nil }),
	} {
		if sandbox.KindOf(err) != sandbox.Timeout || !strings.Contains(err.Error(), "many files") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for len(sv.large) > 0 {
		<-sv.large
	}
	sv.mustKeep(thread1)
	if len(sv.large) != 0 {
		t.Errorf("%d turns were not given back", len(sv.large))
	}
}
