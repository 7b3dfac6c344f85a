package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHiddenTools: a tool that is hidden or switched off is on no surface, cannot be called by any way,
// and each try is on the record. A change of the file reaches a running sandbox within a second, and
// leaves the connections of other servers alone.
func TestHiddenTools(t *testing.T) {
	t.Parallel()
	shared := sharedFolder(t)
	var config struct {
		Servers map[string]map[string]any `json:"mcpServers"`
	}
	must(t, json.Unmarshal([]byte(mcpServers(t, shared)), &config))
	config.Servers["everything"]["tools"] = map[string]any{"get-env": map[string]any{"disclosure": "hidden"}}
	config.Servers["everything"]["disabledTools"] = []string{"get-sum"}
	text, err := json.Marshal(config)
	must(t, err)
	s := start(t, options{extensions: string(text)})
	eventually(t, "the wrappers are there", func() bool {
		return strings.Contains(s.ok("hidden", "ls /mnt/code-api/servers/* 2>/dev/null || true"), "echo.ts")
	})
	for _, path := range []string{"tools?query=environment+variables&detail=full", "tools?query=sum+of+two+numbers", "prompt", "tools?query=everything"} {
		if body := string(s.do("GET", "/api/threads/hidden/"+path, nil).body); strings.Contains(body, "get-env") || strings.Contains(body, "get-sum") {
			t.Errorf("%s shows it: %.500s", path, body)
		}
	}
	if list := s.ok("hidden", "ls /mnt/code-api/servers/everything"); strings.Contains(list, "get-env") || strings.Contains(list, "get-sum") || !strings.Contains(list, "echo.ts") {
		t.Errorf("wrappers: %s", list)
	}
	for _, tool := range []string{"everything__get-env", "everything__get-sum"} {
		if a := s.do("POST", "/api/threads/hidden/tools/call", map[string]any{"tool": tool, "input": map[string]any{"a": 1, "b": 2}}); a.status != 404 {
			t.Errorf("%s: %d %s", tool, a.status, a.body)
		}
		r := s.run("hidden", "execute_code", map[string]any{"language": "python", "code": fmt.Sprintf("try:\n    call_mcp_tool(%q, {'a': 1, 'b': 2})\nexcept Exception as e:\n    print(e.status)", tool)})
		if r.Stdout != "404\n" {
			t.Errorf("%s by code: %+v", tool, r)
		}
		if n := len(s.records("action=tool_call&exec="+r.ExecID, "attempt")); n != 1 {
			t.Errorf("%s: %d records of the try", tool, n)
		}
	}
	// The memory server's process must stay while the other's configuration changes.
	s.do("POST", "/api/threads/hidden/tools/call", map[string]any{"tool": "memory__read_graph", "input": map[string]any{}})
	before := processes(t, "server-memory/dist/index.js", s.data)
	config.Servers["everything"]["disabledTools"] = []string{"echo"}
	text, err = json.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(s.data, "extensions_config.json"), text, 0o600))
	began := time.Now()
	eventually(t, "the sandbox shows the change", func() bool {
		list := s.ok("hidden", "ls /mnt/code-api/servers/everything")
		return !strings.Contains(list, "echo.ts") && strings.Contains(list, "get-sum.ts")
	})
	t.Logf("the change was seen after %v", time.Since(began))
	if after := processes(t, "server-memory/dist/index.js", s.data); before == "" || before != after {
		t.Errorf("processes of the other server: %q before, %q after", before, after)
	}
}

// processes lists the pids of programs whose command line has what, and whose home lies in data.
func processes(t *testing.T, what, data string) string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	var found []string
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.Contains(string(line), what) && strings.Contains(string(env), "HOME="+data) {
			found = append(found, filepath.Base(dir))
		}
	}
	return strings.Join(found, " ")
}
