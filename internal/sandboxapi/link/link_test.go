package link

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	t    *testing.T
	opts ListenOptions
	sock string
	logs *lockedBuffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	// Longer than a socket address, as real data folders can be.
	base := filepath.Join(t.TempDir(), strings.Repeat("long-name-", 12))
	dir := filepath.Join(base, "sock")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	logs := &lockedBuffer{}
	return &fixture{
		t:    t,
		opts: ListenOptions{Dir: dir, SecretFile: filepath.Join(base, "secret"), Log: slog.New(slog.NewTextHandler(logs, nil))},
		sock: filepath.Join(dir, "control.sock"),
		logs: logs,
	}
}

func (f *fixture) listen() *Listener {
	f.t.Helper()
	l, err := Listen(f.opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(l.Close)
	return l
}

// dial connects and serves name as the answer to every request, until the test ends.
func (f *fixture) dial(secret, name string) (newSecret string) {
	f.t.Helper()
	conn, newSecret, err := Dial(f.t.Context(), f.sock, secret)
	if err != nil {
		f.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- Serve(f.t.Context(), conn, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	}()
	f.t.Cleanup(func() { <-done }) // the test's context has ended by then
	return newSecret
}

func (f *fixture) live(l *Listener) *Conn {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	c, err := l.Conn(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func ask(c *Conn) (string, error) {
	req, err := http.NewRequest(http.MethodPost, "http://sandbox/x", strings.NewReader("hi"))
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func wantAnswer(t *testing.T, c *Conn, want string) {
	t.Helper()
	if got, err := ask(c); err != nil || got != want {
		t.Fatalf("answer %q, %v; want %q", got, err, want)
	}
}

func eventually(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s: did not happen", what)
	}
}

func TestFirstConnectionGetsTheSecretOnce(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	if !isClosed(l.Lost()) || l.HandedOut() {
		t.Fatal("a new listener must have neither a connection nor handed out its secret")
	}
	secret := f.dial("", "first")
	if !isSecret(secret) {
		t.Fatalf("secret %q", secret)
	}
	wantAnswer(t, f.live(l), "first")
	if _, _, err := Dial(t.Context(), f.sock, ""); !errors.Is(err, ErrRefused) {
		t.Fatalf("second dial without a secret: %v", err)
	}
	var c secretContent
	data, err := os.ReadFile(f.opts.SecretFile)
	if err != nil || json.Unmarshal(data, &c) != nil || !c.HandedOut || c.Secret != secret {
		t.Fatalf("secret file: %s, %v", data, err)
	}
	if info, err := os.Stat(f.opts.SecretFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode of the secret file: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(f.sock); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode of the socket: %v, %v", info.Mode(), err)
	}
}

func TestHostileConnectionDisplacesNobody(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	f.dial("", "honest")
	live := f.live(l)
	for _, secret := range []string{"", strings.Repeat("0", 64), "not hex", strings.Repeat("a", 3000)} {
		if _, _, err := Dial(t.Context(), f.sock, secret); !errors.Is(err, ErrRefused) {
			t.Errorf("dial with secret %.10q: %v", secret, err)
		}
	}
	for _, line := range []string{"\n", "{}\n", "[1]\n", "null\n", "{\"protocol\":1}{}\n", strings.Repeat("x", 2*maxLine), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		raw, err := dialUnix(t.Context(), f.sock)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write([]byte(line))
		_ = raw.SetReadDeadline(time.Now().Add(handshakeTimeout))
		got, _ := io.ReadAll(raw)
		if bytes.Contains(got, []byte(`"ok":true`)) {
			t.Errorf("line %.20q was accepted: %s", line, got)
		}
		_ = raw.Close()
	}
	if isClosed(live.Done()) || f.live(l) != live {
		t.Fatal("the live connection was displaced")
	}
	wantAnswer(t, live, "honest")
}

func TestNewestAuthenticatedConnectionWins(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	secret := f.dial("", "old")
	old := f.live(l)
	lost := l.Lost()
	if again := f.dial(secret, "new"); again != secret {
		t.Fatal("the secret changed")
	}
	eventually(t, "the old connection closes", old.Done())
	eventually(t, "Lost", lost)
	wantAnswer(t, f.live(l), "new")
	if _, err := ask(old); err == nil {
		t.Fatal("the old connection still answers")
	}
}

// TestConnectionsWithTheSecretAreSlowed, too: a sandboxd that is not ours knows it, and each connection costs the
// server more than the sandbox.
func TestConnectionsWithTheSecretAreSlowed(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	secret := ""
	for range 20 * attemptsFree {
		conn, s, err := Dial(t.Context(), f.sock, secret)
		if err != nil {
			t.Fatal(err)
		}
		secret = s
		conn.Close()
		if l.tooManyAttempts() {
			return
		}
	}
	t.Error("any number of connections is taken in a second")
}

func TestServerRestart(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	secret := f.dial("", "before")
	live := f.live(l)
	l.Close()
	l.Close()
	eventually(t, "closing ends the connection", live.Done())
	if _, err := l.Conn(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("Conn of a closed listener: %v", err)
	}
	if _, _, err := Dial(t.Context(), f.sock, secret); err == nil {
		t.Fatal("dial of a closed listener succeeded")
	}
	l = f.listen()
	if _, _, err := Dial(t.Context(), f.sock, ""); !errors.Is(err, ErrRefused) {
		t.Fatalf("the secret was handed out again after a restart: %v", err)
	}
	f.dial(secret, "after")
	wantAnswer(t, f.live(l), "after")
}

func TestProtocolMismatch(t *testing.T) {
	f := newFixture(t)
	f.listen()
	raw, err := dialUnix(t.Context(), f.sock)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := writeLine(raw, hello{Protocol: Protocol + 1, Version: "v9"}); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(raw).ReadBytes('\n')
	if err != nil || !bytes.Contains(line, []byte("speaks protocol 2")) {
		t.Fatalf("answer %s, %v", line, err)
	}
	for range 100 {
		if f.logs.contains("speaks protocol 2") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the mismatch is not in the log")
}

// Half-open connections neither pile up nor keep sandboxd out.
func TestHalfOpenConnections(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	var idle []net.Conn
	for range 4 * maxHalfOpen {
		c, err := dialUnix(t.Context(), f.sock)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	f.dial("", "through")
	wantAnswer(t, f.live(l), "through")
	l.mu.Lock()
	n := len(l.halfOpen)
	l.mu.Unlock()
	if n > maxHalfOpen {
		t.Fatalf("%d half-open connections", n)
	}
	_ = idle[0].SetReadDeadline(time.Now().Add(time.Second))
	if _, err := idle[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the oldest half-open connection: %v", err)
	}
}

// TestPeerThatStopsIsNoticed: by its callers. Without calls it is not asked.
func TestPeerThatStopsIsNoticed(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	raw, _, err := Dial(t.Context(), f.sock, "")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() // never writes again
	live := f.live(l)
	const quiet = 3 * pingAfter
	_ = raw.SetReadDeadline(time.Now().Add(quiet))
	if _, err := io.ReadFull(raw, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	for frames := http2.NewFramer(io.Discard, raw); ; {
		frame, err := frames.ReadFrame()
		if err != nil {
			break
		}
		if frame.Header().Type == http2.FramePing {
			t.Error("one that is idle is asked whether it is there")
		}
	}
	if isClosed(live.Done()) {
		t.Fatal("one that is idle is given up")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := live.Do(req)
	if err == nil {
		_ = res.Body.Close()
		t.Fatal("the dead peer answers")
	}
	if !isClosed(live.Done()) {
		t.Errorf("the call ended with %v, and the connection goes on", err)
	}
}

func TestPeerThatClosesIsNoticedAtOnce(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	raw, _, err := Dial(t.Context(), f.sock, "")
	if err != nil {
		t.Fatal(err)
	}
	live := f.live(l)
	_ = raw.Close()
	eventually(t, "Done", live.Done())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Conn(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Conn without a connection: %v", err)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	f := newFixture(t)
	l := f.listen()
	f.dial("", "x")
	live := f.live(l)
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			if got, err := ask(live); err != nil || got != "x" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
}

func TestBadOptions(t *testing.T) {
	f := newFixture(t)
	inside := f.opts
	inside.SecretFile = filepath.Join(f.opts.Dir, "secret")
	noDir := f.opts
	noDir.Dir = filepath.Join(f.opts.Dir, "absent")
	for name, o := range map[string]ListenOptions{"empty": {}, "secret in the mounted folder": inside, "no folder": noDir} {
		if l, err := Listen(o); err == nil {
			l.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	if err := os.WriteFile(f.opts.SecretFile, []byte(`{"secret":"short"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(f.opts); err == nil {
		l.Close()
		t.Error("a secret file without a secret: accepted")
	}
}

// A server that answers nonsense, or nothing, does not hold sandboxd for ever.
func TestDialBadServer(t *testing.T) {
	for _, reply := range []string{"", "{}\n", `{"ok":true,"secret":"x"}` + "\n", strings.Repeat("x", 2*maxLine)} {
		sock := filepath.Join(t.TempDir(), "s")
		ln, err := net.Listen("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := ln.Accept(); err == nil {
				_, _ = c.Write([]byte(reply))
				time.Sleep(50 * time.Millisecond)
				_ = c.Close()
			}
		}()
		if c, _, err := Dial(t.Context(), sock, ""); err == nil {
			_ = c.Close()
			t.Errorf("reply %.20q: accepted", reply)
		}
		_ = ln.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	sock := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", sock) // no process accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, _, err := Dial(ctx, sock, ""); err == nil {
		t.Error("dial of a silent server succeeded")
	}
}

func FuzzHandshake(f *testing.F) {
	ok := strings.Repeat("0a", secretBytes)
	for _, s := range []string{`{"protocol":1,"version":"v","secret":""}`, `{"protocol":1,"secret":"` + ok + `"}`, `{"ok":true,"secret":"` + ok + `"}`,
		`{"ok":false,"error":"x"}`, `{`, `null`, `{} {}`, fmt.Sprintf(`{"version":%q}`, strings.Repeat("v", 200))} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if h, err := parseHello(line); err == nil && (len(h.Version) > 128 || h.Secret != "" && !isSecret(h.Secret) || len(line) > maxLine) {
			t.Errorf("hello %+v", h)
		}
		if a, err := parseAnswer(line); err == nil && a.OK && !isSecret(a.Secret) {
			t.Errorf("answer %+v", a)
		}
	})
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

func (l *lockedBuffer) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}
