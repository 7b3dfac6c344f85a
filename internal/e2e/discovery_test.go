package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// foundTools is the answer to a search.
type foundTools struct {
	Matched int `json:"match_count"`
	Showing int
	Tools   []struct {
		Name, Description string
		Parameters        json.RawMessage
		Output            json.RawMessage
		WrapperPath       string `json:"wrapper_path"`
	}
	Also []string
}

// TestCheapDiscovery: a full search describes the few tools that fit, without the schemas of results, and names the others;
// limit and output_schema change that, by the API and by /mcp.
func TestCheapDiscovery(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t))})
	s.connect("t")
	search := func(query string) (f foundTools) {
		t.Helper()
		s.do("GET", "/api/threads/t/tools?query=read+the+content+of+a+text+file"+query, nil).into(t, &f)
		return f
	}
	few := search("&detail=full")
	lines := search("")
	if few.Showing == 0 || few.Showing > 4 || few.Showing != len(few.Tools) || lines.Showing != min(15, few.Matched) || few.Showing+len(few.Also) != lines.Showing {
		t.Fatalf("%d described and %d named, of %d", few.Showing, len(few.Also), few.Matched)
	}
	for i, line := range lines.Tools { // none is missed for being cheap
		if i < few.Showing && few.Tools[i].Name != line.Name || i >= few.Showing && few.Also[i-few.Showing] != line.Name {
			t.Errorf("%d: %s is missing or elsewhere", i, line.Name)
		}
	}
	for _, tool := range few.Tools {
		if len(tool.Parameters) == 0 || tool.Output != nil || len([]rune(tool.Description)) > 600 || strings.Contains(string(tool.Parameters), "$schema") {
			t.Errorf("%+v", tool)
		}
	}
	two := search("&detail=full&limit=2&output_schema=true")
	if two.Showing != 2 || two.Also != nil || two.Tools[0].Output == nil || two.Matched != few.Matched {
		t.Errorf("%+v", two)
	}
	if one := search("&limit=1"); one.Showing != 1 || one.Tools[0].Parameters != nil {
		t.Errorf("%+v", one)
	}
	for _, wrong := range []string{"limit=0", "limit=16", "limit=x"} {
		if a := s.do("GET", "/api/threads/t/tools?"+wrong, nil); a.code() != "invalid" || !strings.Contains(string(a.body), "limit") {
			t.Errorf("%s: %d %s", wrong, a.status, a.body)
		}
	}
	// The definitions in full, as the server wrote them, are still to be had.
	var all struct {
		Items []struct{ Output json.RawMessage }
	}
	s.do("GET", "/api/threads/t/servers/filesystem/tools", nil).into(t, &all)
	if len(all.Items) < 10 || all.Items[0].Output == nil {
		t.Errorf("%d tools", len(all.Items))
	}
	s.acquire("t", "code")
	res, err := s.mcpClient("/mcp/t", nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "search_tools", Arguments: map[string]any{"query": "read a text file", "detail": "full", "limit": 1, "output_schema": true}})
	must(t, err)
	var byMCP foundTools
	must(t, json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &byMCP))
	if res.IsError || byMCP.Showing != 1 || byMCP.Also != nil || byMCP.Tools[0].Output == nil {
		t.Errorf("/mcp: %+v", byMCP)
	}
}

// TestReturnedBytes: metrics and usage tell how much tools answered, how much of it the model got, and which share of the
// calls code made.
func TestReturnedBytes(t *testing.T) {
	t.Parallel()
	shared := sharedFolder(t)
	large := filepath.Join(shared, "large.txt")
	const size = 50_000
	must(t, os.WriteFile(large, []byte(strings.Repeat("x", size)), 0o644)) //nolint:gosec // nobody reads it
	s := start(t, options{extensions: mcpServers(t, shared)})
	s.connect("t")
	r := s.run("t", "execute_code", map[string]any{"code": fmt.Sprintf("const r = await callMCPTool('filesystem__read_text_file', { path: %q });\nconsole.log(JSON.stringify(r).length);", large)})
	if r.ExitCode == nil || *r.ExitCode != 0 {
		t.Fatalf("%+v", r)
	}
	s.run("t", "execute_code", map[string]any{"code": "console.log('y'.repeat(9000))"}) // calls nothing: it is not counted
	type amounts struct {
		Total struct {
			Calls    int64 `json:"tool_calls"`
			ByCode   int64 `json:"code_tool_calls"`
			Answered int64 `json:"tool_result_bytes"`
			Returned int64 `json:"returned_bytes"`
		}
	}
	used := func(calls int64) (u amounts) {
		t.Helper()
		eventually(t, "usage is told", func() bool {
			s.do("GET", "/api/usage", nil).into(t, &u)
			return u.Total.Calls == calls && u.Total.Returned > 0
		})
		return u
	}
	code := used(1)
	if code.Total.ByCode != 1 || code.Total.Answered < size || code.Total.Returned != int64(len(r.Stdout)) {
		t.Errorf("after code: %+v, and it printed %q", code.Total, r.Stdout)
	}
	a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "filesystem__read_text_file", "input": map[string]any{"path": large}})
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	direct := used(2)
	if direct.Total.ByCode != 1 || direct.Total.Answered-code.Total.Answered < size || direct.Total.Returned-code.Total.Returned < size {
		t.Errorf("after a direct call: %+v", direct.Total)
	}
	if out := s.cli("usage"); !strings.Contains(out, "50%") || !strings.Contains(out, "RETURNED") {
		t.Errorf("skerry usage:\n%s", out)
	}
	s.do("GET", "/api/threads/t/prompt", nil)
	metrics := strings.Split(string(s.do("GET", "/metrics", nil).body), "\n")
	for _, want := range []string{
		fmt.Sprintf(`skerry_tool_result_bytes_total{via="bridge"} %d`, code.Total.Answered), fmt.Sprintf(`skerry_tool_returned_bytes_total{via="bridge"} %d`, code.Total.Returned),
		`skerry_tool_call_duration_seconds_count{outcome="ok",via="api"} 1`, `skerry_tool_call_duration_seconds_count{outcome="ok",via="bridge"} 1`, `skerry_prompts_total{mode="code"} 1`,
	} {
		if !slices.Contains(metrics, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

// TestWorkedExample: the example of the prompt runs as it stands there, in both languages, on servers of those names.
func TestWorkedExample(t *testing.T) {
	t.Parallel()
	shared := sharedFolder(t)
	program, err := os.ReadFile("../../sdk/python/examples/drive_to_crm/mcp_server.py")
	must(t, err)
	file := filepath.Join(shared, "mcp_server.py")
	must(t, os.WriteFile(file, program, 0o644)) //nolint:gosec // nobody runs it
	servers := map[string]any{}
	for name, which := range map[string]string{"google-drive": "drive", "salesforce": "crm"} {
		servers[name] = map[string]any{"command": "/usr/bin/python3", "args": []string{file, which}}
	}
	extensions, err := json.Marshal(map[string]any{"mcpServers": servers})
	must(t, err)
	for _, language := range []string{"typescript", "python"} {
		t.Run(language, func(t *testing.T) {
			s := start(t, options{extensions: string(extensions), env: []string{"SKERRY_CODE_EXECUTION_LANGUAGE=" + language}})
			var section string
			eventually(t, "the tools are there", func() bool {
				_, tools, now := s.promptNames("t")
				section = now
				return slices.Contains(tools, "salesforce__update_record") && slices.Contains(tools, "google_drive__get_document")
			})
			_, example, _ := strings.Cut(section, "<example>\n")
			example, _, ok := strings.Cut(example, "</example>")
			if !ok {
				t.Fatalf("no example in %s", section)
			}
			r := s.run("t", "execute_code", map[string]any{"code": example})
			if r.ExitCode == nil || *r.ExitCode != 0 || !strings.Contains(r.Stdout, "OPP-001 has 2 lines of Q4 2025 Financial Summary") {
				t.Fatalf("%+v", r)
			}
			a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "salesforce__get_record", "input": map[string]any{"recordId": "OPP-001"}})
			if !strings.Contains(string(a.body), "revenue grew 23%") || strings.Contains(string(a.body), "Appendix") {
				t.Errorf("%s", a.body)
			}
		})
	}
}
