package sandboxd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/files"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

func TestMain(m *testing.M) {
	process.SuperviseIfAsked()
	goleak.VerifyTestMain(m)
}

// pair is a daemon in this process, and a server's side that it has connected to.
type pair struct {
	testing.TB
	o     Options
	lo    link.ListenOptions
	ln    *link.Listener
	c     *client.Client
	data  string
	count int
	done  chan error // Run's
}

func newPair(t testing.TB, change ...func(*Options)) *pair {
	t.Helper()
	base := t.TempDir()
	dir := func(name string) string {
		d := filepath.Join(base, name)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		return d
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p := &pair{TB: t, data: dir("user-data"), o: Default(exe, log), lo: link.ListenOptions{Dir: dir("run"), SecretFile: filepath.Join(base, "secret"), Log: log}}
	p.o.ControlSocket, p.o.BridgeSocket, p.o.BridgeAddrs = filepath.Join(p.lo.Dir, "control.sock"), filepath.Join(p.lo.Dir, "bridge.sock"), nil
	p.o.UserDataDir, p.o.WorkspaceDir, p.o.CodeAPIDir, p.o.TempDir = p.data, dir("user-data/workspace"), dir("code-api"), dir("tmp")
	p.o.Roots = []files.Root{{Path: p.data, Writable: true}, {Path: p.o.CodeAPIDir}}
	for _, c := range change {
		c(&p.o)
	}
	p.listen()
	ctx, cancel := context.WithCancel(context.Background())
	p.done = make(chan error, 1)
	go func() { p.done <- Run(ctx, p.o); close(p.done) }()
	t.Cleanup(func() {
		cancel()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
		p.ln.Close()
	})
	return p
}

func (p *pair) listen() {
	p.Helper()
	var err error
	if p.ln, err = link.Listen(p.lo); err != nil {
		p.Fatal(err)
	}
	p.c = client.New(p.ln, nil)
}

type result struct {
	*sandboxv1.Exit
	stdout, stderr string
	last           uint64
}

func (r *result) take(e *sandboxv1.Event) error {
	r.last = e.GetN()
	if o := e.GetOutput(); o.GetStderr() {
		r.stderr += string(o.GetData())
	} else {
		r.stdout += string(o.GetData())
	}
	return nil
}

func (p *pair) id() string {
	p.count++
	return fmt.Sprintf("exec-%d", p.count)
}

func (p *pair) run(req *sandboxv1.RunRequest) result {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if req.ExecId == "" {
		req.ExecId = p.id()
	}
	var r result
	var err error
	if r.Exit, err = p.c.Run(ctx, req, r.take); err != nil {
		p.Fatal(err)
	}
	return r
}

func (p *pair) want(r result, code int32, stdout string) {
	p.Helper()
	if r.GetStatus() != sandboxv1.Exit_STATUS_EXITED || r.GetCode() != code || r.stdout != stdout {
		p.Errorf("%v, code %d (%s), stdout %q, stderr %q; want code %d, %q", r.GetStatus(), r.GetCode(), r.GetReason(), r.stdout, r.stderr, code, stdout)
	}
}

func TestExec(t *testing.T) {
	p := newPair(t)
	p.want(p.run(&sandboxv1.RunRequest{Shell: "pwd; echo $HOME $LANG $X $PWD", Env: []string{"X=1", "LANG=de"}}), 0,
		p.o.WorkspaceDir+"\n/home/agent de 1 "+p.o.WorkspaceDir+"\n")
	p.want(p.run(&sandboxv1.RunRequest{Argv: []string{"sh", "-c", "cat; exit 3"}, Cwd: "/", Stdin: []byte("in")}), 3, "in")
	r := p.run(&sandboxv1.RunRequest{Argv: []string{"no-such-program"}})
	if r.GetStatus() != sandboxv1.Exit_STATUS_FAILED_TO_START || !strings.Contains(r.GetReason(), "no such program") || r.last != 1 {
		t.Errorf("%+v", r)
	}
	r = p.run(&sandboxv1.RunRequest{Shell: "sleep 60", TimeoutMs: 100})
	if r.GetStatus() != sandboxv1.Exit_STATUS_TIMEOUT {
		t.Errorf("%+v", r)
	}
	r = p.run(&sandboxv1.RunRequest{Shell: "seq 1 1000", MaxOutputBytes: 100, MaxSpillBytes: 1 << 20, SpillDir: p.data + "/.spill/x"})
	if !strings.HasPrefix(r.stdout, "1\n2\n") || len(r.stdout) != 50 || !strings.HasSuffix(string(r.GetStdout().GetTail()), "999\n1000\n") || r.GetStdout().GetSpillPath() != p.data+"/.spill/x/stdout" {
		t.Errorf("%q %+v", r.stdout, r.GetStdout())
	}
}

func TestInvalidRequests(t *testing.T) {
	p := newPair(t)
	for name, req := range map[string]*sandboxv1.RunRequest{
		"nothing":  {ExecId: "a"},
		"two ways": {ExecId: "a", Shell: "x", Argv: []string{"y"}},
		"id":       {ExecId: "a/b", Shell: "true"},
		"cwd":      {ExecId: "a", Shell: "true", Cwd: "relative"},
		"env":      {ExecId: "a", Shell: "true", Env: []string{"A-B=c"}},
		"no value": {ExecId: "a", Shell: "true", Env: []string{"AB"}},
		"language": {ExecId: "a", Code: &sandboxv1.Code{Language: "cobol"}},
		"output":   {ExecId: "a", Shell: "true", MaxOutputBytes: 1 << 63},
	} {
		if _, err := p.c.Run(t.Context(), req, func(*sandboxv1.Event) error { return nil }); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(p.o.TempDir); err != nil || len(left) > 0 {
		t.Errorf("private folders are left: %v, %v", left, err)
	}
}

func TestCode(t *testing.T) {
	p := newPair(t)
	status, err := p.c.Status(t.Context())
	if err != nil || !slices.Contains(status.GetLanguages(), "python") || status.GetProtocol() != link.Protocol || status.GetRssBytes() <= 0 || len(status.GetRoots()) != 2 {
		t.Fatalf("%+v, %v", status, err)
	}
	p.want(p.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "python", Text: "import os, sys\nprint(os.getcwd(), sys.path[-1] != '')"}}), 0, p.o.WorkspaceDir+" True\n")
	p.want(p.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "bash", Text: "echo $((6*7))"}}), 0, "42\n")
	p.want(p.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "python", Text: "import own; print(own.x)"}, Env: []string{"PYTHONPATH=" + p.own("own.py", "x = 8")}}), 0, "8\n")
	waiting := 1
	if slices.Contains(status.GetLanguages(), "javascript") {
		waiting = 2
		p.want(p.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "javascript", Text: "console.log(await Promise.resolve(7))"}}), 0, "7\n")
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left, err := os.ReadDir(p.o.TempDir)
		if err == nil && len(left) > 0 && len(left) <= waiting { // those of the interpreters that wait
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("private folders are left: %v, %v", left, err)
		}
	}
}

// own makes a folder with one file in it.
func (p *pair) own(name, text string) string {
	p.Helper()
	dir := p.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
	return dir
}

func TestNoInterpreter(t *testing.T) {
	p := newPair(t, func(o *Options) { o.BaseEnv = []string{"PATH=/no/such/folder"} })
	r := p.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "typescript", Text: "1"}})
	if r.GetStatus() != sandboxv1.Exit_STATUS_FAILED_TO_START || !strings.Contains(r.GetReason(), "bun, deno and node") {
		t.Errorf("%+v", r)
	}
	p.want(p.run(&sandboxv1.RunRequest{Shell: "echo /bin/sh"}), 0, "/bin/sh\n")
}

func TestBackground(t *testing.T) {
	p := newPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	id := p.id()
	// The caller goes away after the first output; the exec does not.
	_, err := p.c.Run(ctx, &sandboxv1.RunRequest{ExecId: id, Shell: "echo a; read x; echo $x; trap 'echo usr; exit 6' USR1; echo b; while :; do sleep 0.02; done", KeepStdin: true},
		func(e *sandboxv1.Event) error {
			if e.GetOutput() != nil {
				cancel()
			}
			return ctx.Err()
		})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := p.c.WriteStdin(t.Context(), id, []byte("from stdin\n"), true); err != nil {
		t.Fatal(err)
	}
	var r result
	r.Exit, err = p.c.Attach(t.Context(), id, 2, func(e *sandboxv1.Event) error {
		if strings.Contains(string(e.GetOutput().GetData()), "b\n") {
			if err := p.c.Signal(t.Context(), id, 10); err != nil {
				t.Error(err)
			}
		}
		return r.take(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	p.want(r, 6, "from stdin\nb\nusr\n")
	if err := p.c.Signal(t.Context(), id, 10); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("signal after the end: %v", err)
	}
	if err := p.c.WriteStdin(t.Context(), id, nil, false); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("stdin after the end: %v", err)
	}
	if err := p.c.Kill(t.Context(), id); err != nil {
		t.Errorf("kill after the end: %v", err)
	}
	if err := p.c.Forget(t.Context(), id); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"forget": p.c.Forget(t.Context(), id), "kill": p.c.Kill(t.Context(), id),
		"attach": func() error { _, err := p.c.Attach(t.Context(), id, 0, r.take); return err }(),
	} {
		if !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s of one that is forgotten: %v", what, err)
		}
	}
}

func TestKillWhileFollowed(t *testing.T) {
	p := newPair(t)
	id := p.id()
	var r result
	var err error
	r.Exit, err = p.c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: id, Shell: "sleep 60"}, func(e *sandboxv1.Event) error {
		if e.GetStarted() != nil {
			go func() { _ = p.c.Kill(context.Background(), id) }()
		}
		return nil
	})
	if err != nil || r.GetStatus() != sandboxv1.Exit_STATUS_KILLED {
		t.Errorf("%v, %v", r.Exit, err)
	}
}

// The server goes away in the middle of an exec and comes back: no event is lost.
func TestServerRestart(t *testing.T) {
	p := newPair(t)
	id := p.id()
	var first result
	_, err := p.c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: id, Shell: "for i in $(seq 40); do echo $i; sleep 0.02; done"}, func(e *sandboxv1.Event) error {
		if first.last == 5 {
			return errors.New("the server dies")
		}
		return first.take(e)
	})
	if err == nil {
		t.Fatal("no error")
	}
	p.ln.Close()
	time.Sleep(100 * time.Millisecond)
	p.listen()
	rest := first
	if rest.Exit, err = p.c.Attach(t.Context(), id, first.last, rest.take); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := 1; i <= 40; i++ {
		fmt.Fprintln(&want, i)
	}
	p.want(rest, 0, want.String())
}

// A sandbox whose container was not removed, and for which no server listens ever again, ends itself.
func TestAbandoned(t *testing.T) {
	p := newPair(t)
	p.want(p.run(&sandboxv1.RunRequest{Argv: []string{"true"}}), 0, "")
	p.ln.Close()
	select {
	case err := <-p.done:
		t.Fatalf("ended while a server may come back: %v", err)
	case <-time.After(3 * dialMost):
	}
	if err := os.RemoveAll(p.lo.Dir); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.done:
		if !errors.Is(err, errAbandoned) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("goes on")
	}
}

// A connection that breaks under a stream is not noticed by its reader.
func TestConnectionBreaks(t *testing.T) {
	p := newPair(t)
	breaks := 0
	var r result
	var err error
	r.Exit, err = p.c.Run(t.Context(), &sandboxv1.RunRequest{ExecId: p.id(), Shell: "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done"}, func(e *sandboxv1.Event) error {
		if e.GetN()%2 == 0 && e.GetN() < 6 {
			breaks++
			conn, err := p.ln.Conn(t.Context())
			if err != nil {
				return err
			}
			conn.Close()
		}
		return r.take(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	p.want(r, 0, "1\n2\n3\n4\n5\n6\n")
	if breaks != 2 {
		t.Errorf("the connection broke %d times", breaks)
	}
}

func TestFilesOverLink(t *testing.T) {
	p := newPair(t)
	name := p.data + "/workspace/big"
	content := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	info, err := p.c.WriteFile(t.Context(), name, false, bytes.NewReader(content))
	if err != nil || info.GetBytes() != int64(len(content)) {
		t.Fatalf("%v, %v", info, err)
	}
	var got bytes.Buffer
	if n, err := p.c.ReadFile(t.Context(), name, 0, 0, &got); err != nil || n != int64(len(content)) || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("%d bytes, %v", n, err)
	}
	got.Reset()
	if _, err := p.c.ReadFile(t.Context(), name, 10, 8, &got); err != nil || got.String() != "abcdef01" {
		t.Errorf("%q, %v", &got, err)
	}
	if _, err := p.c.WriteFile(t.Context(), name, false, failing{}); err == nil || errors.Is(err, sandbox.SandboxLost) {
		t.Errorf("a reader that fails: %v", err)
	}
	if info, err := p.c.WriteFile(t.Context(), p.data+"/empty", true, strings.NewReader("")); err != nil || info.GetBytes() != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := p.c.MakeDir(t.Context(), p.data+"/d/e"); err != nil {
		t.Error(err)
	}
	if _, err := p.c.Move(t.Context(), p.data+"/empty", p.data+"/d/e/moved"); err != nil {
		t.Error(err)
	}
	list, err := p.c.ListDir(t.Context(), p.data, 3, 100)
	if err != nil || len(list.GetItems()) != 5 || list.GetTruncated() {
		t.Errorf("%v, %v", list, err)
	}
	if info, err := p.c.Stat(t.Context(), name); err != nil || info.GetBytes() != int64(len(content)) {
		t.Errorf("after a write that failed: %v, %v", info, err)
	}
	if err := os.Symlink("/etc", p.data+"/etc"); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		err  error
		want sandbox.Kind
	}{
		"absent":    {second(p.c.ReadFile(t.Context(), p.data+"/absent", 0, 0, &got)), sandbox.NotFound},
		"outside":   {second(p.c.ReadFile(t.Context(), "/etc/passwd", 0, 0, &got)), sandbox.Forbidden},
		"link":      {second(p.c.ReadFile(t.Context(), p.data+"/etc/passwd", 0, 0, &got)), sandbox.Forbidden},
		"folder":    {second(p.c.ReadFile(t.Context(), p.data, 0, 0, &got)), sandbox.Conflict},
		"negative":  {second(p.c.ReadFile(t.Context(), name, -1, 0, &got)), sandbox.Invalid},
		"read-only": {second(p.c.WriteFile(t.Context(), p.o.CodeAPIDir+"/x", false, strings.NewReader("x"))), sandbox.Forbidden},
		"exists":    {second(p.c.Move(t.Context(), name, p.data+"/d")), sandbox.Conflict},
		"not empty": {p.c.Remove(t.Context(), p.data+"/d", false), sandbox.Conflict},
		"remove":    {p.c.Remove(t.Context(), p.data+"/absent", false), sandbox.NotFound},
		"list file": {second(p.c.ListDir(t.Context(), name, 1, 1)), sandbox.Conflict},
	} {
		if sandbox.KindOf(c.err) != c.want {
			t.Errorf("%s: %v, want %s", what, c.err, c.want)
		}
	}
	if err := p.c.Remove(t.Context(), p.data+"/d", true); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the upload broke off") }

func TestBridge(t *testing.T) {
	dir := t.TempDir()
	addrs := make(chan string, 1)
	b := &bridge{addr: "127.0.0.1:0", socket: filepath.Join(dir, "bridge.sock"), log: slog.New(slog.DiscardHandler), bound: func(a net.Addr) { addrs <- a.String() }}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.run(ctx) })
	defer wg.Wait()
	defer cancel()
	addr := <-addrs

	// No server is there: a plain answer, after a while.
	if got := ask(t, addr, "x"); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.HasSuffix(got, `answer"}}`) {
		t.Errorf("without a bridge: %q", got)
	}
	ln, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close() // ends the other side too
				buf := make([]byte, 100)
				n, _ := c.Read(buf)
				_, _ = c.Write(append([]byte("answer to "), buf[:n]...))
			})
		}
	})
	var clients sync.WaitGroup
	for i := range 100 {
		clients.Go(func() {
			q := fmt.Sprint("question ", i)
			if got := ask(t, addr, q); got != "answer to "+q {
				t.Errorf("%q", got)
			}
		})
	}
	clients.Wait()
	idle, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close() // its end must not be waited for
	_ = ln.Close()
}

func TestBridgeAddressNotThere(t *testing.T) {
	b := &bridge{addr: "192.0.2.1:0", optional: true, socket: "/no/such/socket", log: slog.New(slog.DiscardHandler)}
	b.run(t.Context()) // gives up
	b.optional = false
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.run(ctx)
	if ctx.Err() == nil {
		t.Error("gave up")
	}
}

func ask(t *testing.T, addr, q string) string {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write([]byte(q))
	var b bytes.Buffer
	_, _ = b.ReadFrom(c)
	return b.String()
}

// BenchmarkExecTrue is an exec from the server's call to its result, over a real link.
func BenchmarkExecTrue(b *testing.B) {
	p := newPair(b)
	p.run(&sandboxv1.RunRequest{Argv: []string{"/bin/true"}})
	for b.Loop() {
		p.run(&sandboxv1.RunRequest{Argv: []string{"/bin/true"}})
	}
}

// BenchmarkPython is a Python program, likewise.
func BenchmarkPython(b *testing.B) {
	p := newPair(b)
	for b.Loop() {
		p.run(&sandboxv1.RunRequest{Code: &sandboxv1.Code{Language: "python", Text: "print('hello')"}})
	}
}
