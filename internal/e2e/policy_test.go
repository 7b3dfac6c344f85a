package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPolicyEveryWay: whichever way a tool call comes, the server asks the rules. Denied calls do not reach
// the MCP server, and the record of the attempt says why.
func TestPolicyEveryWay(t *testing.T) {
	t.Parallel()
	needDriver(t, "docker", "runc")
	s := start(t, options{driver: "docker", runtime: "runc", extensions: mcpServers(t, sharedFolder(t))})
	s.connect("connects")
	const rules = `
version: 1
default: allow
rules:
- {id: no-canary, effect: deny, match: {server: everything, tool: echo}, when: args.message.contains("canary")}
`
	put := s.do("PUT", "/api/policy", map[string]any{"text": rules})
	if put.status != 200 {
		t.Fatalf("%d %s", put.status, put.body)
	}
	s.ok("t", "true")
	const post = `
import json, os, sys, urllib.request
body = json.dumps({"tool": sys.argv[1], "input": {"message": sys.argv[2]}}).encode()
r = urllib.request.Request("http://localhost:9876/call", body, {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["SKERRY_EXEC_TOKEN"]})
try: print(urllib.request.urlopen(r).read().decode())
except urllib.error.HTTPError as e: print(e.read().decode())`
	code := func(language, text string) func(string) string {
		return func(message string) string {
			r := s.run("t", "execute_code", map[string]any{"language": language, "code": strings.ReplaceAll(text, "MESSAGE", message)})
			return r.Stdout + r.Stderr
		}
	}
	rpc := func(path, tool string) func(string) string {
		return func(message string) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"message":%q},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, message)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
			must(t, err)
			for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool} {
				req.Header.Set(k, v)
			}
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			defer res.Body.Close() //nolint:errcheck // a test
			text, err := io.ReadAll(res.Body)
			must(t, err)
			return string(text)
		}
	}
	ways := map[string]func(message string) string{
		"the API": func(m string) string {
			return string(s.do("POST", "/api/threads/t/tools/call", map[string]any{"server": "everything", "tool": "echo", "input": map[string]any{"message": m}}).body)
		},
		"the API, printed": func(m string) string {
			return string(s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "everything__echo", "input": map[string]any{"message": m}}).body)
		},
		"wrappers in Python":     code("python", "from servers.everything import echo\ntry: print(echo(message='MESSAGE'))\nexcept Exception as e: print(e)"),
		"wrappers in TypeScript": code("typescript", "import { echo } from './servers/everything';\ntry { console.log(await echo({ message: 'MESSAGE' })); } catch (e) { console.log(String(e)); }"),
		"callMCPTool":            code("typescript", "try { console.log(await callMCPTool('everything__echo', { message: 'MESSAGE' })); } catch (e) { console.log(String(e)); }"),
		"the port, from a command": func(m string) string {
			return s.run("t", "exec", map[string]any{"argv": []string{"python3", "-c", post, "everything__echo", m}}).Stdout
		},
		"the port, server.tool": func(m string) string {
			return s.run("t", "exec", map[string]any{"argv": []string{"python3", "-c", post, "everything.echo", m}}).Stdout
		},
		"/mcp":                    rpc("/mcp/t", "everything__echo"),
		"/mcp, of one server":     rpc("/mcp/t/everything", "echo"),
		"arguments written oddly": code("python", "import json\ntry: print(call_mcp_tool('everything__echo', json.loads('{\"message\": \"\\\\u0063anary MESSAGE\"}') if 'canary' in 'MESSAGE' else {'message': 'MESSAGE'}))\nexcept Exception as e: print(e)"),
	}
	began := time.Now()
	denied := 0
	for name, way := range ways {
		if out := way("fine"); !strings.Contains(out, "Echo: fine") {
			t.Errorf("%s: what is allowed gives %s", name, out)
		}
		if out := way("canary"); !strings.Contains(out, "denied by the policy (rule no-canary)") || strings.Contains(out, "Echo") {
			t.Errorf("%s: what is denied gives %s", name, out)
		}
		denied++
	}
	t.Logf("%d ways in %s", denied, time.Since(began))
	var list struct {
		Items []struct {
			ID, Phase, Outcome, Parent string
			Why                        json.RawMessage
		}
	}
	s.do("GET", "/api/audit?thread=t&action=tool_call&limit=1000", nil).into(t, &list)
	attempts, refused := 0, 0
	for _, r := range list.Items {
		if r.Phase == "attempt" && strings.Contains(string(r.Why), `"rule":"no-canary"`) {
			attempts++
		}
		if r.Outcome == "denied" {
			refused++
		}
	}
	if attempts != denied || refused != denied {
		t.Errorf("%d attempts say why and %d results that they were denied, of %d", attempts, refused, denied)
	}
}
