package onserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

func daemons() []attack {
	all := []attack{{
		name: "control-guess", class: "sandboxd played by code", does: "code dials the control socket without a secret, with guessed ones, with garbage, and holds connections half open",
		expect: "no connection; execs of the sandbox go on", try: guessControl, control: knowControl,
	}}
	lies := []struct {
		name, does, expect string
		tell               []teller
		want               string // status of the exec
	}{
		{"daemon-endless", "a hostile sandboxd sends output without end, or a message of 64 MiB", "the exec is lost, the sandbox ended", []teller{tellForEver, tellHuge}, "lost"},
		{"daemon-lies", "a hostile sandboxd counts wrong, invents a status, ends without an exit, or names a file of the host as output", "the exec is lost, the sandbox ended",
			[]teller{tellNumbers, tellStatus, tellNothing, tellPath}, "lost"},
		{"daemon-silent", "a hostile sandboxd takes an exec and never answers", "timeout by the server's own clock, the sandbox ended", []teller{tellSilence}, "timeout"},
	}
	for _, l := range lies {
		all = append(all, attack{
			name: l.name, class: "sandboxd replaced by code", does: l.does, expect: l.expect,
			try: func(t *testing.T, b *bed) {
				for _, tell := range l.tell {
					b.liesTo(t, tell, l.want)
				}
			},
			control: func(t *testing.T, _ *bed) {
				for _, tell := range l.tell {
					believes(t, tell)
				}
			},
		})
	}
	return all
}

const guesses = `import json, os, socket
def hello(line):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    try:
        s.connect("/run/skerry/control.sock")
        s.sendall(line)
        return s.recv(4096)
    except OSError:
        return b""
half = []
for _ in range(40):
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/skerry/control.sock")
    half.append(s)
said = []
for secret in ["", "0" * 64] + [os.urandom(32).hex() for _ in range(40)]:
    said.append(hello(json.dumps({"protocol": 1, "version": "1", "secret": secret}).encode() + b"\n"))
for line in [b"\0" * 5000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"[" * 4000 + b"\n", b'{"protocol":1,"secret":{"a":1}}\n', b"\n"]:
    said.append(hello(line))
print(sum(b'"ok":true' in a for a in said), len(said))
`

func guessControl(t *testing.T, b *bed) {
	b.ok(t, eve, "guess", "true")
	id, _ := b.background(t, eve, "guess", "python3 - <<'E'\n"+guesses+"E")
	var end result
	eventually(t, "the guesses have an end", func() bool {
		b.ok(t, eve, "guess", "true")
		b.ok(t, bob, "neighbour", "true")
		end = result{}
		a := b.do(t, eve, "GET", "/api/threads/guess/execs/"+id, nil)
		return json.Unmarshal(a.body, &end) == nil && end.Status != "" && end.Status != "running"
	})
	if end.Stdout != "0 47\n" {
		t.Errorf("connections that were let in, of all: %q; %+v", end.Stdout, end)
	}
}

// sandbox returns the id of a thread's sandbox.
func (b *bed) sandbox(t *testing.T, thread string) string {
	t.Helper()
	var view struct{ Sandbox struct{ ID string } }
	a := b.do(t, eve, "GET", "/api/threads/"+thread, nil)
	if err := json.Unmarshal(a.body, &view); err != nil || view.Sandbox.ID == "" {
		t.Fatalf("no sandbox: %d %s", a.status, a.body)
	}
	return view.Sandbox.ID
}

// become takes the place of a sandbox's daemon with the secret that only the host has: the real one is stopped.
func (b *bed) become(t *testing.T, thread string, h http.Handler) (stop func()) {
	t.Helper()
	id := b.sandbox(t, thread)
	out, err := exec.Command("docker", "inspect", "-f", "{{.State.Pid}}", id).Output()
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must(t, err)
	raw, err := os.ReadFile(filepath.Join(b.data, "run", id, "secret.json"))
	must(t, err)
	var s struct{ Secret string }
	must(t, json.Unmarshal(raw, &s))
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(context.Background())
	conn, _, err := link.Dial(ctx, filepath.Join(b.data, "run", id, "sock/control.sock"), s.Secret)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = link.Serve(ctx, conn, h) }()
	return func() {
		cancel()
		<-done
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
}

// knowControl: who knows the secret is let in, so the secret is what holds the others off.
func knowControl(t *testing.T, b *bed) {
	b.ok(t, eve, "guess", "true")
	stop := b.become(t, "guess", http.NotFoundHandler())
	stop()
	b.ok(t, eve, "guess", "true") // the real one is back, or a new sandbox
}

// teller is what a hostile sandboxd answers to Run.
type teller func(context.Context, *connect.ServerStream[sandboxv1.Event]) error

type liar struct {
	sandboxv1connect.UnimplementedSandboxServiceHandler
	tell teller
}

func (l *liar) Run(ctx context.Context, _ *connect.Request[sandboxv1.RunRequest], s *connect.ServerStream[sandboxv1.Event]) error {
	return l.tell(ctx, s)
}

func (l *liar) Attach(ctx context.Context, _ *connect.Request[sandboxv1.AttachRequest], s *connect.ServerStream[sandboxv1.Event]) error {
	return l.tell(ctx, s)
}

func (l *liar) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(sandboxv1connect.NewSandboxServiceHandler(l))
	return mux
}

func send(s *connect.ServerStream[sandboxv1.Event], n uint64, e *sandboxv1.Event) error {
	e.N, e.UnixMs = n, time.Now().UnixMilli()
	return s.Send(e)
}

func started() *sandboxv1.Event {
	return &sandboxv1.Event{Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 7}}}
}

func output(n int) *sandboxv1.Event {
	return &sandboxv1.Event{Kind: &sandboxv1.Event_Output{Output: &sandboxv1.Output{Data: make([]byte, n)}}}
}

func exited(x *sandboxv1.Exit) *sandboxv1.Event {
	return &sandboxv1.Event{Kind: &sandboxv1.Event_Exit{Exit: x}}
}

func tellForEver(ctx context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	err := send(s, 1, started())
	for n := uint64(2); err == nil && ctx.Err() == nil; n++ {
		err = send(s, n, output(64<<10))
	}
	return err
}

func tellHuge(_ context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	return errors.Join(send(s, 1, started()), send(s, 2, output(64<<20)))
}

func tellNumbers(_ context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	return errors.Join(send(s, 1, started()), send(s, 99, output(1)), send(s, 100, exited(&sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED})))
}

func tellStatus(_ context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	return errors.Join(send(s, 1, started()), send(s, 2, exited(&sandboxv1.Exit{Status: 77, Code: -1})))
}

func tellNothing(_ context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	return send(s, 1, started())
}

func tellPath(_ context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	x := &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{Total: 10, SpillPath: "/mnt/user-data/../../etc/shadow"}}
	return errors.Join(send(s, 1, started()), send(s, 2, exited(x)))
}

func tellSilence(ctx context.Context, s *connect.ServerStream[sandboxv1.Event]) error {
	err := send(s, 1, started())
	<-ctx.Done()            // the deadline came with the call,
	time.Sleep(time.Second) // and not even then it says a word
	return err
}

// liesTo lets a hostile sandboxd answer an exec. The server stays well, and ends that sandbox.
func (b *bed) liesTo(t *testing.T, tell teller, want string) {
	t.Helper()
	const thread = "liar"
	b.ok(t, eve, thread, "echo kept > /mnt/user-data/workspace/kept")
	before, rss := b.sandbox(t, thread), b.rss(t)
	stop := b.become(t, thread, (&liar{tell: tell}).handler())
	defer stop()
	timeout := 60 // what is said must end it, not the clock
	if want == "timeout" {
		timeout = 1
	}
	r := b.run(t, eve, thread, "exec", map[string]any{"command": "true", "timeout_s": timeout})
	if r.Status != want || len(r.Stdout) > 4<<20 || strings.Contains(r.StdoutPath, "shadow") {
		t.Errorf("the exec ended as %s with %d bytes in %q, want %s", r.Status, len(r.Stdout), r.StdoutPath, want)
	}
	b.endedOnce(t, thread, r.ExecID)
	b.ok(t, bob, "neighbour", "true")
	eventually(t, "the thread has a sandbox that does not lie, and its files", func() bool {
		a, err := b.request(eve, "POST", "/api/threads/"+thread+"/exec", map[string]any{"command": "cat /mnt/user-data/workspace/kept"})
		return err == nil && strings.Contains(string(a.body), `"kept\n"`)
	})
	if after := b.sandbox(t, thread); after == before {
		t.Error("the sandbox that lied is still in use")
	}
	if grown := b.rss(t) - rss; grown > 256<<20 {
		t.Errorf("the server grew by %d bytes", grown)
	}
}

// rss is the memory that the server holds.
func (b *bed) rss(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.cmd.Process.Pid))
	must(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
	must(t, err)
	return pages * int64(os.Getpagesize())
}

// believes lets a hostile sandboxd answer a client that checks nothing: it takes what no client may take.
func believes(t *testing.T, tell teller) {
	t.Helper()
	dir, secrets := t.TempDir(), t.TempDir()
	ln, err := link.Listen(link.ListenOptions{Dir: dir, SecretFile: filepath.Join(secrets, "s"), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, _, err := link.Dial(ctx, filepath.Join(dir, "control.sock"), "")
	must(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = link.Serve(ctx, conn, (&liar{tell: tell}).handler()) }()
	defer func() { cancel(); <-done }()
	live, err := ln.Conn(ctx)
	must(t, err)
	short, stop := context.WithTimeout(ctx, 3*time.Second) // a client without a clock waits for ever
	defer stop()
	s, err := sandboxv1connect.NewSandboxServiceClient(live, "http://sandbox").Run(short, connect.NewRequest(&sandboxv1.RunRequest{ExecId: rand.Text()}))
	must(t, err)
	defer s.Close()
	defer stop()
	var bytes, last uint64
	var exit *sandboxv1.Exit
	for s.Receive() && bytes < 32<<20 {
		bytes, last, exit = bytes+uint64(len(s.Msg().GetOutput().GetData())), s.Msg().GetN(), s.Msg().GetExit()
	}
	silent := errors.Is(short.Err(), context.DeadlineExceeded)
	ended := s.Err() == nil && exit == nil
	if bytes < 32<<20 && last < 99 && exit.GetStatus() != 77 && exit.GetStdout().GetSpillPath() == "" && !ended && !silent {
		t.Errorf("the lie is not believed: %d bytes, event %d, %v, %v", bytes, last, exit, s.Err())
	}
}
