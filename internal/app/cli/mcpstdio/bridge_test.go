package mcpstdio

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// endpoint is an MCP endpoint that the test plays.
type endpoint struct {
	mu       sync.Mutex
	sessions int
	lost     bool // sessions that began before are unknown
	seen     []string
	ended    []string
	began    chan struct{} // closed when a request that hangs is there
	hanging  chan struct{} // closed when it was taken back
}

func (e *endpoint) session() string { return fmt.Sprint("session-", e.sessions) }

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(text, &m)
	e.mu.Lock()
	e.seen = append(e.seen, strings.Join([]string{r.Method, m.Method, r.Header.Get(sessionHeader), r.Header.Get(versionHeader), r.Header.Get(methodHeader), r.Header.Get(nameHeader), r.Header.Get("Mcp-Param-Region")}, "|"))
	known := r.Header.Get(sessionHeader) == "" || r.Header.Get(sessionHeader) == e.session() && !e.lost
	e.mu.Unlock()
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\n\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", m.ID, result)
	}
	switch {
	case !known:
		http.Error(w, "session not found", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		e.mu.Lock()
		e.ended = append(e.ended, r.Header.Get(sessionHeader))
		e.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/said\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case m.Method == "initialize":
		e.mu.Lock()
		e.sessions, e.lost = e.sessions+1, false
		w.Header().Set(sessionHeader, e.session())
		e.mu.Unlock()
		answer(`{"protocolVersion":"2025-11-25"}`)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "hang":
		close(e.began)
		<-r.Context().Done()
		close(e.hanging)
	case m.Method == "refused":
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"code":"forbidden","detail":"you may not"}`)
	case m.Method == "cut":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": \n\n")
	case m.Method == "tools/list":
		answer(`{"tools":[{"name":"t","inputSchema":{"properties":{"where":{"type":"string","x-mcp-header":"Region"}}}}]}`)
	default: // with a notification before it
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\ndata: \"result\":{}}\n\n", m.ID)
	}
}

// talk is a client on the other side of a bridge.
type talk struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string
	ended chan error
	said  chan string
}

func begin(t *testing.T, url string) *talk {
	in, write := io.Pipe()
	read, out := io.Pipe()
	c := &talk{t: t, in: write, lines: make(chan string, 100), ended: make(chan error, 1), said: make(chan string, 100)}
	go func() {
		for s := bufio.NewScanner(read); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	transport := &http.Transport{}
	b := New(Options{Endpoint: url, Header: http.Header{"Authorization": {"Bearer k"}}, In: in, Out: out, HTTP: &http.Client{Transport: transport}, Problem: func(text string) { c.said <- text }})
	go func() {
		c.ended <- b.Run(context.Background())
		out.Close()
		transport.CloseIdleConnections()
	}()
	return c
}

func (c *talk) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, text+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// want returns the next line, which has this text. Lines of the stream of notifications come at any time.
func (c *talk) want(text string) string {
	c.t.Helper()
	for {
		select {
		case line := <-c.lines:
			if strings.Contains(line, text) {
				return line
			}
			if !strings.Contains(line, `"method":"notifications/`) {
				c.t.Fatalf("the line is %s, want %s", line, text)
			}
		case <-time.After(20 * time.Second):
			c.t.Fatalf("no line with %s", text)
		}
	}
}

func (c *talk) end() error {
	c.in.Close()
	return <-c.ended
}

func TestSession(t *testing.T) {
	t.Parallel()
	e := &endpoint{began: make(chan struct{}), hanging: make(chan struct{})}
	server := httptest.NewServer(e)
	defer server.Close()
	c := begin(t, server.URL)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	if line := c.want(`"protocolVersion":"2025-11-25"`); line != `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}` {
		t.Errorf("not on one line: %s", line)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.want("notifications/said")
	c.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t"}}`)
	c.want("notifications/progress")
	c.want(`"id":"a","result":{}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"refused"}`)
	c.want(`forbidden: you may not`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"cut"}`)
	c.want(`"code":-32603`)
	c.send(`no JSON`)
	c.want(`"code":-32700`)
	c.send(`{"jsonrpc":"2.0","id":4,"method":"hang"}`)
	<-e.began // one that is taken back before it is sent reaches no server
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
	<-e.hanging

	// The server starts anew, and knows no session: a request goes on in another one.
	e.mu.Lock()
	e.lost = true
	e.mu.Unlock()
	c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
	c.want("notifications/tools/list_changed")
	c.want(`"id":5`)
	if err := c.end(); err != nil {
		t.Error(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := strings.Join(e.seen, "\n")
	for _, want := range []string{"POST|tools/call|session-1|2025-11-25||", "POST|notifications/cancelled|session-1|", "POST|tools/list|session-2|2025-11-25|", "POST|notifications/initialized|session-2|"} {
		if !strings.Contains(seen, want) {
			t.Errorf("the server saw no %s:\n%s", want, seen)
		}
	}
	if len(e.ended) != 1 || e.ended[0] != "session-2" {
		t.Errorf("ended %v", e.ended)
	}
}

// TestWithoutSession: the headers of a request repeat what its parameters say; taking it back ends it.
func TestWithoutSession(t *testing.T) {
	t.Parallel()
	e := &endpoint{began: make(chan struct{}), hanging: make(chan struct{})}
	server := httptest.NewServer(e)
	defer server.Close()
	c := begin(t, server.URL)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`)
	c.want(`"id":1`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{"where":"Köln"},` + meta + `}}`)
	c.want(`"id":2`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"hang","params":{` + meta + `}}`)
	<-e.began // one that is taken back before it is sent reaches no server
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	<-e.hanging
	if err := c.end(); err != nil {
		t.Error(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := strings.Join(e.seen, "\n")
	if !strings.Contains(seen, "POST|tools/call||2026-07-28|tools/call|t|=?base64?S8O2bG4=?=") || strings.Contains(seen, "cancelled") || len(e.ended) != 0 {
		t.Errorf("the server saw:\n%s", seen)
	}
}

// TestServerAway: a person hears of it once, and each request fails.
func TestServerAway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c := begin(t, server.URL)
	for i := range 3 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i))
		c.want(`"code":-32603`)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if len(c.said) != 1 {
		t.Errorf("a person heard %d times of it", len(c.said))
	}
}

func TestLongMessage(t *testing.T) {
	t.Parallel()
	c := begin(t, "http://127.0.0.1:1")
	go func() {
		_, _ = io.WriteString(c.in, strings.Repeat("x", maxMessage+1))
		c.in.Close()
	}()
	if err := <-c.ended; err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
	go func() { _ = c.in.CloseWithError(io.EOF) }()
}
