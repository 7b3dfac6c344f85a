package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

// leaveTerminal is the end of what a terminal is sent.
const leaveTerminal = "\x1b[?1000;1002;1003;1004;1005;1006;1015;2004l\x1b[?1047l\x1b[?25h\x1b[?7h\x1b[?1l\x1b>\x1b(B\x1b[0m"

// terminalServer plays the API: its terminal breaks off once, and ends when it was told "exit".
type terminalServer struct {
	mu    sync.Mutex
	after []string // of each connection
	asked string   // body of the exec
	sizes []string
	typed string
}

func (s *terminalServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer k" {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthorized","detail":"no"}`)
		return
	}
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked = string(body)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"exec_id":"e1","status":"running"}`)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow() //nolint:errcheck // a test
	s.mu.Lock()
	s.after = append(s.after, r.URL.Query().Get("after"))
	first := len(s.after) == 1
	s.mu.Unlock()
	say := func(typ websocket.MessageType, text string) { _ = conn.Write(r.Context(), typ, []byte(text)) }
	if first {
		say(websocket.MessageText, `{"next":4}`)
		say(websocket.MessageBinary, "\x1b[31mone ")
		return
	}
	say(websocket.MessageText, `{"next":5}`)
	say(websocket.MessageBinary, "two ")
	for {
		typ, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		s.mu.Lock()
		if typ == websocket.MessageText {
			s.sizes = append(s.sizes, string(data))
		} else {
			s.typed += string(data)
		}
		done := strings.Contains(s.typed, "exit\r")
		s.mu.Unlock()
		if done {
			say(websocket.MessageText, `{"exit":{"exec_id":"e1","status":"exited","exit_code":5,"duration_ms":3}}`)
			_ = conn.Close(websocket.StatusNormalClosure, "")
			return
		}
	}
}

func (s *terminalServer) has(what func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return what()
}

// screen gathers what a terminal shows.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.b.Write(p) }
func (s *screen) String() string              { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// TestExecTerminal: input and output pass unchanged. A lost connection resumes where it broke. The terminal
// is left as it was found.
func TestExecTerminal(t *testing.T) {
	api := &terminalServer{}
	srv := httptest.NewServer(api)
	defer srv.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	master, slave := openPTY(t)
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 100, Row: 30}); err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	var shown screen
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(&shown, master) })
	ended := make(chan error, 1)
	go func() {
		cmd := NewRoot()
		cmd.SetArgs([]string{"exec", "-t", "demo", "--server", srv.URL, "--api-key", "k", "--", "bash"})
		cmd.SetIn(slave)
		cmd.SetOut(slave)
		cmd.SetErr(slave)
		ended <- cmd.ExecuteContext(context.Background())
	}()
	waitFor(t, "joined again", func() bool { return strings.Contains(shown.String(), "\x1b[31mone two ") })
	if _, err := master.WriteString("a\x03\x1b[A"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "typed", func() bool { return api.has(func() bool { return api.typed == "a\x03\x1b[A" }) })
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 120, Row: 40}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil { // the terminal is not the controlling one of a test
		t.Fatal(err)
	}
	waitFor(t, "resized", func() bool {
		return api.has(func() bool {
			return len(api.sizes) > 1 && api.sizes[len(api.sizes)-1] == `{"resize":{"cols":120,"rows":40}}`
		})
	})
	if _, err := master.WriteString("exit\r"); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	var code exit.Code
	if !errors.As(err, &code) || code != 5 {
		t.Errorf("ended with %v", err)
	}
	now, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *now != *before {
		t.Errorf("the terminal is left as %+v, was %+v: %v", now, before, err)
	}
	slave.Close()
	wg.Wait()
	if !strings.HasSuffix(shown.String(), leaveTerminal) {
		t.Errorf("shown %q", shown.String())
	}
	if want := []string{"0", "4"}; strings.Join(api.after, " ") != strings.Join(want, " ") {
		t.Errorf("joined after %q", api.after)
	}
	if !strings.Contains(api.asked, `"pty":{"cols":100,"rows":30}`) || !strings.Contains(api.asked, `"background":true`) || !strings.Contains(api.asked, `"timeout_s":3600`) {
		t.Errorf("asked for %s", api.asked)
	}
}

func TestExecTerminalRefusals(t *testing.T) {
	srv := httptest.NewServer(&terminalServer{})
	defer srv.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, args := range [][]string{
		{"exec", "-t", "demo"}, {"exec", "demo", "--join", "e1"}, {"exec", "-t", "demo", "--join", "e1", "--", "bash"}, // what to run
		{"exec", "-t", "demo", "--", "bash"}, // no terminal
	} {
		if code, _, errs := run(t, "", append(args, "--server", srv.URL)...); code != 1 || errs == "" {
			t.Errorf("%q: %d %q", args, code, errs)
		}
	}
	master, slave := openPTY(t)
	go func() { _, _ = io.Copy(io.Discard, master) }()
	var errs bytes.Buffer
	if code := skerry(slave, slave, &errs, "exec", "-t", "demo", "--join", "e1", "--server", srv.URL, "--api-key", "wrong"); code != 1 || !strings.Contains(errs.String(), "unauthorized") {
		t.Errorf("a wrong key: %d %q", code, errs.String())
	}
}

// TestExecOutputForEyes: without -t a terminal gets the text of hostile output, a pipe all of it.
func TestExecOutputForEyes(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 2\nevent: stdout\ndata: {\"data\":\"a\\u001b[31mred\\u001b]0;title\\u0007 b\\n\"}\n\n"+
			"id: 3\nevent: exit\ndata: {\"exec_id\":\"e1\",\"status\":\"exited\",\"exit_code\":0}\n\n")
	}))
	defer srv.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if _, out, _ := run(t, "", "exec", "demo", "--server", srv.URL, "--", "x"); out != "a\x1b[31mred\x1b]0;title\x07 b\n" {
		t.Errorf("pipe: %q", out)
	}
	master, slave := openPTY(t)
	var shown screen
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(&shown, master) })
	if code := skerry(slave, slave, slave, "exec", "demo", "--server", srv.URL, "--", "x"); code != 0 {
		t.Error(code)
	}
	slave.Close()
	wg.Wait()
	if shown.String() != "ared b\r\n" {
		t.Errorf("terminal: %q", shown.String())
	}
}
