package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlugins: the command line installs a plugin, and it is in a sandbox that runs. Its command becomes a
// message, and its program is a tool server in a sandbox of its own. After its removal nothing of it is
// there.
func TestPlugins(t *testing.T) {
	t.Parallel()
	needDriver(t, "docker", "runc")
	dir := filepath.Join(t.TempDir(), "sales")
	for name, text := range map[string]string{
		".claude-plugin/plugin.json": `{"name":"sales","description":"sells"}`,
		"skills/prep/SKILL.md":       fmt.Sprintf(skillText, "prep"),
		"skills/prep/who.sh":         "#!/bin/sh\necho prep\n",
		"commands/do.md":             "---\ndescription: does\nargument-hint: \"[who]\"\n---\nPrepare $1 in ${CLAUDE_PLUGIN_ROOT}\n!`printf '%s;' \"$@\"; ls /mnt/plugins`\n@notes.md",
		".mcp.json":                  `{"mcpServers":{"own":{"command":"python3","args":["${CLAUDE_PLUGIN_ROOT}/server.py"]}}}`,
		"server.py":                  toolServer,
	} {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	market := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(market, ".claude-plugin"), 0o755))
	must(t, os.WriteFile(filepath.Join(market, ".claude-plugin/marketplace.json"),
		[]byte(`{"name":"ours","owner":{"name":"we"},"plugins":[{"name":"sells","source":"./sells","description":"sells"}]}`), 0o644))
	must(t, os.CopyFS(filepath.Join(market, "sells"), os.DirFS(dir)))
	s := start(t, options{driver: "docker", runtime: "runc", env: []string{"SKERRY_PLUGINS_RUN_COMMANDS=true", "SKERRY_PLUGINS_FOLDERS=" + market, "SKERRY_PLUGINS_PATH=" + market}}) // a folder without installed/
	s.ok("p", "echo of the thread > notes.md")
	cli := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(filepath.Join(bin, "skerry"), append([]string{"--server", s.url, "plugins"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := cli("install", dir); !strings.Contains(out, "1 skills, 1 commands, 1 MCP servers") {
		t.Error(out)
	}
	if got := s.ok("p", "sh /mnt/plugins/sales/skills/prep/who.sh; touch /mnt/plugins/sales/x 2>&1 | wc -l"); got != "prep\n1\n" {
		t.Errorf("in the sandbox: %q", got)
	}
	var msg struct{ Message string }
	s.do("POST", "/api/threads/p/commands/sales/do", map[string]any{"args": "'Acme; id' x"}).into(t, &msg)
	want := "Prepare Acme; id in /mnt/plugins/sales\nAcme; id;x;sales\n@notes.md\n\n<file path=\"/mnt/user-data/workspace/notes.md\">\nof the thread\n</file>"
	if msg.Message != want {
		t.Errorf("%q\nwant %q", msg.Message, want)
	}
	typed := func(text string) (m map[string]any) {
		t.Helper()
		s.do("POST", "/api/threads/p/commands", map[string]any{"text": text}).into(t, &m)
		return m
	}
	if m := typed(" /sales:do 'Acme; id' x\n"); m["message"] != want || m["recognised"] != true || m["command"] != "sales:do" {
		t.Errorf("a typed command: %v", m)
	}
	if m := typed("/sales:prep now"); m["recognised"] != true || !strings.HasSuffix(fmt.Sprint(m["message"]), "ARGUMENTS: now") {
		t.Errorf("a typed skill: %v", m)
	}
	if m := typed("/sales:dо x"); m["recognised"] != false || m["message"] != "/sales:dо x" || fmt.Sprint(m["near"]) != "[sales:do]" {
		t.Errorf("a command that is none: %v", m)
	}
	if m := typed("see /sales:do"); m["recognised"] != false || m["message"] != "see /sales:do" || m["unknown"] != nil {
		t.Errorf("a message: %v", m)
	}
	if out := s.cli("commands", "run", "p", "/sales:do", "'Acme; id'", "x"); out != want+"\n" {
		t.Errorf("of the command line: %q", out)
	}
	if out := s.cli("commands", "list", "sales"); !strings.Contains(out, "do") || !strings.Contains(out, "prep") {
		t.Error(out)
	}
	if r := s.run("p", "skills/prep/run", map[string]any{"script": "who.sh"}); r.Stdout != "prep\n" {
		t.Errorf("a script of its skill: %+v", r)
	}
	if a := s.do("GET", "/api/threads/p/prompt", nil); !strings.Contains(string(a.body), "/sales:do") {
		t.Errorf("the prompt does not know the command: %s", a.body)
	}
	var call struct{ Result any }
	s.do("POST", "/api/threads/p/tools/call", map[string]any{"tool": "plugin_sales_own__where", "input": map[string]any{}}).into(t, &call)
	if got := fmt.Sprint(call.Result); !strings.Contains(got, "/srv/home/plugin writable") {
		t.Errorf("the tool says %s", got)
	}
	if out := cli("list"); !strings.Contains(out, "sales") {
		t.Error(out)
	}
	if homes, err := filepath.Glob(filepath.Join(s.data, "tenants/*/users/*/threads/.home-*")); err != nil || len(homes) != 1 {
		t.Errorf("homes: %v, %v", homes, err)
	}
	cli("disable", "sales")
	if got := s.ok("p", "ls /mnt/plugins | wc -l"); got != "0\n" {
		t.Errorf("switched off, and there: %q", got)
	}
	if a := s.do("POST", "/api/threads/p/tools/call", map[string]any{"tool": "plugin_sales_own__where", "input": map[string]any{}}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	cli("enable", "sales")
	cli("rm", "sales")
	if out := cli("marketplaces", "add", market); out != "marketplace ours: 1 plugins\n" {
		t.Errorf("%q", out)
	}
	if a := s.do("GET", "/api/plugins/sales", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, pattern := range []string{"plugins/store/*", "tenants/*/users/*/threads/.*", "plugins/stage/*"} {
		if left, err := filepath.Glob(filepath.Join(s.data, pattern)); err != nil || len(left) > 0 {
			t.Errorf("%v stays behind, %v", left, err)
		}
	}
}

// TestPluginHomeIsBounded: the program of a plugin cannot fill the disk of the host, nor take more than its
// user may have, also after a restart of the server, and what it kept goes with it.
func TestPluginHomeIsBounded(t *testing.T) {
	whole(t, TestPlugins)
	t.Parallel()
	needDriver(t, "docker", "runc")
	need(t, have("mkfs.ext4") && have("mkfs.btrfs"), "mkfs.ext4 and mkfs.btrfs")
	dir := filepath.Join(t.TempDir(), "fat")
	for name, text := range map[string]string{
		".claude-plugin/plugin.json": `{"name":"fat"}`, "server.py": toolServer,
		".mcp.json": `{"mcpServers":{"own":{"command":"python3","args":["${CLAUDE_PLUGIN_ROOT}/server.py"]}}}`,
	} {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	s := start(t, options{driver: "docker", runtime: "runc", disk: "24MiB", env: []string{"SKERRY_DISK_QUOTA=image", "SKERRY_DISK_IMAGE_MIB=320", "SKERRY_USER_DISK_MIB=36"}})
	before := blocks(t, s.data)
	s.cli("plugins", "install", dir)
	for _, when := range []string{"first", "after a restart"} {
		var call struct{ Result any }
		s.do("POST", "/api/threads/p/tools/call", map[string]any{"tool": "plugin_fat_own__where", "input": map[string]any{"fill": true}}).into(t, &call)
		if got := fmt.Sprint(call.Result); !full(got) {
			t.Errorf("%s: 64 MiB in a home of 24: %s", when, got)
		}
		s.kill()
		s.boot()
	}
	s.full("p", "dd if=/dev/urandom of=big bs=1M count=20") // the home counts for the user
	if after := blocks(t, s.data); after > before {
		t.Errorf("the image took %d bytes of the host when it was made, now %d", before, after)
	}
	s.cli("plugins", "rm", "fat")
	s.ok("p", "rm big; dd if=/dev/urandom of=big bs=1M count=20 && sync big")
}

// toolServer is an MCP server of a few lines with one tool, which says where it is.
const toolServer = `import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    r = None
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "own", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "where", "inputSchema": {"type": "object"}}]}
    elif m["method"] == "tools/call":
        text = os.path.dirname(os.path.abspath(sys.argv[0]))
        if os.access(text, os.W_OK):
            text += " writable"
        if (m["params"].get("arguments") or {}).get("fill"):
            text = "written"
            try:
                with open(os.path.expanduser("~/big"), "ab") as f:
                    for _ in range(64):
                        f.write(os.urandom(1 << 20)), f.flush(), os.fsync(f.fileno())
            except OSError as e:
                text = e.strerror
        r = {"content": [{"type": "text", "text": text}]}
    out = {"jsonrpc": "2.0", "id": m["id"]}
    if r is None:
        out["error"] = {"code": -32601, "message": "no such method"}
    else:
        out["result"] = r
    print(json.dumps(out), flush=True)
`
