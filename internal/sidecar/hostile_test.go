package sidecar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestHostileTree: the sidecar copies what code can leave in its workspace as what it is, or leaves it out.
// It reads, changes and waits for nothing of the server's.
func TestHostileTree(t *testing.T) {
	b := newBed(t)
	b.put("server/secret", "of the server")
	c := b.filled()
	w := b.path("pod/files/workspace")
	b.must(unix.Mkfifo(w+"/fifo", 0o666))
	b.must(unix.Mkfifo(w+"/secret-fifo", 0))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	b.must(err)
	defer unix.Close(fd)
	t.Chdir(w)
	b.must(unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))
	b.must(unix.Mknod(w+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // /dev/zero
	for name, target := range map[string]string{
		"abs": b.path("server/secret"), "up": "../../../../server/secret", "loop": "loop", "dir": b.path("server"), "raw": "a\xff\nb",
	} {
		b.must(os.Symlink(target, w+"/"+name))
	}
	for _, name := range []string{"\xff\xfe", "new\nline", " ", "-rf", strings.Repeat("n", 255), "a\\b", "\u202e", ".skerry-new-x"} {
		b.must(os.WriteFile(w+"/"+name, []byte(name), 0o644))
	}
	b.must(os.WriteFile(w+"/setuid", []byte("x"), 0o755))
	b.must(os.Chmod(w+"/setuid", 0o755|os.ModeSetuid|os.ModeSetgid|os.ModeSticky))
	b.must(os.Link(w+"/setuid", w+"/hard"))
	b.must(os.MkdirAll(w+"/locked/in", 0o755))
	b.must(os.WriteFile(w+"/locked/in/f", []byte("f"), 0))
	b.must(os.Chmod(w+"/locked", 0))
	b.pull(c, true)
	for _, name := range []string{"fifo", "secret-fifo", "socket", "device"} {
		b.must(os.Remove(w + "/" + name))
	}
	for _, name := range []string{"setuid", "hard"} {
		info, err := os.Lstat(b.path("server/files/workspace/" + name))
		b.must(err)
		if info.Mode() != 0o755 {
			t.Errorf("%s has mode %v at the server", name, info.Mode())
		}
	}
	b.must(os.Chmod(w+"/setuid", 0o755))
	b.same("server/files/workspace", "pod/files/workspace")
	if text, err := os.ReadFile(b.path("server/secret")); err != nil || string(text) != "of the server" {
		t.Errorf("the server's own: %q, %v", text, err)
	}

	// Links become folders and folders links, and what is written goes where it says.
	b.must(os.Remove(w + "/dir"))
	b.must(os.MkdirAll(w+"/dir/secret", 0o755))
	b.must(os.RemoveAll(w + "/locked"))
	b.must(os.Symlink(b.path("server"), w+"/locked"))
	b.pull(c, true)
	b.same("server/files/workspace", "pod/files/workspace")
	// The workspace itself becomes a link, or goes: the server's folder stays one.
	b.must(os.RemoveAll(w))
	b.must(os.Symlink(b.path("server"), w))
	b.pull(c, true)
	if info, err := os.Lstat(b.path("server/files/workspace")); err != nil || !info.IsDir() {
		t.Errorf("the server's workspace: %v, %v", info, err)
	}
	if got := b.list("server/files/workspace"); got != "" {
		t.Errorf("left: %s", got)
	}
	b.must(os.Remove(w))
	b.pull(c, false)
	b.must(os.Mkdir(w, 0o755))
	b.put("pod/files/workspace/again", "x")
	b.pull(c, true)
	b.same("server/files/workspace", "pod/files/workspace")
}

// TestTooMuch is refused before anything of it is copied.
func TestTooMuch(t *testing.T) {
	for name, build := range map[string]func(w string) error{
		"one sparse file": func(w string) error { return sparse(w+"/big", 1<<40) },
		"many sparse files": func(w string) error {
			for i := range 5 {
				if err := sparse(fmt.Sprint(w, "/", i), 300<<10); err != nil {
					return err
				}
			}
			return nil
		},
		"hard links": func(w string) error {
			if err := os.WriteFile(w+"/0", make([]byte, 100<<10), 0o644); err != nil {
				return err
			}
			for i := range 20 {
				if err := os.Link(w+"/0", fmt.Sprint(w, "/l", i)); err != nil {
					return err
				}
			}
			return nil
		},
		"depth": func(w string) error { return os.MkdirAll(w+strings.Repeat("/d", 150), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.limits = sandbox.Limits{DiskBytes: 1 << 20, FileBytes: 1 << 19}
			c := b.filled()
			b.put("pod/files/workspace/kept", "x")
			b.pull(c, true)
			b.must(build(b.path("pod/files/workspace")))
			if _, err := c.Pull(t.Context()); !errors.Is(err, sandbox.QuotaExceeded) {
				t.Errorf("pull: %v", err)
			}
			if got := b.list("server/files/workspace"); got != `kept 644 1 "x"` {
				t.Errorf("the server has %s", got)
			}
			b.must(os.RemoveAll(b.path("pod/files/workspace")))
			b.put("pod/files/workspace/after", "x")
			b.pull(c, true)
			b.same("server/files/workspace", "pod/files/workspace")
		})
	}
}

func sparse(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// TestSwapsUnderEveryStep: code exchanges folders, links and files as fast as it can while both sides copy. What is
// outside stays as it is, and when it stops, both are the same.
func TestSwapsUnderEveryStep(t *testing.T) {
	b := newBed(t)
	b.put("server/secret/s", "of the server")
	b.put("pod/secret/s", "of the sidecar")
	b.put("server/files/workspace/from/server.txt", "x")
	c := b.filled()
	w := b.path("pod/files/workspace")
	b.must(os.MkdirAll(w+"/a/b", 0o755))
	b.must(os.WriteFile(w+"/a/b/s", []byte("mine"), 0o644))
	b.must(os.WriteFile(w+"/s", []byte("mine"), 0o644))
	b.must(os.Symlink(b.path("pod/secret"), w+"/l"))
	b.must(os.Symlink(b.path("pod/secret/s"), w+"/f"))
	b.must(unix.Mkfifo(w+"/p", 0o666))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer end()
	for _, swap := range [][2]string{{"/a", "/l"}, {"/from", "/l"}, {"/p", "/s"}, {"/s", "/f"}, {"/a", "/from"}} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, w+swap[0], unix.AT_FDCWD, w+swap[1], unix.RENAME_EXCHANGE)
				}
			}
		})
	}
	for i := range 15 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		// Either may fail for what it finds; it must not wait, and not follow.
		if _, err := c.Pull(ctx); errors.Is(err, sandbox.Timeout) {
			t.Errorf("pull: %v", err)
		}
		b.must(os.RemoveAll(b.path("server/files/workspace/from"))) // it may have come as a link, and put would follow it
		b.put("server/files/workspace/from/server.txt", fmt.Sprint(i))
		if err := c.Push(ctx, sandbox.WorkspaceDir+"/from/server.txt"); errors.Is(err, sandbox.Timeout) {
			t.Errorf("push: %v", err)
		}
		cancel()
	}
	end()
	_ = filepath.WalkDir(w, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type() == os.ModeNamedPipe {
			_ = os.Remove(p)
		}
		return nil
	})
	// The server has made this folder anew, and has said so of one file in it alone; any of these pushes may have failed.
	b.push(c, sandbox.WorkspaceDir+"/from")
	if _, err := c.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.same("server/files/workspace", "pod/files/workspace")
	if got := b.list("server/secret") + b.list("pod/secret"); got != `s 644 13 "of the server"s 644 14 "of the sidecar"` {
		t.Errorf("outside: %s", got)
	}
	if got := b.list("server/files/workspace"); strings.Contains(got, "of the sidecar") {
		t.Errorf("what lies outside of the tree was copied: %s", got)
	}
}

// TestFilesThatChange while they are read, and changes that leave no trace in size and time.
func TestFilesThatChange(t *testing.T) {
	b := newBed(t)
	c := b.filled()
	name := b.path("pod/files/workspace/f")
	old := time.Unix(1_000_000_000, 0)
	write := func(text string) {
		b.must(os.WriteFile(name, []byte(text), 0o644))
		b.must(os.Chtimes(name, old, old))
	}
	for i := range 5 {
		write(fmt.Sprint("text ", i)) // as fast as it goes: within one tick of the clock
		b.pull(c, true)
		b.same("server/files/workspace", "pod/files/workspace")
	}
	b.must(os.Chtimes(name, time.Now(), time.Now()))
	b.pull(c, true)
	one, err := os.Stat(name)
	b.must(err)
	two, err := os.Stat(b.path("server/files/workspace/f"))
	b.must(err)
	if !one.ModTime().Equal(two.ModTime()) {
		t.Errorf("times %v and %v", one.ModTime(), two.ModTime())
	}
	// A file that grows all the time arrives as it was at some moment.
	grow, err := os.OpenFile(b.path("pod/files/workspace/log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	b.must(err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_, _ = fmt.Fprintf(grow, "%d\n", i)
			}
		}
	})
	for range 10 {
		if _, err := c.Pull(t.Context()); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(b.path("server/files/workspace/log"))
		b.must(err)
		for i, line := range strings.SplitAfter(string(text), "\n") {
			if strings.HasSuffix(line, "\n") && line != fmt.Sprintln(i) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
	}
	close(stop)
	wg.Wait()
	b.must(grow.Close())
	if _, err := c.Pull(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.same("server/files/workspace", "pod/files/workspace")
	b.pull(c, false)
}

// TestOwner: what a pull makes belongs to the sandbox's user.
func TestOwner(t *testing.T) {
	const uid = 54321
	b := newBed(t)
	c := b.dial(func(o *Options) { o.UID = uid })
	b.push(c, sandbox.UserDataDir)
	b.put("pod/files/workspace/d/f", "x")
	b.must(os.Symlink("f", b.path("pod/files/workspace/d/l")))
	b.pull(c, true)
	for _, name := range []string{"d", "d/f", "d/l"} {
		info, err := os.Lstat(b.path("server/files/workspace/" + name))
		b.must(err)
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != uid {
			t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
		}
	}
}

// TestServerFilesChangedBeneath: a part of what changed does not fit the server's folder any more; all of it does.
func TestServerFilesChangedBeneath(t *testing.T) {
	b := newBed(t)
	c := b.filled()
	b.put("pod/files/workspace/d/one", "1")
	b.pull(c, true)
	b.must(os.RemoveAll(b.path("server/files/workspace/d")))
	b.put("pod/files/workspace/d/two", "2")
	b.pull(c, true)
	b.same("server/files/workspace", "pod/files/workspace")
}
