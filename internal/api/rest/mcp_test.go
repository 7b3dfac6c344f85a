package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// mcpHost serves /mcp of a world, for the keys that the world knows.
type mcpHost struct {
	t   *testing.T
	w   *world
	url string
}

func newMCPHost(t *testing.T) *mcpHost {
	t.Helper()
	w := filesWorld(t)
	o, _ := w.options(t)
	o.Keys, o.Anonymous = w, nil
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.recheck = 20 * time.Millisecond
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		srv.Close()
	})
	return &mcpHost{t, w, srv.URL}
}

// talk is a client of /mcp that says exactly what a test wants said.
type talk struct {
	h             *mcpHost
	key, path     string
	session       string // of the era before 2026-07-28; "" in the one without
	legacy        bool
	header        http.Header
	lastHTTP      int
	notifications []string // methods that came with the last answer
}

// begin begins a session of the era before.
func (h *mcpHost) begin(key, path string) *talk {
	h.t.Helper()
	c := &talk{h: h, key: key, path: path, legacy: true}
	res := c.post(h.t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	defer res.Body.Close() //nolint:errcheck // test
	c.session = res.Header.Get("Mcp-Session-Id")
	if c.session == "" {
		h.t.Fatalf("no session: %d", res.StatusCode)
	}
	c.read(res)
	c.note("notifications/initialized", `{}`)
	h.t.Cleanup(func() { c.end() })
	return c
}

func (h *mcpHost) modern(key, path string) *talk { return &talk{h: h, key: key, path: path} }

func (c *talk) request(ctx context.Context, method, body string) *http.Response {
	c.h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.h.url+c.path, strings.NewReader(body))
	if err != nil {
		c.h.t.Fatal(err)
	}
	for k, v := range c.header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	var msg struct {
		Method string
		Params struct{ Name, URI string }
	}
	_ = json.Unmarshal([]byte(body), &msg) // what is no message has no headers
	switch {
	case !c.legacy:
		req.Header.Set("MCP-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", msg.Method)
		if name := msg.Params.Name + msg.Params.URI; name != "" {
			req.Header.Set("Mcp-Name", name)
		}
	case msg.Method != "initialize":
		req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			c.h.t.Fatal(err)
		}
		return nil
	}
	return res
}

func (c *talk) post(ctx context.Context, body string) *http.Response {
	c.h.t.Helper()
	return c.request(ctx, http.MethodPost, body)
}

func (c *talk) note(method, params string) {
	c.h.t.Helper()
	res := c.post(c.h.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
	_ = res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		c.h.t.Errorf("%s: %d", method, res.StatusCode)
	}
}

func (c *talk) end() int {
	res := c.request(context.Background(), http.MethodDelete, "")
	_ = res.Body.Close()
	return res.StatusCode
}

type rpcAnswer struct {
	Method string
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

// read reads messages up to the answer.
func (c *talk) read(res *http.Response) rpcAnswer {
	c.h.t.Helper()
	defer res.Body.Close() //nolint:errcheck // test
	c.lastHTTP, c.notifications = res.StatusCode, nil
	var a rpcAnswer
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		text, _ := io.ReadAll(res.Body)
		_ = json.Unmarshal(text, &a) // an error of HTTP is none of JSON-RPC
		return a
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "" {
			continue
		}
		a = rpcAnswer{}
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			c.h.t.Fatalf("%s: %v", data, err)
		}
		if a.Method == "" {
			return a
		}
		c.notifications = append(c.notifications, a.Method)
	}
	return a
}

func (c *talk) message(id int, method, params string) string {
	if !c.legacy {
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}`
		if strings.Contains(params, `"_meta":{`) {
			params = strings.Replace(params, `"_meta":{`, meta+",", 1)
		} else if params == "{}" {
			params = "{" + meta + "}}"
		} else {
			params = "{" + meta + "}," + params[1:]
		}
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
}

func (c *talk) ask(method, params string) rpcAnswer {
	c.h.t.Helper()
	ctx, cancel := context.WithTimeout(c.h.t.Context(), 20*time.Second)
	defer cancel()
	return c.read(c.post(ctx, c.message(1, method, params)))
}

// ok asks and wants a result.
func (c *talk) ok(method, params string) string {
	c.h.t.Helper()
	a := c.ask(method, params)
	if a.Error != nil || a.Result == nil {
		c.h.t.Fatalf("%s %s: HTTP %d, %+v", method, params, c.lastHTTP, a.Error)
	}
	return string(a.Result)
}

// tools returns the names of the tools that are listed.
func (c *talk) tools() []string {
	c.h.t.Helper()
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal([]byte(c.ok("tools/list", "{}")), &list); err != nil {
		c.h.t.Fatal(err)
	}
	var names []string
	for _, t := range list.Tools {
		names = append(names, t.Name)
	}
	return names
}

func eras(t *testing.T, key, path string, test func(t *testing.T, h *mcpHost, c *talk)) {
	t.Run("2025-11-25", func(t *testing.T) { h := newMCPHost(t); test(t, h, h.begin(key, path)) })
	t.Run("2026-07-28", func(t *testing.T) { h := newMCPHost(t); test(t, h, h.modern(key, path)) })
}

// TestMCPSessionIsBound: a session is of use only to the key, the thread and the view that began it.
func TestMCPSessionIsBound(t *testing.T) {
	t.Parallel()
	h := newMCPHost(t)
	mine := h.begin("ann", "/mcp/t1")
	for name, c := range map[string]struct {
		key, path string
		header    http.Header
		status    int
	}{
		"another user's key":      {"bob", "/mcp/t1", nil, 404},
		"another key of the user": {"ann2", "/mcp/t1", nil, 404},
		"on behalf of the user":   {"root", "/mcp/t1", http.Header{"On-Behalf-Of": {"ann"}}, 404},
		"another thread":          {"ann", "/mcp/t2", nil, 404},
		"another view":            {"ann", "/mcp/t1/fs", nil, 404},
		"by header, another":      {"ann", "/mcp", http.Header{"Skerry-Thread": {"t2"}}, 404},
		"path and header differ":  {"ann", "/mcp/t1", http.Header{"Skerry-Thread": {"t2"}}, 400},
		"no key":                  {"", "/mcp/t1", nil, 401},
		"a key that is none":      {"eve", "/mcp/t1", nil, 401},
	} {
		c2 := &talk{h: h, key: c.key, path: c.path, session: mine.session, legacy: true, header: c.header}
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			res := c2.request(t.Context(), method, c2.message(1, "tools/list", "{}"))
			_ = res.Body.Close()
			if res.StatusCode != c.status {
				t.Errorf("%s: %s: %d, want %d", name, method, res.StatusCode, c.status)
			}
		}
	}
	if len(mine.tools()) == 0 {
		t.Error("the session is gone")
	}
	same := &talk{h: h, key: "ann", path: "/mcp", session: mine.session, legacy: true, header: http.Header{"Skerry-Thread": {"t1"}}}
	if len(same.tools()) == 0 {
		t.Error("the same thread, by header, is refused")
	}
	if status := mine.end(); status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	if a := mine.ask("tools/list", "{}"); mine.lastHTTP != 404 {
		t.Errorf("after the end: %d %+v", mine.lastHTTP, a)
	}
}

// TestMCPRevokedKey: a key that is revoked is of no use to the next request, and ends what is open.
func TestMCPRevokedKey(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, h *mcpHost, c *talk) {
		h.w.hang, h.w.release = make(chan struct{}), make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := *c
			if res := c.post(context.Background(), c.message(7, "tools/call", `{"name":"fs__read","arguments":{}}`)); res != nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}()
		eventuallyTrue(t, "the call runs", func() bool { h.w.mu.Lock(); defer h.w.mu.Unlock(); return h.w.ref.Printed == "fs__read" })
		h.w.mu.Lock()
		h.w.revoked = true
		h.w.mu.Unlock()
		select {
		case <-h.w.hang:
		case <-time.After(10 * time.Second):
			t.Fatal("the call goes on")
		}
		<-done
		if c.ask("tools/list", "{}"); c.lastHTTP != 401 {
			t.Errorf("the next request: %d", c.lastHTTP)
		}
		h.w.mu.Lock()
		h.w.revoked = false // the test's own DELETE
		h.w.mu.Unlock()
	})
}

func eventuallyTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 10 s: " + what)
		}
	}
}

// TestMCPCancel: a request that is taken back ends its exec, or its call of a tool.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, h *mcpHost, c *talk) {
		waiting := make(chan struct{})
		h.w.killed = make(chan string, 1)
		h.w.wait = func(ctx context.Context) error { close(waiting); <-ctx.Done(); return ctx.Err() }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := *c
			if res := c.post(ctx, c.message(7, "tools/call", `{"name":"bash","arguments":{"command":"sleep 1000"}}`)); res != nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}()
		<-waiting
		if c.legacy {
			c.note("notifications/cancelled", `{"requestId":7}`)
		} else {
			cancel()
		}
		select {
		case id := <-h.w.killed:
			if id != "e1" {
				t.Errorf("killed %s", id)
			}
		case <-time.After(10 * time.Second):
			t.Error("the exec goes on")
		}
		<-done
	})
}

// TestMCPProgress: what a tool says meanwhile comes before its result; our own tools say how long they run.
func TestMCPProgress(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, h *mcpHost, c *talk) {
		c.ok("tools/call", `{"_meta":{"progressToken":"p1"},"name":"fs__read","arguments":{}}`)
		if !slices.Equal(c.notifications, []string{"notifications/progress"}) {
			t.Errorf("passed on: %v", c.notifications)
		}
		h.w.wait = func(context.Context) error { time.Sleep(1300 * time.Millisecond); return nil }
		c.ok("tools/call", `{"_meta":{"progressToken":5},"name":"bash","arguments":{"command":"true"}}`)
		// One a second; on a busy machine the call takes longer.
		if got := slices.Compact(slices.Clone(c.notifications)); !slices.Equal(got, []string{"notifications/progress"}) {
			t.Errorf("our own: %v", c.notifications)
		}
	})
}

func TestMCPToolsFollowTheMode(t *testing.T) {
	t.Parallel()
	always := []string{"bash", "execute_code", "glob", "grep", "ls", "read_file", "str_replace", "write_file"}
	skills, search := []string{"activate_skill", "read_skill_file", "run_skill", "search_skills"}, []string{"list_servers", "search_tools"}
	passed := []string{"fs__rare", "fs__read", "odd_name___x"}
	eras(t, "ann", "/mcp/t1", func(t *testing.T, h *mcpHost, c *talk) {
		want := func(what string, lists ...[]string) {
			t.Helper()
			got, want := c.tools(), slices.Concat(lists...)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		set := func(change func()) { h.w.mu.Lock(); change(); h.w.mu.Unlock() }
		want("code", always, skills, search)
		set(func() { h.w.disclose = sandbox.DiscloseAlways })
		want("code, one tool always", always, skills, search, []string{"fs__rare"})
		set(func() { h.w.mode, h.w.disclose = sandbox.ModeDirect, "" })
		want("direct", always, skills, passed)
		set(func() { h.w.disclose = sandbox.DiscloseDeferred })
		activation := []string{"activate_tool", "put_away_tool"}
		want("direct, one tool deferred", always, skills, search, activation, []string{"fs__read", "odd_name___x"})
		c.ok("tools/call", `{"name":"activate_tool","arguments":{"name":"fs__rare"}}`)
		want("direct, the deferred tool is active", always, skills, search, activation, passed)
		set(func() { h.w.mode = sandbox.ModeCode })
		want("code, the deferred tool is active", always, skills, search, activation, []string{"fs__rare"})
		c.ok("tools/call", `{"name":"put_away_tool","arguments":{"name":"fs__rare"}}`)
		want("code, it is put away", always, skills, search, activation)
		set(func() { h.w.mode = sandbox.ModeDirect })
		set(func() { h.w.disclose, h.w.noSkills, h.w.noCode = "", true, true })
		want("direct, no code, no skills", always[:1], always[2:], passed)
	})
}
