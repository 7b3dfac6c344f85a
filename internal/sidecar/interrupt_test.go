package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
)

// TestInterruptedCopies: the connection ends, or the caller stops waiting, at any moment of a pull or a
// push. Each file is the old or the new one, and the next time mends all.
func TestInterruptedCopies(t *testing.T) {
	b := newBed(t)
	n := b.cable()
	c := b.dial(func(o *Options) { o.Addr = n.ln.Addr().String() })
	write := func(side string, generation int) {
		for i := range 30 {
			b.put(fmt.Sprintf("%s/files/workspace/d%d/f%d", side, i%3, i), strings.Repeat(fmt.Sprintf("generation %04d\n", generation), 1000+500*i))
		}
	}
	whole := func(side string, generations ...int) {
		t.Helper()
		err := filepath.WalkDir(b.path(side+"/files/workspace"), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			first, _, _ := strings.Cut(string(text), "\n")
			ok := false
			for _, g := range generations {
				ok = ok || first == fmt.Sprintf("generation %04d", g)
			}
			var i, k int
			if _, err := fmt.Sscanf(p[len(b.path(side+"/files/workspace")):], "/d%d/f%d", &k, &i); err != nil || !ok || string(text) != strings.Repeat(first+"\n", 1000+500*i) {
				t.Errorf("%s: %d bytes that begin with %q, %v", p, len(text), first, err)
			}
			return nil
		})
		b.must(err)
	}
	write("server", 0)
	b.push(c, sandbox.UserDataDir)
	last := 0
	for i := range 12 {
		from, to, copyIt := "pod", "server", func(ctx context.Context) error { _, err := c.Pull(ctx); return err }
		if i%2 == 1 {
			from, to, copyIt = "server", "pod", func(ctx context.Context) error { return c.Push(ctx, sandbox.WorkspaceDir) }
		}
		write(from, i+1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(2+5*i) * time.Millisecond)
			if i%4 < 2 {
				cancel() // the caller stops waiting
				return
			}
			for range 3 { // the connection ends, and comes back
				n.cut()
				time.Sleep(30 * time.Millisecond)
			}
		})
		_ = copyIt(ctx)
		whole(to, last, i+1)
		wg.Wait()
		cancel()
		b.eventually("the connection comes back", c.Connected)
		b.must(copyIt(t.Context()))
		whole(to, i+1)
		b.same("server/files/workspace", "pod/files/workspace")
		last = i + 1
	}
	for _, dir := range []string{"server/files", "pod/files"} {
		names, err := os.ReadDir(b.path(dir))
		b.must(err)
		for _, d := range names {
			if strings.HasPrefix(d.Name(), tree.Aside) && dir == "server/files" {
				t.Errorf("%s was left in %s", d.Name(), dir)
			}
		}
	}
}

// TestSkillsAreOldOrNew: who opens a folder below a read-only mount while it changes finds one generation in it.
func TestSkillsAreOldOrNew(t *testing.T) {
	b := newBed(t)
	write := func(g int) {
		for _, name := range []string{"SKILL.md", "a", "scripts/b", "scripts/deep/c"} {
			b.put("server/skills/public/csv/"+name, fmt.Sprint(g))
		}
	}
	write(0)
	c := b.filled()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	seen := map[string]bool{}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			dir, err := os.OpenRoot(b.path("pod/skills/public/csv"))
			if err != nil {
				t.Error(err)
				return
			}
			var got []string
			for _, name := range []string{"SKILL.md", "scripts/deep/c", "a", "scripts/b"} {
				text, err := dir.ReadFile(name)
				if err != nil {
					got = nil // the old one, which is being taken away
					break
				}
				got = append(got, string(text))
			}
			_ = dir.Close()
			for _, g := range got {
				if g != got[0] {
					t.Errorf("half of each: %v", got)
				}
				seen[g] = true
			}
		}
	})
	for g := range 50 {
		write(g + 1)
		b.push(c, sandbox.SkillsDir)
	}
	close(stop)
	wg.Wait()
	b.same("server/skills", "pod/skills")
	if len(seen) < 2 {
		t.Errorf("generations seen: %v", seen)
	}
}

// TestNoSpace: a side that has no room for more says so at once, and keeps what it had.
func TestNoSpace(t *testing.T) {
	b := newBed(t)
	b.put("server/files/workspace/kept", "old")
	c := b.filled()
	b.must(c.Close())
	mount := func(dir string) {
		t.Helper()
		// Of the whole tree: what is new is made in its root, and renamed.
		if err := unix.Mount("tmpfs", b.path(dir), "tmpfs", 0, "size=4m"); err != nil {
			t.Skip("cannot mount: ", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(b.path(dir), unix.MNT_DETACH) })
		b.put(dir+"/workspace/kept", "old")
	}
	mount("pod/files")
	c = b.dial(nil)
	b.put("server/files/workspace/a", strings.Repeat("a", 1<<20))
	b.put("server/files/workspace/big", strings.Repeat("b", 64<<20))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Push(ctx, sandbox.WorkspaceDir); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Fatalf("push: %v", err)
	}
	if text, err := os.ReadFile(b.path("pod/files/workspace/kept")); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
	b.must(os.Remove(b.path("server/files/workspace/big")))
	b.push(c, sandbox.UserDataDir)
	b.same("server/files/workspace", "pod/files/workspace")

	b.must(unix.Unmount(b.path("pod/files"), unix.MNT_DETACH))
	b.push(c, sandbox.UserDataDir)
	mount("server/files")
	b.put("pod/files/workspace/kept", "new")
	b.put("pod/files/workspace/big", strings.Repeat("b", 64<<20))
	if _, err := c.Pull(ctx); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Fatalf("pull: %v", err)
	}
	b.must(os.Remove(b.path("pod/files/workspace/big")))
	b.pull(c, true)
	b.same("server/files/workspace", "pod/files/workspace")
}
