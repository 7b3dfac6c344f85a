package servers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/oci"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
	"github.com/skerry-sandbox/skerry/internal/tools/servers"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		drivertest.Main(m) // as a program of the suite
	}
	goleak.VerifyTestMain(m)
}

// daemon builds skerry-sandboxd, once.
var daemon = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sandboxd")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "skerry-sandboxd")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/skerry-sandbox/skerry/cmd/skerry-sandboxd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return out, os.Chmod(dir, 0o755)
})

type bed struct {
	*testing.T
	o       servers.Options
	s       *servers.Sandboxes
	mu      sync.Mutex
	refused []string
}

func newBed(t *testing.T, runtime string) *bed {
	t.Helper()
	program, err := exec.LookPath(runtime)
	if err != nil {
		drivertest.Missing(t, runtime, err)
	}
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "root", "an OCI runtime needs it")
	}
	bin, err := daemon()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "ts")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	d, err := oci.New(oci.Options{Root: filepath.Join(root, "oci"), Runtimes: map[string]string{runtime: program}, CgroupParent: "skerry-toolservertest", Probe: drivertest.Program(t), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := d.List(context.Background(), nil)
		if err != nil || len(left) > 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	uid := 1_700_000
	var mu sync.Mutex
	b := &bed{T: t}
	b.o = servers.Options{
		Driver: d, RunDir: filepath.Join(root, "run"), Daemon: bin, Install: "test", StartTime: 60 * time.Second, Log: log,
		Home: func(_ context.Context, s servers.Spec) (string, int, error) {
			mu.Lock()
			defer mu.Unlock()
			uid++
			return home(filepath.Join(root, "homes", s.Home), uid)
		},
		Template: sandbox.Template{Name: "mcp-server", Runtime: runtime, Limits: sandbox.Limits{
			MemoryBytes: 256 << 20, CPUMillis: 1000, PIDs: 64, OpenFiles: 1024, FileBytes: 64 << 20, TmpBytes: 32 << 20, DiskBytes: 64 << 20,
		}},
		Refused: func(server string, _ sandbox.Owner, target string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, server+" "+target)
		},
	}
	if b.s, err = servers.New(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	return b
}

// home makes a home folder, unless it is there, and returns its owner.
func home(dir string, uid int) (string, int, error) {
	if info, err := os.Stat(dir); err == nil {
		return dir, int(info.Sys().(*syscall.Stat_t).Uid), nil
	}
	return dir, uid, errors.Join(os.MkdirAll(filepath.Dir(dir), 0o711), os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid))
}

func (b *bed) start(spec servers.Spec) *servers.Server {
	b.Helper()
	v, err := b.s.Start(b.Context(), spec)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(v.Stop)
	_ = v.Stdio.SetDeadline(time.Now().Add(60 * time.Second))
	_ = v.Stderr.SetDeadline(time.Now().Add(60 * time.Second))
	return v
}

func python(home, script string, env ...string) servers.Spec {
	return servers.Spec{Server: "s", Home: home, Argv: []string{"python3", "-u", "-c", script}, Env: env}
}

// TestToolServer: it talks, it keeps its home, it has a uid of its own, and nothing is left of it.
func TestToolServer(t *testing.T) {
	b := newBed(t, "runc")
	echo := python("a", `
import os, sys
n = len(os.listdir("."))
open("file%d" % n, "w").write("x")
print(n, os.getuid(), os.getcwd(), os.environ["KEY"], flush=True)
print("warned", file=sys.stderr)
for line in sys.stdin: print(line.upper(), end="", flush=True)
print("bye")
`, "KEY=secret")
	var uids []int
	for i := range 2 {
		v := b.start(echo)
		r := bufio.NewReader(v.Stdio)
		var n, uid int
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(line, "%d %d /srv/home secret\n", &n, &uid); err != nil || n != i || uid < 1_000_000 {
			t.Fatalf("%q: %v", line, err)
		}
		uids = append(uids, uid)
		big := strings.Repeat("a", 1<<20) + "\n"
		go func() { _, _ = io.WriteString(v.Stdio, big); _ = v.Stdio.CloseWrite() }()
		rest, err := io.ReadAll(r)
		if err != nil || string(rest) != strings.ToUpper(big)+"bye\n" {
			t.Errorf("%d bytes came back, %v", len(rest), err)
		}
		if said, err := io.ReadAll(v.Stderr); err != nil || string(said) != "warned\n" {
			t.Errorf("%q, %v", said, err)
		}
		list, err := b.o.Driver.List(t.Context(), nil)
		if err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		if text, _ := json.Marshal(list); strings.Contains(string(text), "secret") {
			t.Errorf("the engine shows the environment: %s", text)
		}
		v.Stop()
		v.Stop()
	}
	if uids[0] != uids[1] {
		t.Errorf("uids %v", uids)
	}
	if left, err := os.ReadDir(b.o.RunDir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestWalls: what such a server cannot reach.
func TestWalls(t *testing.T) {
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run(runtime, func(t *testing.T) {
			b := newBed(t, runtime)
			secret := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte("host"), 0o600); err != nil {
				t.Fatal(err)
			}
			shared := t.TempDir()
			if err := os.WriteFile(filepath.Join(shared, "code.py"), []byte("x = 1"), 0o644); err != nil {
				t.Fatal(err)
			}
			other := b.start(python("other", `open("mine", "w").write("x"); import sys; print("up", flush=True); sys.stdin.read()`))
			if _, err := bufio.NewReader(other.Stdio).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			rules, err := egress.ParseRules([]string{"api.example.invalid"})
			if err != nil {
				t.Fatal(err)
			}
			spec := python("a", walls, "SECRET_PATH="+secret)
			spec.Egress, spec.Mounts = rules, []sandbox.Mount{{Source: shared, Target: "/srv/code"}}
			v := b.start(spec)
			text, err := io.ReadAll(v.Stdio)
			if err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(v.Stderr)
			var got map[string]string
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%q, %v; %s", text, err, said)
			}
			for what, how := range got {
				if !strings.HasPrefix(how, "refused") {
					t.Errorf("%s: %s", what, how)
				}
			}
			if len(got) != 11 {
				t.Errorf("%d answers: %v", len(got), got)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.refused) != 2 {
				t.Errorf("refusals: %q", b.refused)
			}
		})
	}
}

const walls = `
import json, os, socket, subprocess, sys
found = {}
def tried(name, f):
    try: found[name] = "open: %r" % (f(),)
    except Exception as e: found[name] = "refused: %s" % e
def refused(name, ok, text=""): found[name] = ("refused " if ok else "open ") + str(text)
tried("host file", lambda: open(os.environ["SECRET_PATH"]).read())
tried("shadow", lambda: open("/etc/shadow").read())
tried("write code", lambda: open("/srv/code/x", "w"))
tried("write root", lambda: open("/usr/x", "w"))
tried("internet", lambda: socket.create_connection(("1.1.1.1", 443), 3))
tried("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 3))
tried("dns", lambda: socket.getaddrinfo("example.com", 443))
def again():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect("/run/skerry/stdio.sock") # until the server, which has both connections, has closed its socket
    try:
        if s.recv(1): return "answered"
    except TimeoutError: return "never closed"
    raise Exception("closed")
tried("stdio socket again", again)
def connect(target):
    s = socket.create_connection(("127.0.0.1", 9877), 5)
    s.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)).encode())
    return s.recv(100).split(b"\r\n")[0].decode()
refused("proxy: other host", "403" in connect("other.example.invalid:443"))
refused("proxy: metadata", "403" in connect("169.254.169.254:443"))
refused("root or capabilities", os.getuid() != 0 and "CapEff:\t0000000000000000" in open("/proc/self/status").read())
print(json.dumps(found))
`

// TestNotStarted: what is wrong is said where servers say such things.
func TestNotStarted(t *testing.T) {
	b := newBed(t, "runc")
	v := b.start(servers.Spec{Server: "s", Home: "a", Argv: []string{"no-such-program"}})
	if out, err := io.ReadAll(v.Stdio); err != nil || len(out) > 0 {
		t.Errorf("%q, %v", out, err)
	}
	if said, err := io.ReadAll(v.Stderr); err != nil || !strings.Contains(string(said), "no-such-program") {
		t.Errorf("%q, %v", said, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.s.Start(ctx, python("a", "")); err == nil {
		t.Error("no error after the caller went")
	}
}

// TestLeftOver: what a killed server left is removed by the next one.
func TestLeftOver(t *testing.T) {
	b := newBed(t, "runc")
	v, err := b.s.Start(t.Context(), python("a", "import sys; sys.stdin.read(); import time; time.sleep(60)"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = v.Stdio.Close(), v.Stderr.Close() // as kill -9 does
	if _, err := servers.New(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	if list, err := b.o.Driver.List(t.Context(), nil); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if left, err := filepath.Glob(b.o.RunDir + "/*"); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
