package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// These tests run the real binary as PID 1, at the real paths, in namespaces of its own on this
// machine's root file system. They need root (as the server does), util-linux and iproute2.

const (
	testUID  = 1_234_567
	maxTasks = 150 // stands in for the pids limit of a real sandbox
)

// init of the namespaces: everything at its place, then sandboxd as an ordinary user.
const initScript = `
set -e
mount -t proc proc /proc
mount -t tmpfs -o mode=0755 tmpfs /mnt
mkdir -p /mnt/user-data /mnt/code-api
mount --bind "$BASE/user-data" /mnt/user-data
mount -t tmpfs -o mode=0755 tmpfs /home
mkdir /home/agent
chown %[1]d:%[1]d /home/agent
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/skerry
mount --bind "$BASE/$SOCK" /run/skerry
cp "$DAEMON" /mnt/skerry-sandboxd
mount -t tmpfs -o mode=1777 tmpfs /tmp
ip link set lo up
exec prlimit --nproc=%[2]d setpriv --reuid %[1]d --regid %[1]d --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all /mnt/skerry-sandboxd $ARGS
`

type jail struct {
	*testing.T
	c     *client.Client
	pid1  int // of sandboxd, as the host sees it
	sock  string
	count int
	held  *anchor.Accepted // of a jail that is anchored
}

var builtIn string // folder to remove

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "skerry-sandboxd-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "skerry-sandboxd")
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, msg)
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

func newJail(t *testing.T, args ...string) *jail {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("needs root, to make namespaces and change the uid")
	}
	daemon, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("/var/tmp", "skerry-") // not below a folder that the jail hides
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	for _, d := range []string{"", "sock", "none", "user-data", "user-data/workspace"} {
		d = filepath.Join(base, d)
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(base, "user-data/workspace"), testUID, testUID); err != nil {
		t.Fatal(err)
	}
	ln, err := link.Listen(link.ListenOptions{Dir: filepath.Join(base, "sock"), UID: testUID, SecretFile: filepath.Join(base, "secret"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ln.Close)
	j := &jail{T: t, c: client.New(ln, nil), sock: filepath.Join(base, "sock")}
	j.begin(fmt.Sprintf(initScript, testUID, maxTasks), base, daemon, args)
	if slices.Contains(args, anchor.Argument) {
		j.sidecar()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := ln.Conn(ctx); err != nil {
		t.Fatalf("sandboxd did not connect: %v", err)
	}
	return j
}

func (j *jail) begin(script, base, daemon string, args []string) {
	j.Helper()
	var out bytes.Buffer
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "--ipc", "--", "bash", "-c", script)
	sock := "sock"
	if slices.Contains(args, anchor.Argument) {
		sock = "none"
	}
	cmd.Env = []string{"SOCK=" + sock, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "BASE=" + base, "DAEMON=" + daemon, "ARGS=" + strings.Join(args, " ")}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	if err := cmd.Start(); err != nil {
		j.Fatal(err)
	}
	j.Cleanup(func() {
		if j.pid1 > 1 {
			_ = syscall.Kill(j.pid1, syscall.SIGKILL) // and with PID 1 all others
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if j.Failed() {
			j.Logf("sandboxd:\n%s", &out)
		}
	})
	for range 400 {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		if pid, err2 := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && err2 == nil {
			j.pid1 = pid
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	j.Fatal("no PID 1")
}

func (j *jail) run(req *sandboxv1.RunRequest) (x *sandboxv1.Exit, stdout, stderr string) {
	j.Helper()
	ctx, cancel := context.WithTimeout(j.Context(), 30*time.Second)
	defer cancel()
	j.count++
	req.ExecId = fmt.Sprintf("exec-%d", j.count)
	x, err := j.c.Run(ctx, req, func(e *sandboxv1.Event) error {
		if o := e.GetOutput(); o.GetStderr() {
			stderr += string(o.GetData())
		} else {
			stdout += string(o.GetData())
		}
		return nil
	})
	if err != nil {
		j.Fatalf("exec %d: %v", j.count, err)
	}
	return x, stdout, stderr
}

// wantOutput runs a script that ends well.
func (j *jail) wantOutput(script, want string) {
	j.Helper()
	x, stdout, stderr := j.run(&sandboxv1.RunRequest{Shell: script})
	if x.GetStatus() != sandboxv1.Exit_STATUS_EXITED || x.GetCode() != 0 || stdout != want {
		j.Errorf("%s: %v, code %d (%s), stdout %q, stderr %q; want %q", script, x.GetStatus(), x.GetCode(), x.GetReason(), stdout, stderr, want)
	}
}

// alone fails unless only sandboxd and its supervisors are left.
func (j *jail) alone() {
	j.Helper()
	var left string
	for range 50 {
		_, left, _ = j.run(&sandboxv1.RunRequest{Shell: `for p in /proc/[0-9]*; do read -r c < <(tr '\0' ' ' < $p/cmdline) && echo "$c"; done 2>/dev/null | grep -v -e skerry-sandboxd -e '^bash -c' -e /bash -e '^grep' -e '^tr '`})
		if left == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	j.Errorf("processes are left:\n%s", left)
}

func TestAsPID1(t *testing.T) {
	j := newJail(t)
	j.wantOutput("id -u; pwd; echo $HOME; echo x > f; cat f", fmt.Sprintf("%d\n/mnt/user-data/workspace\n/home/agent\nx\n", testUID))
	j.wantOutput("readlink /proc/1/exe || echo refused; cat /proc/1/environ 2>/dev/null || echo refused; ls /proc/1/fd 2>/dev/null || echo refused; head -c1 /proc/1/mem 2>/dev/null || echo refused",
		strings.Repeat("refused\n", 4))
	x, _, _ := j.run(&sandboxv1.RunRequest{Shell: "(setsid sleep 300 &) ; (sleep 301 &); sleep 302", TimeoutMs: 300})
	if x.GetStatus() != sandboxv1.Exit_STATUS_TIMEOUT {
		t.Errorf("%+v", x)
	}
	j.alone()
	status, err := j.c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sandboxd holds %.1f MB; languages %v", float64(status.GetRssBytes())/1e6, status.GetLanguages())
}

// Code cannot take the place of sandboxd at the control socket.
func TestControlSocketFromInside(t *testing.T) {
	j := newJail(t)
	for _, secret := range []string{"", strings.Repeat("0", 64)} {
		script := fmt.Sprintf(`
import socket
s = socket.socket(socket.AF_UNIX)
s.connect('/run/skerry/control.sock')
s.sendall(b'{"protocol":1,"version":"evil","secret":"%s"}\n')
print('"ok":true' in s.recv(4096).decode())
`, secret)
		x, stdout, stderr := j.run(&sandboxv1.RunRequest{Argv: []string{"/usr/bin/python3", "-c", script}})
		if x.GetCode() != 0 || stdout != "False\n" {
			t.Errorf("secret %q: %q %q", secret, stdout, stderr)
		}
	}
	j.wantOutput("echo still there", "still there\n")
}

// Every signal there is, from a process of the same uid that is not under our filter.
func TestSignalsFromNeighbour(t *testing.T) {
	j := newJail(t)
	// With and without a siginfo of the sender's own making. The Go runtime takes a SIGSEGV that no kill(2)
	// sent for its own fault. So the test tries that signal only where the filter holds.
	attack := `
import os, time
for n in range(1, 65):
    try: os.kill(1, n)
    except OSError as e: print(n, e)
    time.sleep(0.002)
`
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(j.pid1), "--pid", "--mount",
		"setpriv", "--reuid", strconv.Itoa(testUID), "--regid", strconv.Itoa(testUID), "--clear-groups", "/usr/bin/python3", "-c", attack)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("attack: %v\n%s", err, out)
	}
	j.wantOutput("echo alive", "alive\n")

	// Under the filter not even that can be sent.
	x, stdout, stderr := j.run(&sandboxv1.RunRequest{Argv: []string{"/usr/bin/python3", "-c", `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
info = ctypes.create_string_buffer(128)
ctypes.memmove(info, (ctypes.c_int * 3)(11, 0, -1), 12)
tids = [1] + [int(t) for t in os.listdir('/proc/1/task')]
for tid in tids:
    libc.rt_sigqueueinfo = None
    r = libc.syscall(129 if os.uname().machine == 'x86_64' else 138, tid, 11, info)
    if r == 0: print('sent to', tid)
try: os.kill(-1, 9)
except OSError as e: print(e.errno)
`}})
	if x.GetCode() != 0 || stdout != "1\n" {
		t.Errorf("code %d, %q %q", x.GetCode(), stdout, stderr)
	}
	j.wantOutput("echo alive", "alive\n")
}

// A fork bomb takes every task that the sandbox may have; sandboxd and the next exec do not mind.
func TestForkBombAtTheLimit(t *testing.T) {
	j := newJail(t)
	for _, bomb := range []string{
		"f() { f | f & }; f; sleep 60",
		"exec /usr/bin/python3 -c 'import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass'",
	} {
		start := time.Now()
		x, _, _ := j.run(&sandboxv1.RunRequest{Shell: bomb, TimeoutMs: 1000})
		if x.GetStatus() != sandboxv1.Exit_STATUS_TIMEOUT && x.GetStatus() != sandboxv1.Exit_STATUS_KILLED {
			t.Errorf("%v (%s)", x.GetStatus(), x.GetReason())
		}
		if d := time.Since(start); d > 6*time.Second {
			t.Errorf("ended after %v", d)
		}
		j.wantOutput("echo after", "after\n")
	}
	j.alone()
}

// Code that kills whatever it can ends its own exec and others', but not the sandbox.
func TestKillingEverything(t *testing.T) {
	j := newJail(t)
	var wg sync.WaitGroup
	victims := make(chan *sandboxv1.Exit, 4)
	for i := range cap(victims) {
		wg.Go(func() {
			x, err := j.c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: fmt.Sprintf("victim-%d", i), Shell: "(setsid sleep 400 &); sleep 401"}, func(*sandboxv1.Event) error { return nil })
			if err != nil {
				t.Errorf("victim: %v", err)
				return
			}
			victims <- x
		})
	}
	for {
		if s, err := j.c.Status(t.Context()); err == nil && len(s.GetExecs()) == cap(victims) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	_, _, _ = j.run(&sandboxv1.RunRequest{Shell: `for i in 1 2 3; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -9 $p 2>/dev/null; done; done`})
	wg.Wait()
	close(victims)
	for x := range victims {
		if x.GetStatus() != sandboxv1.Exit_STATUS_KILLED && x.GetCode() != 137 {
			t.Errorf("%v, code %d (%s)", x.GetStatus(), x.GetCode(), x.GetReason())
		}
	}
	j.wantOutput("echo after", "after\n")
	j.alone()
}

// TestZygoteFromInside: a program does not reach into the process that it was forked from. What it can do to it, as any
// process of its uid, costs the next program its head start.
func TestZygoteFromInside(t *testing.T) {
	j := newJail(t)
	python := func(text string) string {
		t.Helper()
		x, stdout, stderr := j.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "python", Text: text, Preload: []string{"json"}}})
		if x.GetStatus() != sandboxv1.Exit_STATUS_EXITED || x.GetCode() != 0 {
			t.Errorf("%v, code %d: %s", x.GetStatus(), x.GetCode(), stderr)
		}
		return stdout
	}
	const find = `
import ctypes, os, resource, signal
def parent(pid):
    try: return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    except OSError: return 0
def can(what):
    try:
        what()
        return True
    except OSError:
        return False
libc = ctypes.CDLL(None, use_errno=True)
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid() and parent(p) == os.getppid()]
`
	// inFork runs a program in a fork: where there is none yet, it is tried again.
	inFork := func(text string) string {
		t.Helper()
		for range 100 {
			if got := python(find + "if not others: raise SystemExit(print('cold'))\n" + text); got != "cold\n" {
				return got
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatal("no program runs in a fork")
		return ""
	}
	if got := inFork(`
z = others[0]
print([name for name in ("environ", "fd", "mem", "maps", "exe", "cwd", "root") if can(lambda: os.listdir(f"/proc/{z}/{name}") if name == "fd" else open(f"/proc/{z}/{name}", "r+b" if name == "mem" else "rb").read(1))])
print(libc.ptrace(16, z, 0, 0), libc.process_vm_readv(z, 0, 0, 0, 0, 0), libc.syscall(434, z, 0))
`); got != "[]\n-1 -1 -1\n" {
		t.Errorf("it reaches the zygote: %s", got)
	}
	for _, harm := range []string{
		"os.kill(others[0], signal.SIGSTOP)", "os.kill(others[0], signal.SIGKILL)", "os.kill(others[0], signal.SIGINT)", "os.kill(-others[0], signal.SIGTERM)",
		"resource.prlimit(others[0], resource.RLIMIT_NOFILE, (7, 7))", "os.sched_setscheduler(others[0], os.SCHED_BATCH, os.sched_param(0))",
	} {
		inFork(harm)
		if got := python("import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 7, os.sched_getscheduler(0))"); got != "True 0\n" {
			t.Errorf("after %s: %q", harm, got)
		}
	}
	inFork("")
}

// sidecar is the other end of an anchor: it passes connections on to the sockets of the server.
func (j *jail) sidecar() {
	j.Helper()
	ln, err := j.listenInside()
	if err != nil {
		j.Fatal(err)
	}
	if j.held, err = ln.Accept(func() error { return nil }); err != nil {
		j.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			name, conn, err := j.held.Next()
			if err != nil {
				return
			}
			up, err := net.Dial("unix", filepath.Join(j.sock, name))
			if err != nil {
				_ = conn.Close()
				continue
			}
			for _, c := range [2]struct{ to, from net.Conn }{{up, conn}, {conn, up}} {
				wg.Go(func() {
					_, _ = io.Copy(c.to, c.from)
					_, _ = conn.Close(), up.Close()
				})
			}
		}
	})
	j.Cleanup(func() { j.held.Close(); wg.Wait() })
}

// listenInside takes the address in the network of the jail: a socket belongs to that of the thread that makes it.
func (j *jail) listenInside() (ln *anchor.Listener, err error) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with this
		var there *os.File
		for range 400 { // PID 1 is told of before it has a network of its own
			if there, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", j.pid1)); err != nil {
				return
			}
			a, _ := own.Stat()
			if b, _ := there.Stat(); !os.SameFile(a, b) {
				break
			}
			_ = there.Close()
			time.Sleep(10 * time.Millisecond)
		}
		defer there.Close()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err == nil {
			ln, err = anchor.Listen(anchor.Address)
		}
	}()
	<-done
	return ln, err
}

// TestAnchored: where PID 1 sees no socket of the server, all goes through its sidecar, and it ends with that one.
func TestAnchored(t *testing.T) {
	j := newJail(t, anchor.Argument)
	j.wantOutput("ls -A /run/skerry; echo there", "there\n")
	j.bridgeAnswers()
	j.held.Close()
	for end := time.Now().Add(30 * time.Second); syscall.Kill(j.pid1, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("PID 1 lives on without its sidecar")
		}
	}
}

// What code sends to localhost:9876 arrives at the bridge's socket.
func TestBridgeFromInside(t *testing.T) { newJail(t).bridgeAnswers() }

func (j *jail) bridgeAnswers() {
	j.Helper()
	t := j.T
	ln, err := net.Listen("unix", filepath.Join(j.sock, "bridge.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(j.sock, "bridge.sock"), testUID, testUID); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "bridge: "+r.URL.Path) })}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		text := fmt.Sprintf("import urllib.request\nprint(urllib.request.urlopen('http://%s:9876/call').read().decode())", host)
		x, stdout, stderr := j.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "python", Text: text}})
		if x.GetCode() != 0 || stdout != "bridge: /call\n" {
			t.Errorf("%s: %q %q", host, stdout, stderr)
		}
	}
}

func TestThreadsAreThereBeforehand(t *testing.T) {
	j := newJail(t)
	j.wantOutput("true", "")
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", j.pid1))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\nThreads:\t")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil || n < threads || n > 2*threads {
		t.Errorf("%d threads, %v", n, err)
	}
	x, stdout, _ := j.run(&sandboxv1.RunRequest{Shell: "grep Threads /proc/$PPID/status; grep Rss /proc/$PPID/status"})
	t.Logf("sandboxd: %d threads; a supervisor: %q (code %d)", n, stdout, x.GetCode())
}

func TestVersion(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "skerry-sandboxd ") || !strings.HasSuffix(string(out), "protocol 1\n") {
		t.Errorf("%q, %v", out, err)
	}
}
