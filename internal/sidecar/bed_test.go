package sidecar

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(podVariable); dir != "" {
		os.Exit(beSidecar(dir))
	}
	goleak.VerifyTestMain(m)
}

const testID = sandbox.ID("skerry-0123456789abcdef")

// bed is a sandbox's sidecar, and the folders of both sides.
type bed struct {
	kept   bool // its files outlive the pod
	t      testing.TB
	root   string
	auth   *pki.Authority
	addr   string
	stop   func() // ends the sidecar, and waits
	logs   *lockedBuffer
	limits sandbox.Limits
	anchor string // pod.Options.Anchor
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func newBed(t testing.TB) *bed {
	t.Helper()
	b := &bed{t: t, root: t.TempDir(), logs: &lockedBuffer{}, limits: sandbox.Limits{DiskBytes: 1 << 30, FileBytes: 1 << 29}}
	for _, dir := range []string{
		"server/files/workspace", "server/files/uploads", "server/files/outputs", "server/skills", "server/sock",
		"pod/files", "pod/skills", "pod/run", "certs",
	} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.auth, err = pki.Open(context.Background(), b.path("pki")); err != nil {
		t.Fatal(err)
	}
	s, err := b.auth.Sandbox(testID)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range s.Files() {
		b.put("certs/"+name, string(text))
	}
	b.start("127.0.0.1:0")
	t.Cleanup(func() {
		b.stop()
		if t.Failed() {
			b.logs.mu.Lock()
			t.Log(b.logs.b.String())
			b.logs.mu.Unlock()
		}
	})
	return b
}

func (b *bed) log() *slog.Logger { return slog.New(slog.NewTextHandler(b.logs, nil)) }

// start begins a sidecar, as the kubelet would again after its end.
func (b *bed) start(addr string) {
	b.t.Helper()
	conf, _, err := pki.PodTLS(b.path("certs"))
	if err != nil {
		b.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- pod.Serve(ctx, ln, pod.Options{TLS: conf, Run: b.path("pod/run"), Anchor: b.anchor, Log: b.log(), Mounts: []pod.Mount{
			{Target: sandbox.UserDataDir, Folder: b.path("pod/files"), Writable: true, Kept: b.kept},
			{Target: sandbox.SkillsDir, Folder: b.path("pod/skills")},
		}})
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	// The first connection would wait for the sockets, too; tests dial them right away.
	b.eventually("the sidecar serves", func() bool { return pod.Probe(context.Background(), b.path("pod/run")) == nil })
}

func (b *bed) path(p string) string { return filepath.Join(b.root, p) }

func (b *bed) mounts() []sandbox.Mount {
	return []sandbox.Mount{
		{Source: b.path("server/files"), Target: sandbox.UserDataDir},
		{Source: b.path("server/skills"), Target: sandbox.SkillsDir, ReadOnly: true},
		{Source: b.path("server/sock"), Target: sandbox.RunDir, ReadOnly: true},
	}
}

func (b *bed) options() Options {
	return Options{Addr: b.addr, ID: testID, Authority: b.auth, Mounts: b.mounts(), Limits: b.limits, Log: b.log()}
}

func (b *bed) dial(change func(*Options)) *Conn {
	b.t.Helper()
	o := b.options()
	if change != nil {
		change(&o)
	}
	c, err := Dial(context.Background(), o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// filled dials, and sends the sandbox all that the server has.
func (b *bed) filled() *Conn {
	b.t.Helper()
	c := b.dial(nil)
	b.push(c, sandbox.UserDataDir, sandbox.SkillsDir)
	return c
}

func (b *bed) push(c *Conn, paths ...string) {
	b.t.Helper()
	if err := c.Push(context.Background(), paths...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) pull(c *Conn, want bool) {
	b.t.Helper()
	if changed, err := c.Pull(context.Background()); err != nil || changed != want {
		b.t.Fatalf("pull: changed %v, want %v, %v", changed, want, err)
	}
}

func (b *bed) put(path, text string) {
	b.t.Helper()
	path = b.path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("did not happen: %s", what)
		}
	}
}

// list describes all files and folders below a folder.
func (b *bed) list(dir string) string {
	b.t.Helper()
	var out []string
	err := filepath.WalkDir(b.path(dir), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(b.path(dir), p)
		switch {
		case rel == ".":
		case d.IsDir():
			out = append(out, fmt.Sprintf("%s/ %o", rel, info.Mode().Perm()))
		case info.Mode().Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			out = append(out, fmt.Sprintf("%s -> %s", rel, to))
		case info.Mode().IsRegular():
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			out = append(out, fmt.Sprintf("%s %o %d %.40q", rel, info.Mode(), len(text), text))
		default:
			out = append(out, fmt.Sprintf("%s %s", rel, info.Mode().Type()))
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// same holds two folders against each other.
func (b *bed) same(one, two string) {
	b.t.Helper()
	if x, y := b.list(one), b.list(two); x != y {
		b.t.Fatalf("%s:\n%s\n\n%s:\n%s", one, x, two, y)
	}
}
