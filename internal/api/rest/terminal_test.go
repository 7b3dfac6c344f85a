package rest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/execs"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// terminalHost is a server over a world whose exec "tty" has a terminal.
type terminalHost struct {
	*testing.T
	w   *world
	url string
}

func newTerminalHost(t *testing.T) *terminalHost {
	t.Helper()
	w := newWorld(t)
	w.typed, w.resized = make(chan []byte, 1), make(chan sandbox.TerminalSize, 1)
	o, _ := w.options(t)
	o.Keys, o.Anonymous, o.AllowedOrigins = w, nil, []string{"https://page.example"}
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.recheck, s.heartbeat = 20*time.Millisecond, 20*time.Millisecond
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		srv.Close()
	})
	return &terminalHost{t, w, srv.URL}
}

func (h *terminalHost) dial(query string, header http.Header) (*websocket.Conn, int) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), 20*time.Second)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, h.url+"/api/threads/t1/pty?"+query, &websocket.DialOptions{HTTPHeader: header, Host: header.Get("Host")})
	if res == nil {
		h.Fatal(err)
	}
	if err != nil {
		return nil, res.StatusCode
	}
	h.Cleanup(func() { _ = conn.CloseNow() })
	return conn, res.StatusCode
}

func key(name string) http.Header { return http.Header{"Authorization": {"Bearer " + name}} }

// frames reads to the end: text frames as they are, bytes with a b before them. last is why it ended.
func (h *terminalHost) frames(conn *websocket.Conn) (all []string, last error) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), 20*time.Second)
	defer cancel()
	for {
		typ, data, err := conn.Read(ctx)
		if err != nil {
			return all, err
		}
		prefix := ""
		if typ == websocket.MessageBinary {
			prefix = "b "
		}
		all = append(all, prefix+string(data))
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	h.w.events = []sandbox.Event{
		{N: 1, Type: sandbox.EventStarted},
		{N: 2, Type: sandbox.EventStdout, Data: []byte("a\xff\x1b[31m")},
		{N: 3, Type: sandbox.EventStdout, Data: []byte("b")},
		{N: 7, Type: sandbox.EventStdout, Data: []byte("c")}, // some were let go of
		{N: 8, Type: sandbox.EventExit, Result: &h.w.result},
	}
	h.w.result.ExecID = "tty"
	end := `{"exit":{"exec_id":"tty","status":"exited","exit_code":0,"duration_ms":`
	for query, want := range map[string][]string{
		"exec=tty":         {`{"next":2}`, "b a\xff\x1b[31m", "b b", `{"next":7}`, "b c", end},
		"exec=tty&after=2": {`{"next":3}`, "b b", `{"next":7}`, "b c", end},
		"exec=tty&after=7": {end},
	} {
		conn, _ := h.dial(query, key("ann"))
		if conn == nil {
			t.Fatalf("%s: refused", query)
		}
		got, last := h.frames(conn)
		if n := len(got); n > 0 && strings.HasPrefix(got[n-1], end) {
			got[n-1] = end
		}
		if !reflect.DeepEqual(got, want) || websocket.CloseStatus(last) != websocket.StatusNormalClosure {
			t.Errorf("%s: %q, %v", query, got, last)
		}
	}
}

// runs makes the exec show something and go on until the client is gone or stop is closed.
func (h *terminalHost) runs() (stop chan struct{}, left chan struct{}) {
	stop, left = make(chan struct{}), make(chan struct{}, 8)
	h.w.follow = func(ctx context.Context, _ uint64, emit func(sandbox.Event) error) error {
		defer func() { left <- struct{}{} }()
		if err := emit(sandbox.Event{N: 2, Type: sandbox.EventStdout, Data: []byte("$ ")}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			return emit(sandbox.Event{N: 3, Type: sandbox.EventExit, Result: &h.w.result})
		}
	}
	return stop, left
}

// TestTerminalsAtOnce: a terminal has a bounded number of clients, and a place is free again when one leaves.
func TestTerminalsAtOnce(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	h.w.follow = func(ctx context.Context, _ uint64, _ func(sandbox.Event) error) error {
		<-ctx.Done()
		return ctx.Err()
	}
	const most = 32
	var first *websocket.Conn
	for i := range most {
		conn, status := h.dial("exec=tty", key("ann"))
		if conn == nil {
			t.Fatalf("client %d: %d", i, status)
		}
		if first == nil {
			first = conn
		}
	}
	if conn, status := h.dial("exec=tty", key("ann")); conn != nil || status != http.StatusTooManyRequests {
		t.Errorf("one more: %d", status)
	}
	if err := first.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil { // the server hears of it a moment later
		if conn, status := h.dial("exec=tty", key("ann")); conn != nil {
			return
		} else if status != http.StatusTooManyRequests {
			t.Fatalf("after one left: %d", status)
		}
	}
}

func TestTerminalInput(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	stop, left := h.runs()
	conn, _ := h.dial("exec=tty", key("ann"))
	send := func(typ websocket.MessageType, text string) {
		t.Helper()
		if err := conn.Write(t.Context(), typ, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	send(websocket.MessageBinary, "ls\r\x03")
	if got := <-h.w.typed; string(got) != "ls\r\x03" {
		t.Errorf("typed %q", got)
	}
	send(websocket.MessageText, `{"resize":{"cols":132,"rows":50}}`)
	if got := <-h.w.resized; got != (sandbox.TerminalSize{Cols: 132, Rows: 50}) {
		t.Errorf("resized to %v", got)
	}
	send(websocket.MessageBinary, strings.Repeat("x", execs.MaxFrame))
	if got := <-h.w.typed; len(got) != execs.MaxFrame {
		t.Errorf("typed %d bytes", len(got))
	}
	close(stop)
	if got, last := h.frames(conn); len(got) != 3 || websocket.CloseStatus(last) != websocket.StatusNormalClosure {
		t.Errorf("%q, %v", got, last)
	}
	<-left
}

// TestTerminalRules: a frame that breaks one ends the connection with a reason, never the exec.
func TestTerminalRules(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	_, left := h.runs()
	for name, c := range map[string]struct {
		typ  websocket.MessageType
		text string
		code websocket.StatusCode
	}{
		"too long":      {websocket.MessageBinary, strings.Repeat("x", execs.MaxFrame+1), websocket.StatusMessageTooBig},
		"no JSON":       {websocket.MessageText, "hello", websocket.StatusPolicyViolation},
		"another field": {websocket.MessageText, `{"resize":{"cols":1,"rows":1},"kill":true}`, websocket.StatusPolicyViolation},
		"no size":       {websocket.MessageText, `{}`, websocket.StatusPolicyViolation},
		"too wide":      {websocket.MessageText, `{"resize":{"cols":1001,"rows":1}}`, websocket.StatusPolicyViolation},
		"negative":      {websocket.MessageText, `{"resize":{"cols":-1,"rows":1}}`, websocket.StatusPolicyViolation},
	} {
		conn, _ := h.dial("exec=tty", key("ann"))
		_ = conn.Write(t.Context(), c.typ, []byte(c.text))
		if _, last := h.frames(conn); websocket.CloseStatus(last) != c.code {
			t.Errorf("%s: %v", name, last)
		}
		<-left
	}
}

// TestTerminalRefusals: as every route, it checks who calls, from where, and what for.
func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	h.runs()
	for name, c := range map[string]struct {
		query  string
		header http.Header
		status int
	}{
		"no key":         {"exec=tty", nil, 401},
		"a wrong key":    {"exec=tty", key("nobody"), 401},
		"another page":   {"exec=tty", http.Header{"Authorization": {"Bearer ann"}, "Origin": {"https://evil.example"}}, 403},
		"another host":   {"exec=tty", http.Header{"Authorization": {"Bearer ann"}, "Host": {"evil.example"}}, 403},
		"an own page":    {"exec=tty", http.Header{"Authorization": {"Bearer ann"}, "Origin": {"https://page.example"}}, 101},
		"no exec":        {"", key("ann"), 400},
		"a bad exec":     {"exec=../x", key("ann"), 400},
		"a bad number":   {"exec=tty&after=-1", key("ann"), 400},
		"a great number": {"exec=tty&after=99999999999999999999", key("ann"), 400},
		"no terminal":    {"exec=e1", key("ann"), 409},
	} {
		conn, status := h.dial(c.query, c.header)
		if status != c.status {
			t.Errorf("%s: %d, want %d", name, status, c.status)
		}
		if conn != nil {
			_ = conn.CloseNow()
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/api/threads/t1/pty?exec=tty", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = key("ann")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUpgradeRequired || res.Header.Get("Content-Type") != problem.ContentType || res.Header.Get("Upgrade") != "websocket" {
		t.Errorf("without an upgrade: %s %v", res.Status, res.Header)
	}
}

// TestTerminalRevokedKey: a key that is revoked ends what it opened.
func TestTerminalRevokedKey(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	_, left := h.runs()
	conn, _ := h.dial("exec=tty", key("ann"))
	h.w.mu.Lock()
	h.w.revoked = true
	h.w.mu.Unlock()
	if _, last := h.frames(conn); websocket.CloseStatus(last) != websocket.StatusPolicyViolation {
		t.Errorf("%v", last)
	}
	<-left
}

// TestTerminalClientGone: the follower of a client that left ends, and so does that of a client that reads
// nothing. The exec goes on for others.
func TestTerminalClientGone(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	_, left := h.runs()
	conn, _ := h.dial("exec=tty", key("ann"))
	_ = conn.CloseNow()
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Fatal("the exec is still followed")
	}
}

func TestTerminalSlowReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.idle = 300 * time.Millisecond
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	left := make(chan error, 1)
	w.follow = func(_ context.Context, _ uint64, emit func(sandbox.Event) error) error {
		for n := uint64(2); ; n++ {
			if err := emit(sandbox.Event{N: n, Type: sandbox.EventStdout, Data: make([]byte, 64<<10)}); err != nil {
				left <- err
				return err
			}
		}
	}
	conn, _, err := websocket.Dial(t.Context(), srv.URL+"/api/threads/t1/pty?exec=tty", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // it is gone
	select {
	case err := <-left:
		if !errors.Is(err, exchange.ErrGone) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a reader that takes nothing holds its follower")
	}
}

func TestExecWithTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	send(handler(t, w), "POST", execURL, `{"command":"top","background":true,"pty":{"cols":80,"rows":24}}`)
	if c := w.cmd; c.Terminal == nil || *c.Terminal != (sandbox.TerminalSize{Cols: 80, Rows: 24}) || !c.KeepStdin || !c.Background {
		t.Errorf("%+v", c)
	}
}
