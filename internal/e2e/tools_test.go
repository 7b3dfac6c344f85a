package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// killContainer ends a sandbox behind the server's back, as the kernel might.
func killContainer(t *testing.T, s *server, id string) {
	t.Helper()
	out, err := exec.Command("runc", "--root", filepath.Join(s.data, "oci", "runc"), "kill", id, "KILL").CombinedOutput()
	if err != nil {
		t.Fatalf("runc kill: %v: %s", err, out)
	}
}

// mcpServers is the configuration of the three real npm servers. shared is a folder that the
// filesystem server shows.
func mcpServers(t *testing.T, shared string) string {
	t.Helper()
	dir := os.Getenv("SKERRY_MCP_DIR")
	if dir == "" {
		dir = filepath.Join(cache(), "mcp")
	}
	modules := filepath.Join(dir, "node_modules/@modelcontextprotocol")
	servers := map[string]any{}
	for name, args := range map[string][]string{"filesystem": {shared}, "memory": nil, "everything": nil} {
		main := filepath.Join(modules, "server-"+name, "dist/index.js")
		_, err := os.Stat(main)
		need(t, err == nil, "the npm package server-"+name)
		servers[name] = map[string]any{
			"command": "node", "args": append([]string{main}, args...),
			"env": map[string]string{"MEMORY_FILE_PATH": filepath.Join(shared, "memory.jsonl")},
		}
	}
	raw, err := json.Marshal(map[string]any{"mcpServers": servers})
	must(t, err)
	return string(raw)
}

// connect waits until the three servers of mcpServers have told a thread's tools.
// Until then code has no wrappers of these tools: on a busy machine their programs take long to start.
func (s *server) connect(thread string) {
	s.t.Helper()
	eventually(s.t, "the MCP servers tell their tools", func() bool {
		var servers struct {
			Servers []struct{ Name, State string }
			Total   int `json:"total_tools"`
		}
		s.do("GET", "/api/threads/"+thread+"/tools?query=x", nil) // connects
		s.do("GET", "/api/threads/"+thread+"/servers", nil).into(s.t, &servers)
		return len(servers.Servers) == 3 && servers.Total >= 30
	})
}

// sharedFolder is a folder that an MCP server, which runs as nobody, can read.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skerry-shared-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // a test folder
	must(t, os.Chmod(dir, 0o777))           //nolint:gosec // nobody reads and writes it
	must(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\ntwo\nthree\n"), 0o644))
	return dir
}

// TestToolsFromCode: code in TypeScript and Python calls real MCP servers; the bridge counts, and
// the audit log links each call to its exec.
func TestToolsFromCode(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		shared := sharedFolder(t)
		o.extensions = mcpServers(t, shared)
		s := start(t, o)
		s.connect("connects")
		for lang, code := range map[string]string{
			"typescript": `import { readTextFile } from './servers/filesystem';
import { createEntities } from './servers/memory';
const { content } = await readTextFile({ path: '%[1]s/a.txt' });
for (const [i, line] of content.trim().split('\n').entries()) if (i < 2) console.log(i, line);
await createEntities({ entities: [{ name: 'ts', entityType: 'x', observations: ['seen'] }] });
await callMCPTool('everything__echo', { message: 'hi' });`,
			"python": `from servers.filesystem import read_text_file
from servers.memory import create_entities
for i, line in enumerate(read_text_file(path="%[1]s/a.txt")["content"].splitlines()[:2]):
    print(i, line)
create_entities(entities=[{"name": "py", "entityType": "x", "observations": ["seen"]}])
call_mcp_tool("everything__echo", {"message": "hi"})`,
		} {
			r := s.run("tools", "execute_code", map[string]any{"code": fmt.Sprintf(code, shared), "language": lang})
			if r.Stdout != "0 one\n1 two\n" || r.ExitCode == nil || *r.ExitCode != 0 {
				t.Errorf("%s: %+v", lang, r)
				continue
			}
			var names []string
			for _, c := range r.ToolsCalled {
				names = append(names, c.Tool+" "+c.Status)
			}
			if got, want := strings.Join(names, ", "), "filesystem__read_text_file ok, memory__create_entities ok, everything__echo ok"; got != want {
				t.Errorf("%s: tools_called %s", lang, got)
			}
			parents := s.records("action=execute_code&exec="+r.ExecID, "attempt")
			calls := s.records("action=tool_call&exec="+r.ExecID, "attempt")
			if len(parents) != 1 || len(calls) != 3 {
				t.Fatalf("%s: %d attempts of the code, %d of its calls", lang, len(parents), len(calls))
			}
			for _, c := range calls {
				if c["parent"] != parents[0]["id"] {
					t.Errorf("%s: call %v has the parent %v, want %v", lang, c["subject"], c["parent"], parents[0]["id"])
				}
			}
		}
	})
}

// TestHostRootfs: without any image the sandbox has the host's /usr. TypeScript runs on whatever Node is
// there. The server bundles its wrappers where that Node reads no types.
func TestHostRootfs(t *testing.T) {
	t.Parallel()
	need(t, have("/usr/bin/node") && have("/usr/bin/python3"), "node and python3 in /usr/bin")
	shared := sharedFolder(t)
	s := start(t, options{image: "host", extensions: mcpServers(t, shared)})
	s.connect("connects")
	code := fmt.Sprintf(`import { readTextFile } from './servers/filesystem';
const r: { content: string } = await readTextFile({ path: '%s/a.txt' });
console.log(r.content.split('\n')[0]);`, shared)
	if r := s.run("host", "execute_code", map[string]any{"code": code}); r.Stdout != "one\n" || len(r.ToolsCalled) != 1 {
		t.Errorf("%+v", r)
	}
	if r := s.run("host", "execute_code", map[string]any{"code": "print(6 * 7)", "language": "python"}); r.Stdout != "42\n" {
		t.Errorf("%+v", r)
	}
	if got := s.ok("host", "touch /usr/x /etc/x 2>/dev/null && echo written; ls -A /root /var/lib 2>/dev/null | grep -v -e ':$' -e '^$' | wc -l"); strings.TrimSpace(got) != "0" {
		t.Errorf("the host shows through: %s", got)
	}
}

// TestForgedCalls: what the bridge must refuse, tried from inside.
func TestForgedCalls(t *testing.T) {
	t.Parallel()
	shared := sharedFolder(t)
	s := start(t, options{extensions: mcpServers(t, shared)})
	call := func(token, body string) string {
		return fmt.Sprintf(`curl -s -o /dev/null -w '%%{http_code}' -H "Authorization: Bearer %s" -H 'Content-Type: application/json' -d '%s' http://localhost:9876/call 2>/dev/null || python3 - <<'E'
import http.client
c = http.client.HTTPConnection("localhost", 9876)
c.request("POST", "/call", '%s', {"Authorization": "Bearer %s", "Content-Type": "application/json"})
print(c.getresponse().status)
E`, token, body, body, token)
	}
	const echo = `{"tool":"everything__echo","input":{"message":"x"}}`
	s.connect("forge")
	stale := strings.TrimSpace(s.ok("forge", "echo $SKERRY_EXEC_TOKEN"))
	other := strings.TrimSpace(s.ok("other", "echo $SKERRY_EXEC_TOKEN; sleep 0"))
	for name, c := range map[string]struct{ token, body, want string }{
		"none":       {"", echo, "401"},
		"guess":      {strings.Repeat("0", 64), echo, "401"},
		"ended exec": {stale, echo, "401"},
		"other":      {other, echo, "401"},
		"no tool":    {"$SKERRY_EXEC_TOKEN", `{"tool":"none__x","input":{}}`, "404"},
		"bad input":  {"$SKERRY_EXEC_TOKEN", `{"tool":"everything__echo","input":{"message":7}}`, "400"},
		"not JSON":   {"$SKERRY_EXEC_TOKEN", `{`, "400"},
		"good":       {"$SKERRY_EXEC_TOKEN", echo, "200"},
	} {
		script := strings.ReplaceAll(call(c.token, c.body), "<<'E'", "<<E")
		if got := strings.TrimSpace(s.exec("forge", script).Stdout); !strings.Contains(got, c.want) {
			t.Errorf("%s: status %s, want %s", name, got, c.want)
		}
	}
	if n := len(s.records("action=auth_refused&thread=forge", "result")); n < 4 {
		t.Errorf("%d records of refused calls, want 4", n)
	}
}

// TestToolRoutes: servers, search and direct calls by the API.
func TestToolRoutes(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t))})
	s.connect("t")
	var found struct {
		Showing int
		Tools   []struct {
			Name, ShortName, Server string
			Parameters              json.RawMessage
			WrapperPath             string `json:"wrapper_path"`
		}
	}
	s.do("GET", "/api/threads/t/tools?query=read+the+content+of+a+text+file&detail=full", nil).into(t, &found)
	if found.Showing == 0 || found.Showing > 15 || !strings.HasPrefix(found.Tools[0].Name, "filesystem__read") {
		t.Fatalf("%+v", found)
	}
	// A new sandbox waits for no tool server: a command may come before the wrappers, code does not.
	eventually(t, "the wrapper is there", func() bool { return *s.exec("t", "test -f "+found.Tools[0].WrapperPath).ExitCode == 0 })
	a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "everything__echo", "input": map[string]any{"message": "hi"}})
	if a.status != 200 || !strings.Contains(string(a.body), "hi") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "everything__echo", "input": map[string]any{"message": 7}}); a.code() != "invalid" || !strings.Contains(string(a.body), "message") {
		t.Errorf("arguments of the wrong type: %d %s", a.status, a.body)
	}
	mode, tools, _ := s.promptNames("t")
	if want := []string{"execute_code", "search_tools", "list_servers", "activate_skill", "read_skill_file", "run_skill"}; mode != "code" || !slices.Equal(tools, want) {
		t.Errorf("prompt: %s, %q", mode, tools)
	}
}

// TestToolChangesReachRunningCode: a command that was there before sees a tool go and come again, and no half of a tree.
func TestToolChangesReachRunningCode(t *testing.T) {
	t.Parallel()
	config := mcpServers(t, sharedFolder(t))
	s := start(t, options{extensions: config})
	var parsed struct {
		Servers map[string]map[string]any `json:"mcpServers"`
	}
	must(t, json.Unmarshal([]byte(config), &parsed))
	memory := parsed.Servers["memory"]
	s.run("t", "execute_code", map[string]any{"code": "1", "language": "python"})
	const watch = `d=/mnt/code-api/servers; touch /mnt/user-data/workspace/started
whole() { [ -s $d/filesystem/index.ts ] && [ -s $d/memory/index.ts ] && [ -s $d/memory/__init__.py ] || echo torn; }
while [ -e $d/memory/read_graph.ts ]; do whole; done; touch /mnt/user-data/workspace/gone
until [ -e $d/memory/read_graph.ts ]; do whole; done; touch /mnt/user-data/workspace/back; echo seen`
	seen := make(chan error, 1)
	go func() {
		seen <- func() error {
			if _, err := s.appears("started", 20*time.Second); err != nil {
				return err
			}
			for _, step := range []struct {
				mark     string
				disabled []string
			}{{"gone", []string{"read_graph"}}, {"back", []string{}}} {
				memory["disabledTools"] = step.disabled
				if a, err := s.request("PUT", "/api/mcp/servers/memory", memory); err != nil || a.status >= 300 {
					return fmt.Errorf("%d %s: %w", a.status, a.body, err)
				}
				took, err := s.appears(step.mark, 20*time.Second)
				if err != nil {
					return err
				}
				t.Logf("%s after %v", step.mark, took)
			}
			return nil
		}()
	}()
	r := s.exec("t", watch)
	if err := <-seen; err != nil || r.Stdout != "seen\n" {
		t.Errorf("%v: %+v", err, r)
	}
}

// appears waits for a file in the workspace of any thread, and says how long that took.
func (s *server) appears(name string, within time.Duration) (time.Duration, error) {
	began := time.Now()
	for time.Since(began) < within {
		found, err := filepath.Glob(filepath.Join(s.data, "tenants/*/users/*/threads/*/workspace", name))
		if err != nil || len(found) > 0 {
			return time.Since(began), err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, fmt.Errorf("no %s within %v", name, within)
}

// TestServerAdministration: a server that is put is there for the next call, its secrets are hidden,
// and the change is on the record.
func TestServerAdministration(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	var config struct {
		Servers map[string]map[string]any `json:"mcpServers"`
	}
	must(t, json.Unmarshal([]byte(mcpServers(t, sharedFolder(t))), &config))
	everything := config.Servers["everything"]
	everything["env"] = map[string]string{"TOKEN": "hush-hush"}
	if a := s.do("PUT", "/api/mcp/servers/everything", everything); a.status >= 300 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "everything__echo", "input": map[string]any{"message": "hi"}}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/mcp/servers", nil); strings.Contains(string(a.body), "hush") || !strings.Contains(string(a.body), "***") {
		t.Errorf("%s", a.body)
	}
	if a := s.do("PUT", "/api/mcp/servers/broken", map[string]any{"type": "telepathy"}); a.code() != "invalid" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("DELETE", "/api/mcp/servers/everything", nil); a.status >= 300 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "everything__echo", "input": map[string]any{"message": "hi"}}); a.code() != "not_found" {
		t.Errorf("after the delete: %d %s", a.status, a.body)
	}
	if n := len(s.records("action=mcp_config", "result")); n != 3 {
		t.Errorf("%d records of changes, want 3", n)
	}
}
