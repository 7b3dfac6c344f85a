package codeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/rename/refused"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// newStore returns a store and the folder of a sandbox.
func newStore(t testing.TB) (s *Store, targetDir string) {
	t.Helper()
	dir := t.TempDir()
	s, err := NewStore(filepath.Join(dir, "store"))
	must(t, err)
	return s, filepath.Join(dir, "run", "code-api")
}

func numbered(n int) sandbox.ToolSet {
	return sandbox.ToolSet{Hash: fmt.Sprintf("set-%d", n), Tools: []sandbox.Tool{tool("s", "same", `{}`, ""), tool("s", fmt.Sprintf("t%d", n), `{}`, "")}}
}

func read(t testing.TB, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	must(t, err)
	return string(text)
}

func TestMaterialize(t *testing.T) { materialize(t) }

// TestMaterializeOnNetworkFiles: the same on a file system that knows no flags of rename.
func TestMaterializeOnNetworkFiles(t *testing.T) { refused.Flags(t, func() { materialize(t) }) }

func materialize(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	s, dir := newStore(t)
	for n := range 3 {
		must(t, s.Materialize(numbered(n), dir))
		if index := read(t, dir, "servers/s/index.ts"); !strings.Contains(index, fmt.Sprintf("./t%d.ts", n)) {
			t.Errorf("set %d: %s", n, index)
		}
		if n > 0 {
			if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("servers/s/t%d.ts", n-1))); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a tool of the old set: %v", err)
			}
		}
	}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		info, err := d.Info()
		must(t, err)
		want := fs.FileMode(0o444)
		if d.IsDir() {
			want = 0o755
		} else if info.Sys().(*syscall.Stat_t).Nlink < 2 {
			t.Errorf("%s is no hard link", path)
		}
		if path != dir && info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return nil
	}))
	stages, err := filepath.Glob(dir + stageMark + "*")
	must(t, err)
	if len(stages) > 1 {
		t.Errorf("stages %v", stages)
	}
}

// TestMaterializeAgain: the same set again costs nothing, also when the folder was replaced meanwhile.
func TestMaterializeAgain(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	must(t, s.Materialize(numbered(1), dir))
	// A repeat does nothing: what lies there meanwhile stays. Another set replaces it.
	marker := filepath.Join(dir, "servers", "marker")
	must(t, os.WriteFile(marker, nil, 0o600))
	must(t, s.Materialize(numbered(1), dir))
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("a repeat made all again: %v", err)
	}
	must(t, s.Materialize(numbered(2), dir))
	if _, err := os.Stat(marker); err == nil {
		t.Error("another set made nothing")
	}
	must(t, s.Materialize(numbered(1), dir))
	must(t, os.RemoveAll(dir))
	must(t, s.Materialize(numbered(1), dir))
	read(t, dir, "servers/s/t1.ts")

	// Another process: it has the store's folder, and nothing in memory.
	other, err := NewStore(s.dir)
	must(t, err)
	must(t, other.Materialize(numbered(2), dir))
	must(t, s.Materialize(numbered(1), dir))
	read(t, dir, "servers/s/t1.ts")

	// A set without a hash.
	set := numbered(3)
	set.Hash = ""
	must(t, s.Materialize(set, dir))
	read(t, dir, "servers/s/t3.ts")
	must(t, s.Materialize(sandbox.ToolSet{}, dir))
	if entries, err := os.ReadDir(filepath.Join(dir, "servers")); err != nil || len(entries) != 1 {
		t.Errorf("no tools: %v %v", entries, err)
	}
}

// TestBrokenTree: a tree of the store that a power cut left empty is made again.
func TestBrokenTree(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	must(t, s.Materialize(numbered(1), dir))
	trees, err := filepath.Glob(filepath.Join(s.dir, "*", "servers/s/t1.ts"))
	must(t, err)
	if len(trees) != 1 {
		t.Fatal(trees)
	}
	must(t, os.Truncate(trees[0], 0))
	s, err = NewStore(s.dir)
	must(t, err)
	must(t, s.Materialize(numbered(1), dir))
	if text := read(t, dir, "servers/s/t1.ts"); !strings.Contains(text, "callMCPTool") {
		t.Errorf("got %q", text)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	must(t, s.Materialize(numbered(1), dir))
	must(t, os.Mkdir(filepath.Join(s.dir, tempPrefix+"x"), 0o755))
	must(t, s.sweep(time.Now().Add(2*tempAge)))
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
	must(t, s.sweep(time.Now().Add(2*treeAge)))
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 0 {
		t.Errorf("%v %v", entries, err)
	}
	read(t, dir, "servers/s/t1.ts") // a sandbox keeps what it has
	must(t, s.Materialize(numbered(1), dir+"2"))
	read(t, dir+"2", "servers/s/t1.ts")
}

// TestReaderDuringSwaps: who reads while the tree is exchanged finds every file whole, always.
func TestReaderDuringSwaps(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	must(t, s.Materialize(numbered(0), dir))
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		reads := 0
		defer func() { done <- reads }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			for path, want := range map[string]string{"servers/s/same.ts": "}\n", "servers/s/__init__.py": ", kwargs)\n", "helpers/callMCPTool.ts": "callMCPTool;\n"} {
				text, err := os.ReadFile(filepath.Join(dir, path))
				if err != nil || !strings.HasSuffix(string(text), want) {
					t.Errorf("%s: %v, %d bytes", path, err, len(text))
				}
				reads++
			}
		}
	}()
	for n := range 100 {
		must(t, s.Materialize(numbered(n%7), dir))
	}
	close(stop)
	if reads := <-done; reads < 100 {
		t.Errorf("only %d reads", reads)
	}
}

func TestConcurrentTargets(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 5 {
				if err := s.Materialize(numbered(n), dir+fmt.Sprint(i%3)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		read(t, dir+fmt.Sprint(i), "servers/s/t4.ts")
	}
}

func TestCopyWhereNoLink(t *testing.T) {
	t.Parallel()
	shm, err := os.MkdirTemp("/dev/shm", "codeapi-test-")
	if err != nil {
		t.Skipf("no second file system: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	s, _ := newStore(t)
	must(t, s.Materialize(numbered(1), filepath.Join(shm, "x")))
	read(t, shm, "x/servers/s/t1.ts")
}

func BenchmarkMaterializeRepeat(b *testing.B) {
	s, dir := newStore(b)
	set := numbered(1)
	for b.Loop() {
		if err := s.Materialize(set, dir); err != nil {
			b.Fatal(err)
		}
	}
}

// TestTenantsShareNoInode: what tells of a file's use is the inode.
func TestTenantsShareNoInode(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t)
	inode := func(name, tenant string) os.FileInfo {
		t.Helper()
		must(t, s.MaterializeFor(tenant, numbered(1), dir+name))
		info, err := os.Stat(filepath.Join(dir+name, "servers/s/t1.ts"))
		must(t, err)
		return info
	}
	first, red, blue := inode("1", storeTenant), inode("2", "red"), inode("3", "blue")
	if os.SameFile(first, red) || os.SameFile(first, blue) || os.SameFile(red, blue) {
		t.Error("two tenants have a file in common")
	}
	if !os.SameFile(red, inode("4", "red")) || !os.SameFile(first, inode("5", "")) {
		t.Error("files of one tenant are made for each sandbox")
	}
}
