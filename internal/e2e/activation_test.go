package e2e

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// active returns what a thread says of its active tools, and those that its prompt names.
func (s *server) active(thread string) (listed []string, section string) {
	s.t.Helper()
	var info struct {
		Active []string `json:"active_tools"`
	}
	s.do("GET", "/api/threads/"+thread, nil).into(s.t, &info)
	var p struct{ Sections map[string]string }
	s.do("GET", "/api/threads/"+thread+"/prompt", nil).into(s.t, &p)
	return info.Active, p.Sections["active_tools"]
}

// loads reports whether a prompt has the definition of a tool, and whether it is to be loaded at once.
func (s *server) loads(thread, tool string) (there, atOnce bool) {
	s.t.Helper()
	var p struct {
		Tools []struct {
			Name  string
			Defer bool `json:"defer_loading"`
		}
	}
	s.do("GET", "/api/threads/"+thread+"/prompt", nil).into(s.t, &p)
	for _, t := range p.Tools {
		if t.Name == tool {
			return true, !t.Defer
		}
	}
	return false, false
}

// TestActivation: a deferred tool that a full search showed, or that was activated by name, is the agent's until it is put
// away: in the thread, the prompt and /mcp, in both modes, also after a restart.
func TestActivation(t *testing.T) {
	t.Parallel()
	var config struct {
		Servers map[string]map[string]any `json:"mcpServers"`
	}
	must(t, json.Unmarshal([]byte(mcpServers(t, sharedFolder(t))), &config))
	// The server's disclosure is that of its tools; echo has its own. get-sum is disabled although it is enabled.
	config.Servers["everything"]["disclosure"] = "deferred"
	config.Servers["everything"]["tools"] = map[string]any{"echo": map[string]any{"disclosure": "always"}}
	config.Servers["everything"]["enabledTools"] = []string{"echo", "get-tiny-image", "get-env", "get-sum"}
	config.Servers["everything"]["disabledTools"] = []string{"get-sum"}
	text, err := json.Marshal(config)
	must(t, err)
	s := start(t, options{extensions: string(text), env: []string{"SKERRY_CODE_EXECUTION_AUTO_THRESHOLD=1000"}})
	const echo, image, env = "everything__echo", "everything__get-tiny-image", "everything__get-env"
	eventually(t, "the tools are there", func() bool { there, _ := s.loads("d", image); return there })
	if _, atOnce := s.loads("d", image); atOnce {
		t.Error("a tool of a deferred server is loaded at once")
	}
	if _, atOnce := s.loads("d", echo); !atOnce {
		t.Error("a tool's own disclosure does not count")
	}
	var all struct{ Items []struct{ Name string } }
	s.do("GET", "/api/threads/d/servers/everything/tools", nil).into(t, &all)
	if len(all.Items) != 3 {
		t.Errorf("enabled and not disabled are 3 tools: %v", all.Items)
	}
	changed := make(chan struct{}, 10)
	session := s.mcpClient("/mcp/d", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	if shown := toolNames(t, session); slices.Contains(shown, image) || !slices.Contains(shown, "activate_tool") {
		t.Errorf("/mcp before: %v", shown)
	}
	// A search that does not show definitions activates nothing.
	s.do("GET", "/api/threads/d/tools?query=tiny+image", nil)
	if there := s.do("GET", "/api/threads/d", nil); there.status != 404 {
		t.Errorf("a short search made the thread: %d %s", there.status, there.body)
	}
	s.do("GET", "/api/threads/d/tools?detail=full&query="+url.QueryEscape("tiny image"), nil)
	<-changed
	listed, section := s.active("d")
	if !slices.Contains(listed, image) || slices.Contains(listed, echo) || !strings.Contains(section, "<tool>"+image+"</tool>") {
		t.Errorf("after a full search: %v %s", listed, section)
	}
	if _, atOnce := s.loads("d", image); !atOnce {
		t.Error("an active tool is still deferred in the prompt")
	}
	if shown := toolNames(t, session); !slices.Contains(shown, image) {
		t.Errorf("/mcp after: %v", shown)
	}
	s.byName(t, session, env)
	s.kill()
	s.boot()
	s.acquire("d", "code")
	eventually(t, "the tools are there again, in code mode, too", func() bool { there, atOnce := s.loads("d", image); return there && atOnce })
	if there, _ := s.loads("d", "memory__read_graph"); there {
		t.Error("code mode has a tool that is not active")
	}
	if a := s.do("DELETE", "/api/threads/d/tools/active/"+url.PathEscape(image), nil); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if there, _ := s.loads("d", image); there {
		t.Error("a tool that was put away is still in the prompt")
	}
	if listed, _ := s.active("d"); slices.Contains(listed, image) {
		t.Errorf("put away: %v", listed)
	}
}

// byName activates a tool by REST, /mcp and the command line, and puts it away by each.
func (s *server) byName(t *testing.T, session *mcp.ClientSession, tool string) {
	t.Helper()
	is := func(what string, want bool) {
		t.Helper()
		if listed, _ := s.active("d"); slices.Contains(listed, tool) != want {
			t.Errorf("%s: %v", what, listed)
		}
	}
	call := func(name string) {
		t.Helper()
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"name": tool}})
		must(t, err)
		if res.IsError {
			t.Errorf("%s: %v", name, res.Content)
		}
	}
	if listed, _ := s.active("d"); slices.Contains(listed, tool) { // the search may have shown it
		call("put_away_tool")
	}
	is("before", false)
	path := "/api/threads/d/tools/active/" + url.PathEscape(tool)
	a := s.do("PUT", path, nil)
	var found struct {
		Name       string
		Parameters json.RawMessage
	}
	if a.into(t, &found); a.status != 200 || found.Name != tool || len(found.Parameters) == 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	is("by REST", true)
	if a := s.do("DELETE", path, nil); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	is("put away by REST", false)
	if a := s.do("DELETE", path, nil); a.code() != "not_found" {
		t.Errorf("put away twice: %d %s", a.status, a.body)
	}
	if a := s.do("PUT", "/api/threads/d/tools/active/everything__get-sum", nil); a.code() != "not_found" {
		t.Errorf("a disabled tool: %d %s", a.status, a.body)
	}
	call("activate_tool")
	is("by /mcp", true)
	call("put_away_tool")
	is("put away by /mcp", false)
	s.cli("mcp", "activate", "--thread", "d", tool)
	is("by the command line", true)
	s.cli("mcp", "put-away", "--thread", "d", tool)
	is("put away by the command line", false)
}

// TestForeignKey: a server whose configuration says envs is refused, with the name of the key, and its values are not shown.
func TestForeignKey(t *testing.T) {
	t.Parallel()
	const secret = "sk-live-0123456789"
	s := start(t, options{extensions: `{"mcpServers": {"drive": {"command": "true", "envs": {"KEY": "` + secret + `"}}}}`})
	var servers struct {
		Servers []struct{ Name, State, Error string }
	}
	s.do("GET", "/api/threads/d/servers", nil).into(t, &servers)
	if len(servers.Servers) != 1 || servers.Servers[0].State != "failed" || !strings.Contains(servers.Servers[0].Error, "envs") || !strings.Contains(servers.Servers[0].Error, "env,") {
		t.Errorf("%+v", servers.Servers)
	}
	if a := s.do("GET", "/api/mcp/servers", nil); a.status != 200 || strings.Contains(string(a.body), secret) || !strings.Contains(string(a.body), `"KEY":"***"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := s.do("PUT", "/api/mcp/servers/other", map[string]any{"command": "true", "envs": map[string]string{"A": "b"}})
	if a.code() != "invalid" || !strings.Contains(string(a.body), "envs") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if raw, err := os.ReadFile(filepath.Join(s.data, "extensions_config.json")); err != nil || strings.Contains(string(raw), "other") {
		t.Errorf("%v %s", err, raw)
	}
}
