package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// promptNames returns the mode of a thread's prompt, its tools and its section about code.
func (s *server) promptNames(thread string) (mode string, tools []string, section string) {
	s.t.Helper()
	var p struct {
		Mode     string
		Sections map[string]string
		Tools    []struct {
			Name        string
			InputSchema map[string]any `json:"input_schema"`
		}
	}
	s.do("GET", "/api/threads/"+thread+"/prompt", nil).into(s.t, &p)
	for _, t := range p.Tools {
		if t.InputSchema["type"] != "object" {
			s.t.Errorf("%s has no schema", t.Name)
		}
		tools = append(tools, t.Name)
	}
	return p.Mode, tools, p.Sections["code_execution"]
}

// keyed adds a key to the requests of an MCP client.
type keyed string

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if k != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(k))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// mcpClient connects the SDK's client to a path of /mcp.
func (s *server) mcpClient(path string, o *mcp.ClientOptions) *mcp.ClientSession {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, o)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.url + path, HTTPClient: &http.Client{Transport: keyed(s.key)}}, nil)
	must(s.t, err)
	s.t.Cleanup(func() { session.Close() }) //nolint:errcheck // the server may have ended
	return session
}

func toolNames(t *testing.T, session *mcp.ClientSession) []string {
	t.Helper()
	var names []string
	for tool, err := range session.Tools(t.Context(), nil) {
		must(t, err)
		names = append(names, tool.Name)
	}
	return names
}

// TestModes: the prompt and /mcp offer the same tools in the three modes. The test also covers what a tenant
// and a thread can choose.
func TestModes(t *testing.T) {
	whole(t, TestAllowedTools)
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t)), env: []string{
		"SKERRY_CODE_EXECUTION_LANGUAGE=python", "SKERRY_CODE_EXECUTION_AUTO_THRESHOLD_TOKENS=100000",
	}})
	const echo, search = "everything__echo", "search_tools"
	// A server that takes long to start is not waited for.
	eventually(t, "the tools are there", func() bool { _, tools, _ := s.promptNames("default"); return slices.Contains(tools, echo) })
	for _, c := range []struct{ thread, ask, want string }{{"default", "", "direct"}, {"a", "auto", "direct"}, {"d", "direct", "direct"}, {"c", "code", "code"}} {
		if c.ask != "" {
			s.acquire(c.thread, c.ask)
		}
		mode, tools, section := s.promptNames(c.thread)
		if mode != c.want || slices.Contains(tools, echo) != (c.want == "direct") || slices.Contains(tools, search) != (c.want == "code") || !slices.Contains(tools, "execute_code") {
			t.Errorf("%s: mode %s, tools %v", c.thread, mode, tools)
		}
		if !strings.Contains(section, "call_mcp_tool") || strings.Contains(section, "search_tools") != (c.want == "code") {
			t.Errorf("%s: section %s", c.thread, section)
		}
		shown := toolNames(t, s.mcpClient("/mcp/"+c.thread, nil))
		if slices.Contains(shown, echo) != (c.want == "direct") || slices.Contains(shown, search) != (c.want == "code") || !slices.Contains(shown, "bash") {
			t.Errorf("%s: /mcp shows %v", c.thread, shown)
		}
	}
	// The mode is the thread's, not that of a sandbox or of a server process.
	if a := s.do("DELETE", "/api/threads/c/sandbox", nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.kill()
	s.env = []string{"SKERRY_CODE_EXECUTION_TENANTS={default: {mode: always}}"}
	s.boot()
	for thread, want := range map[string]string{"c": "code", "d": "direct", "default": "code"} {
		if mode, _, _ := s.promptNames(thread); mode != want {
			t.Errorf("after a restart, with a tenant's mode: %s: %s, want %s", thread, mode, want)
		}
	}
	if r := s.run("c", "execute_code", map[string]any{"code": "const x: number = 6; console.log(x * 7)"}); r.Stdout != "42\n" {
		t.Errorf("the language is TypeScript again: %+v", r)
	}
}

// TestMCPClient: an ordinary client of the SDK uses a sandbox and the servers behind it through /mcp.
func TestMCPClient(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t))})
	s.connect("connects")
	s.acquire("c", "direct")
	var mu sync.Mutex
	var progress []float64 // guarded by mu
	session := s.mcpClient("/mcp/c", &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
		mu.Lock()
		defer mu.Unlock()
		progress = append(progress, r.Params.Progress)
	}})
	eventually(t, "the tools are there", func() bool { return slices.Contains(toolNames(t, session), "everything__get-tiny-image") })
	call := func(name string, args map[string]any, meta mcp.Meta) *mcp.CallToolResult {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args, Meta: meta})
		if err != nil || res.IsError {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		return res
	}
	text := func(res *mcp.CallToolResult) string {
		raw, err := json.Marshal(res)
		must(t, err)
		return string(raw)
	}
	call("write_file", map[string]any{"path": "/mnt/user-data/workspace/a.txt", "content": "from a client"}, nil)
	if got := text(call("bash", map[string]any{"command": "cat a.txt"}, nil)); !strings.Contains(got, "from a client") {
		t.Errorf("%s", got)
	}
	if got := text(call("everything__get-tiny-image", nil, nil)); !strings.Contains(got, `"type":"image"`) || !strings.Contains(got, `"mimeType":"image/png"`) {
		t.Errorf("image: %.300s", got)
	}
	if got := text(call("everything__get-structured-content", map[string]any{"location": "Chicago"}, nil)); !strings.Contains(got, `"structuredContent":{"`) {
		t.Errorf("structured: %s", got)
	}
	call("everything__trigger-long-running-operation", map[string]any{"duration": 1, "steps": 4}, mcp.Meta{"progressToken": "p"})
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(progress) || len(progress) < 3 {
		t.Errorf("progress %v", progress)
	}
	for r, err := range session.Resources(t.Context(), nil) {
		must(t, err)
		res, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.URI})
		if err != nil || len(res.Contents) == 0 || res.Contents[0].URI != r.URI {
			t.Errorf("%s: %+v, %v", r.URI, res, err)
		}
	}
	if res, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "everything__simple-prompt"}); err != nil || len(res.Messages) == 0 {
		t.Errorf("prompt: %+v, %v", res, err)
	}
	// What the client does not wait for any more is ended, and no other exec.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { time.Sleep(time.Second); cancel() }()
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "sleep 300", "timeout_s": 300}}); err == nil {
		t.Error("a call that was taken back has an answer")
	}
	eventually(t, "the exec is killed", func() bool {
		var list struct {
			Items []struct{ Subject, Status string }
		}
		s.do("GET", "/api/threads/c/execs", nil).into(t, &list)
		return len(list.Items) > 0 && list.Items[0].Subject == "sleep 300" && list.Items[0].Status == "killed"
	})
	if n := len(s.records("action=tool_call&thread=c&tool=everything__get-tiny-image", "result")); n != 1 {
		t.Errorf("%d records of a call, want 1", n)
	}
	if n := len(s.records("action=mcp_request&thread=c", "result")); n < 3 {
		t.Errorf("%d records of requests, want one for each resource and prompt", n)
	}
}
