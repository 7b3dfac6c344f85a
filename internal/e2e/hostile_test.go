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

// TestHostileServers: a server that hangs, crashes, floods, lies or drips hurts its own calls only: each
// has its named error and its records, and the calls of others go on meanwhile.
func TestHostileServers(t *testing.T) {
	whole(t, TestForgedCalls)
	shared := sharedFolder(t)
	must(t, os.WriteFile(filepath.Join(shared, "evil.py"), []byte(evilServer), 0o644))
	var config struct {
		Servers map[string]any `json:"mcpServers"`
	}
	must(t, json.Unmarshal([]byte(mcpServers(t, shared)), &config))
	for _, how := range []string{"hang", "crash", "flood", "lie", "drip"} {
		config.Servers[how] = map[string]any{"command": "/usr/bin/python3", "args": []string{"-u", filepath.Join(shared, "evil.py"), how}, "timeout": 3000}
	}
	config.Servers["mute"] = map[string]any{"command": "sleep", "args": []string{"1000"}}
	config.Servers["gone"] = map[string]any{"command": "/no/such/program"}
	text, err := json.Marshal(config)
	must(t, err)
	s := start(t, options{extensions: string(text)})
	warm := s.run("evil", "execute_code", map[string]any{"language": "python", "timeout": 60, "code": "print(call_mcp_tool('everything__echo', {'message': 'x'}))"})
	if warm.Stdout != "Echo: x\n" {
		t.Fatalf("%+v", warm)
	}
	began := time.Now()
	r := s.run("evil", "execute_code", map[string]any{"language": "python", "timeout": 60, "code": `
import threading, time
from helpers.call_mcp_tool import MCPToolError
found, waits = {}, []
def call(server):
    try: found[server] = "answered %.40r" % (call_mcp_tool(server + "__go", {}),)
    except MCPToolError as e: found[server] = e.code
threads = [threading.Thread(target=call, args=(s,)) for s in ("hang", "crash", "flood", "lie", "drip")]
for t in threads: t.start()
while any(t.is_alive() for t in threads):
    began = time.monotonic(); call_mcp_tool("everything__echo", {"message": "x"}); waits.append(time.monotonic() - began)
    time.sleep(0.02)
for s in sorted(found): print(s, found[s])
print("others waited", "long" if max(waits) > 2.5 else "little", len(waits) > 20)
`})
	want := "crash unavailable\ndrip timeout\nflood tool_failed\nhang timeout\nlie tool_failed\nothers waited little True\n"
	if r.Stdout != want {
		t.Errorf("%q, want %q; stderr %s", r.Stdout, want, r.Stderr)
	}
	t.Logf("all of it took %v", time.Since(began))
	outcomes := map[string]string{}
	for _, rec := range s.records("action=tool_call&exec="+r.ExecID+"&limit=500", "result") {
		outcomes[strings.TrimSuffix(fmt.Sprint(rec["subject"]), "__go")] = fmt.Sprint(rec["outcome"])
	}
	for how, outcome := range map[string]string{"hang": "timeout", "drip": "timeout", "crash": "error", "flood": "error", "lie": "error"} {
		if outcomes[how] != outcome {
			t.Errorf("%s: outcome %q on the record, want %q", how, outcomes[how], outcome)
		}
	}
	list := string(s.do("GET", "/api/threads/evil/servers", nil).body)
	for _, named := range []string{`"mute"`, `"gone"`} {
		if !strings.Contains(list, named) {
			t.Errorf("%s is not listed: %s", named, list)
		}
	}
}

// evilServer is an MCP server whose tool misbehaves in the way that its argument says.
const evilServer = `
import json, os, sys, time
how = sys.argv[1]
def say(m): sys.stdout.write(json.dumps(m) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    method, result = m["method"], None
    if method == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": how, "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "go", "description": "Goes", "inputSchema": {"type": "object"},
                             "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}]}
    elif method == "tools/call":
        if how == "hang": continue
        if how == "crash": os._exit(3)
        if how == "flood":
            sys.stdout.write('{"jsonrpc":"2.0","id":%s,"result":{"structuredContent":{"n":1},"content":[{"type":"text","text":"' % json.dumps(m["id"]))
            for _ in range(100): sys.stdout.write("x" * (1 << 20))
            sys.stdout.write('"}]}}\n'); sys.stdout.flush()
            continue
        if how == "lie": result = {"content": [{"type": "text", "text": "n"}], "structuredContent": {"n": "not a number"}}
        if how == "drip":
            text = json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"content": [], "structuredContent": {"n": 1}}}) + "\n"
            for c in text: sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.2)
            continue
    if result is None: say({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no"}})
    else: say({"jsonrpc": "2.0", "id": m["id"], "result": result})
`
