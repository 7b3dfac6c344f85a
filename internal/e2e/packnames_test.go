package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackNames: of a pack and an MCP server with one name, the second is refused, and the error names the first. A server
// that comes by the file takes the name: the pack is disconnected, and is back when the server has gone.
func TestPackNames(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.provide(leads(t), nil)
	s.acquire("t", "direct")
	works := func() bool {
		a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "crm__find_lead", "input": map[string]any{"name": "Ada"}})
		return a.status == 200 && strings.Contains(string(a.body), "Ada@example.com")
	}
	server := map[string]any{"command": "/bin/false"}
	if a := s.do("PUT", "/api/mcp/servers/crm", server); a.code() != "conflict" || !strings.Contains(string(a.body), `the name \"crm\" is taken by the pack \"crm\" of one tenant`) {
		t.Errorf("a server with the name of a pack: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/mcp/servers", nil); strings.Contains(string(a.body), "crm") || !works() {
		t.Errorf("it is there all the same: %s", a.body)
	}
	if a := s.do("PUT", "/api/mcp/servers/erp", server); a.status >= 300 {
		t.Errorf("a server with a name of its own: %d %s", a.status, a.body)
	}
	file := filepath.Join(s.data, "extensions_config.json")
	must(t, os.WriteFile(file, []byte(`{"mcpServers":{"crm":{"command":"/bin/false"}}}`), 0o600))
	eventually(t, "the pack is told that its name is taken", func() bool {
		a := s.do("GET", "/api/packs/crm", nil)
		return strings.Contains(string(a.body), `"state":"unavailable"`) && strings.Contains(string(a.body), `taken by the MCP server \"crm\"`)
	})
	if len(s.records("action=pack", "result")) == 0 || !strings.Contains(string(s.do("GET", "/api/audit?action=pack&limit=1000", nil).body), `taken by the MCP server`) {
		t.Error("the audit log does not say why the pack was disconnected")
	}
	if a := s.do("PUT", "/api/mcp/servers/crm", map[string]any{"command": "/bin/true"}); a.status >= 300 {
		t.Errorf("a change of the server that has the name: %d %s", a.status, a.body)
	}
	if a := s.do("DELETE", "/api/mcp/servers/crm", nil); a.status >= 300 {
		t.Errorf("%d %s", a.status, a.body)
	}
	eventually(t, "the pack is back", works)
}
