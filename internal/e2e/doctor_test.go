package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// line is one line of `skerry doctor --json`.
type line struct{ Check, Name, State, Detail, Fix string }

// examined runs doctor for a server's configuration.
func (s *server) examined(args ...string) (code int, lines map[string]line) {
	s.t.Helper()
	env := map[string]string{
		"SKERRY_TEMPLATES": filepath.Join(s.data, "templates"), "SKERRY_IMAGES": filepath.Join(cache(), "images"),
		"SKERRY_SKILLS": abs(s.t, "../../skills"), "DOCTOR_TEST_SECRET": "hunter2-hunter2",
	}
	for name, value := range env {
		s.t.Setenv(name, value)
	}
	code, out, errs := cli(s.t, "", append([]string{"doctor", "--json", "--listen", "127.0.0.1:0", "--data", s.data, "--driver", "oci"}, args...)...)
	var answer struct {
		Serves bool
		Checks []line
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Serves != (code == 0) {
		s.t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	if strings.Contains(out+errs, "hunter2") {
		s.t.Errorf("a secret is shown: %s%s", out, errs)
	}
	lines = map[string]line{}
	for _, l := range answer.Checks {
		lines[strings.TrimSpace(l.Check+" "+l.Name)] = l
	}
	return code, lines
}

// TestDoctor: beside a server that runs, with real sandboxes and MCP servers; nothing is left, and the server goes on.
func TestDoctor(t *testing.T) {
	const python = "/usr/bin/python3" // a program without permission to run
	need(t, have(python), python)
	shared := sharedFolder(t)
	code := filepath.Join(shared, "code")
	must(t, os.Mkdir(code, 0o755))
	must(t, os.WriteFile(filepath.Join(code, "server.py"), []byte(tinyServer), 0o644)) //nolint:gosec // other uids read it
	s := start(t, options{extensions: `{"mcpServers": {
		"tiny": {"command": "` + python + `", "args": ["` + code + `/server.py"], "env": {"TOKEN": "${DOCTOR_TEST_SECRET}"}},
		"boxed": {"command": "python3", "args": ["/srv/code/server.py"], "sandbox": {"egress": ["api.example.com"], "mounts": {"/srv/code": "` + code + `"}}},
		"gone": {"command": "/nonexistent/hunter", "env": {"TOKEN": "${DOCTOR_TEST_SECRET}"}}}}`})
	s.ok("beside", "echo begun > kept")
	before := s.left()
	killed := filepath.Join(s.data, "skerry-doctor-killed") // what another one left that was killed
	must(t, os.Mkdir(killed, 0o700))
	must(t, os.Chtimes(killed, time.Time{}, time.Now().Add(-time.Hour)))
	exit, lines := s.examined("--server", s.url)
	if exit != 0 {
		t.Errorf("exit code %d", exit)
	}
	for name, want := range map[string][2]string{
		"configuration": {"ok", ""}, "data folder server": {"ok", "uses it now"}, "state": {"ok", "embedded"}, "driver oci": {"ok", "sandboxes are started by it"},
		"runtime runc": {"ok", "runc version"}, "template base": {"ok", "sandboxd runs in it"}, "extensions": {"ok", "is right"},
		"mcp server tiny": {"ok", "2 tools"}, "mcp server boxed": {"ok", "2 tools"}, "mcp server gone": {"warning", ""},
		"skills": {"ok", "6 run"}, "egress": {"ok", "api.example.com"}, "server": {"ok", "is ready"}, "server driver": {"ok", ""},
	} {
		if l := lines[name]; l.State != want[0] || !strings.Contains(l.Detail, want[1]) {
			t.Errorf("%s: %+v, want %s with %q", name, l, want[0], want[1])
		}
	}
	if after := s.left(); after != before {
		t.Errorf("left over:\n%s\nbefore:\n%s", after, before)
	}
	if out := s.ok("beside", "cat kept"); out != "begun\n" {
		t.Errorf("the server's sandbox says %q", out)
	}
	ended, out, errs := cli(t, "", "doctor", "--server-only", "--json", "--server", s.url, "--api-key", s.key)
	var told struct {
		Serves bool
		Checks []line
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil || !told.Serves || ended != 0 || len(told.Checks) < 5 {
		t.Errorf("--server-only: %d %s%s", ended, out, errs)
	}
	must(t, os.WriteFile(filepath.Join(s.data, "templates/base.yaml"), []byte("name: base\n"), 0o600))
	exit, lines = s.examined("--redis", "redis://:hunter2-hunter2@127.0.0.1:1")
	if exit != 1 || lines["state redis"].State != "problem" || lines["template"].State != "problem" || lines["template"].Fix == "" {
		t.Errorf("broken: exit code %d, %+v", exit, lines)
	}
}

// left names what is in the data folder.
func (s *server) left() string {
	s.t.Helper()
	entries, err := os.ReadDir(s.data)
	must(s.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// tinyServer is an MCP server with two tools.
const tinyServer = `import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("id") is None:
        continue
    if m["method"] == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "tiny", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("one", "two")]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "none"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`
