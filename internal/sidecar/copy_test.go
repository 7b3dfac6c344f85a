package sidecar

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestPushAndPull: each side gets what the other has, and then only what changed.
func TestPushAndPull(t *testing.T) {
	b := newBed(t)
	b.put("server/files/workspace/a.txt", "a")
	b.put("server/files/workspace/deep/er/b.txt", strings.Repeat("b", 300_000))
	b.put("server/files/outside.txt", "not the sandbox's")
	b.put("server/skills/public/csv/SKILL.md", "csv")
	b.must(os.Symlink("../a.txt", b.path("server/files/workspace/deep/link")))
	b.must(os.Chmod(b.path("server/files/workspace/a.txt"), 0o751))
	c := b.dial(nil)
	if _, err := c.Pull(t.Context()); !errors.Is(err, sandbox.Conflict) {
		t.Fatalf("pull before a push: %v", err)
	}
	b.push(c, sandbox.UserDataDir, sandbox.SkillsDir)
	b.same("server/skills", "pod/skills")
	b.same("server/files/workspace", "pod/files/workspace")
	if _, err := os.Lstat(b.path("pod/files/outside.txt")); err == nil {
		t.Error("what lies beside the three folders was pushed")
	}
	b.pull(c, false)
	b.pull(c, false)

	b.put("pod/files/workspace/new/c.txt", "c")
	b.put("pod/files/workspace/a.txt", "A") // same size
	b.must(os.Remove(b.path("pod/files/workspace/deep/link")))
	b.must(os.Rename(b.path("pod/files/workspace/deep/er"), b.path("pod/files/workspace/moved")))
	b.must(os.Chmod(b.path("pod/files/workspace/moved"), 0o500))
	b.put("pod/files/beside.txt", "nobody's")
	b.pull(c, true)
	b.same("server/files/workspace", "pod/files/workspace")
	if _, err := os.Lstat(b.path("server/files/beside.txt")); err == nil {
		t.Error("what lies beside the three folders was pulled")
	}
	b.pull(c, false)

	// A path alone, a missing one, and one whose folder the sandbox does not have.
	b.put("server/files/workspace/a.txt", "from the server")
	b.put("server/files/outputs/x/y.txt", "y")
	b.must(os.RemoveAll(b.path("server/files/workspace/new")))
	b.put("pod/files/workspace/mine.txt", "of the sandbox")
	b.push(c, sandbox.WorkspaceDir+"/a.txt", sandbox.OutputsDir+"/x/y.txt", sandbox.WorkspaceDir+"/new")
	b.pull(c, true)
	b.same("server/files/workspace", "pod/files/workspace")
	b.same("server/files/outputs", "pod/files/outputs")
	if text, err := os.ReadFile(b.path("server/files/workspace/mine.txt")); err != nil || string(text) != "of the sandbox" {
		t.Errorf("%q, %v", text, err)
	}
	b.pull(c, false)
}

// TestPullAfterAnotherServer: what both have is not sent again, and nothing is lost.
func TestPullAfterAnotherServer(t *testing.T) {
	b := newBed(t)
	b.put("server/files/workspace/old.txt", "old")
	first := b.filled()
	b.put("pod/files/workspace/x.txt", "x")
	b.pull(first, true)
	b.must(first.Close())

	b.put("pod/files/workspace/y.txt", "y")
	b.must(os.Remove(b.path("pod/files/workspace/old.txt")))
	inode := func() uint64 {
		var st unix.Stat_t
		b.must(unix.Lstat(b.path("server/files/workspace/x.txt"), &st))
		return st.Ino
	}
	before := inode()
	second := b.dial(func(o *Options) { o.Token = 1 })
	b.pull(second, true)
	b.same("server/files/workspace", "pod/files/workspace")
	if inode() != before {
		t.Error("a file that both had was written again")
	}
	b.pull(second, false)

	// The sidecar forgets all when it starts again, but that it was filled.
	b.stop()
	b.put("pod/files/workspace/z.txt", "z")
	b.start(b.addr)
	b.pull(second, true)
	b.same("server/files/workspace", "pod/files/workspace")
	b.pull(second, false)
}

// TestPushOfNothingNew sends nothing of a read-only mount.
func TestPushOfNothingNew(t *testing.T) {
	b := newBed(t)
	b.put("server/skills/a/SKILL.md", "one")
	b.put("server/skills/b/SKILL.md", "two")
	c := b.filled()
	b.must(os.RemoveAll(b.path("pod/skills/a"))) // the sandbox cannot; it shows whether anything was done
	b.push(c, sandbox.SkillsDir)
	if _, err := os.Stat(b.path("pod/skills/a")); err == nil {
		t.Error("a push without a change did something")
	}
	b.put("server/skills/b/SKILL.md", "changed")
	b.push(c, sandbox.SkillsDir)
	b.same("server/skills", "pod/skills")
	b.push(c, sandbox.SkillsDir+"/b")
	b.put("server/skills/b/SKILL.md", "two")
	b.push(c, sandbox.SkillsDir+"/b")
	b.put("server/skills/b/SKILL.md", "changed")
	b.push(c, sandbox.SkillsDir) // as it was pushed before; the part in between was another
	b.same("server/skills", "pod/skills")
	b.must(os.RemoveAll(b.path("server/skills/b")))
	b.push(c, sandbox.SkillsDir+"/b")
	b.same("server/skills", "pod/skills")
}

// TestWrongPaths are named.
func TestWrongPaths(t *testing.T) {
	b := newBed(t)
	c := b.filled()
	for _, p := range []string{"", "x", "/mnt", "/mnt/skills/", "/mnt/skills/../x", sandbox.RunDir, sandbox.RunDir + "/control.sock", "/mnt/skillsx"} {
		if err := c.Push(context.Background(), p); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// TestFoldersOfTheirOwn: what the sandbox has as mounts are the same folders whatever is pushed.
func TestFoldersOfTheirOwn(t *testing.T) {
	b := newBed(t)
	b.put("server/files/outputs/o", "x")
	c := b.filled()
	inode := func() uint64 {
		var st unix.Stat_t
		b.must(unix.Lstat(b.path("pod/files/outputs"), &st))
		return st.Ino
	}
	before := inode()
	b.must(os.RemoveAll(b.path("server/files/outputs")))
	b.push(c, sandbox.OutputsDir)
	if got := b.list("pod/files/outputs"); got != "" || inode() != before {
		t.Errorf("it has %q, or is another one", got)
	}
	b.put("pod/files/outputs/p", "x")
	b.push(c, sandbox.UserDataDir)
	if got := b.list("pod/files/outputs"); got != "" || inode() != before {
		t.Errorf("it has %q, or is another one", got)
	}
	b.put("server/files/outputs", "a file")
	if err := c.Push(t.Context(), sandbox.OutputsDir); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("a file in its place: %v", err)
	}
}

// TestServerFileThatChanges while it is pushed: the sandbox has one of its contents, whole, or the push says why not.
func TestServerFileThatChanges(t *testing.T) {
	b := newBed(t)
	c := b.filled()
	name := b.path("server/files/workspace/f")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = os.WriteFile(name, []byte(strings.Repeat(string(rune('a'+i%26)), 400_000)), 0o644)
			}
		}
	}()
	for range 20 {
		if err := c.Push(t.Context(), sandbox.WorkspaceDir); err != nil && !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("push: %v", err)
		}
	}
	close(stop)
	<-done
	b.push(c, sandbox.WorkspaceDir)
	b.same("server/files/workspace", "pod/files/workspace")
	b.pull(c, false)
}

// TestKept: what was filled once is for all pods that have the volume, and what was not, for none: nothing is taken away from a server
// because a volume is another one.
func TestKept(t *testing.T) {
	for _, kept := range []bool{true, false} {
		b := newBed(t)
		b.stop()
		b.kept = kept
		b.start(b.addr)
		b.put("server/files/workspace/a", "a")
		c := b.filled()
		b.must(c.Close())
		b.stop()
		b.must(os.RemoveAll(b.path("pod/run"))) // it goes with the pod
		b.must(os.Mkdir(b.path("pod/run"), 0o755))
		b.put("pod/files/workspace/b", "b")
		b.start(b.addr)
		_, err := b.dial(nil).Pull(t.Context())
		if kept {
			b.must(err)
			b.same("server/files", "pod/files")
		} else if !errors.Is(err, sandbox.Conflict) {
			t.Errorf("a folder that nobody filled: %v", err)
		}
	}
}
