package sidecar

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
)

// podVariable makes the test program a sidecar: in a pod it has the sandbox's uid, and no capability.
const podVariable = "SKERRY_TEST_POD"

// beSidecar serves the pod's folders of a bed, as cmd/skerry-bridge does.
func beSidecar(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	conf, _, err := pki.PodTLS(filepath.Join(dir, "certs"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(ln.Addr())
	err = pod.Serve(ctx, ln, pod.Options{TLS: conf, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Run: filepath.Join(dir, "pod/run"), Mounts: []pod.Mount{
		{Target: sandbox.UserDataDir, Folder: filepath.Join(dir, "pod/files"), Writable: true},
		{Target: sandbox.SkillsDir, Folder: filepath.Join(dir, "pod/skills")},
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestUnprivileged: the sidecar has the sandbox's uid, and copies what that uid has locked away from itself.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	const uid = 54321
	b := newBed(t)
	b.stop()
	own := func(dir string) {
		b.must(filepath.WalkDir(b.path(dir), func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, uid, uid)
		}))
	}
	own("pod")
	own("certs")
	b.must(os.Chmod(filepath.Dir(b.root), 0o755))
	self, err := os.Executable()
	b.must(err)
	b.must(pod.CopyDaemon(self, b.root)) // where that user may run it
	p := exec.CommandContext(t.Context(), filepath.Join(b.root, filepath.Base(self)))
	p.Env = append(os.Environ(), podVariable+"="+b.root)
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	p.Stderr = os.Stderr
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	p.WaitDelay = 20 * time.Second
	out, err := p.StdoutPipe()
	b.must(err)
	b.must(p.Start())
	defer func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	b.must(err)
	b.addr = strings.TrimSpace(line)

	b.put("server/files/workspace/locked/f", "from the server")
	b.put("server/skills/csv/SKILL.md", "csv")
	b.must(os.Chmod(b.path("server/files/workspace/locked"), 0o500))
	c := b.dial(func(o *Options) { o.UID = uid })
	b.push(c, sandbox.UserDataDir, sandbox.SkillsDir)
	b.same("server/files/workspace", "pod/files/workspace")
	b.same("server/skills", "pod/skills")

	w := b.path("pod/files/workspace")
	for _, name := range []string{"a/b/c", "a/d"} {
		b.put("pod/files/workspace/"+name, name)
	}
	b.must(os.Mkdir(w+"/lost+found", 0o700)) // of root, as on a new volume
	b.must(os.WriteFile(w+"/root", []byte("x"), 0o600))
	own("pod/files/workspace/a")
	for name, mode := range map[string]os.FileMode{"/a/b/c": 0, "/a/d": 0o200, "/a/b": 0, "/a": 0o300} {
		defer os.Chmod(w+name, 0o700) //nolint:errcheck // for the removal
		b.must(os.Chmod(w+name, mode))
	}
	b.pull(c, true)
	b.must(os.RemoveAll(w + "/lost+found"))
	b.must(os.Remove(w + "/root"))
	b.must(os.RemoveAll(b.path("server/files/workspace/root")))
	b.same("server/files/workspace", "pod/files/workspace") // with the modes that both had
	if _, err := os.Lstat(b.path("server/files/workspace/lost+found")); err == nil {
		t.Error("a folder came that nobody could read")
	}
	if _, err := c.Pull(t.Context()); err != nil {
		t.Error(err)
	}
	// What is locked is replaced, and removed, too.
	b.must(os.Chmod(b.path("server/files/workspace/a/d"), 0o644))
	b.must(os.RemoveAll(b.path("server/files/workspace/a/b")))
	b.push(c, sandbox.WorkspaceDir)
	b.same("server/files/workspace", "pod/files/workspace")
	b.must(os.RemoveAll(b.path("server/files/workspace/a")))
	b.must(os.RemoveAll(b.path("server/files/workspace/locked")))
	b.put("server/files/workspace/a", "a file now")
	b.push(c, sandbox.WorkspaceDir)
	b.same("server/files/workspace", "pod/files/workspace")
	names, err := os.ReadDir(b.path("pod/files"))
	b.must(err)
	if len(names) != 3 {
		t.Errorf("left over: %v", names)
	}
}
