package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// manyServers is the configuration of eleven real npm servers that start without an account.
func manyServers(t *testing.T, shared string) string {
	t.Helper()
	bin := filepath.Join(cache(), "mcp-many/node_modules/.bin")
	need(t, have(filepath.Join(bin, "playwright-mcp")), "scripts/install.sh mcp-many")
	var config struct {
		Servers map[string]any `json:"mcpServers"`
	}
	must(t, json.Unmarshal([]byte(mcpServers(t, shared)), &config))
	for name, s := range map[string]map[string]any{
		"sequential-thinking": {"command": "mcp-server-sequential-thinking"},
		"pdf":                 {"command": "mcp-pdf-server", "args": []string{"--stdio"}},
		"playwright":          {"command": "playwright-mcp"},
		"chrome-devtools":     {"command": "chrome-devtools-mcp"},
		"notion":              {"command": "notion-mcp-server", "env": map[string]string{"NOTION_TOKEN": "ntn_none"}},
		"context7":            {"command": "context7-mcp"},
		"kubernetes":          {"command": "mcp-server-kubernetes"},
		"sentry":              {"command": "sentry-mcp", "args": []string{"--access-token=none"}},
	} {
		s["command"] = filepath.Join(bin, s["command"].(string))
		config.Servers[name] = s
	}
	raw, err := json.Marshal(config)
	must(t, err)
	return string(raw)
}

// TestManyServers: eleven real servers at once: all their tools are there, the wrappers of all of them
// compile, and calls of every kind are made through code.
func TestManyServers(t *testing.T) {
	whole(t, TestToolRoutes)
	t.Parallel()
	shared := sharedFolder(t)
	// Of a browser's tools nearly all say that they destroy, out in the world: without this a person would be asked.
	s := start(t, options{extensions: manyServers(t, shared), policy: "version: 1\ndefault: allow\n"})
	s.ok("many", "true")
	var list struct {
		Servers []struct {
			Name, State, Error string
			Tools              int `json:"tool_count"`
		}
		Total int `json:"total_tools"`
	}
	eventually(t, "all servers answer", func() bool {
		s.do("GET", "/api/threads/many/servers", nil).into(t, &list)
		for _, one := range list.Servers {
			if one.State != "ready" {
				return false
			}
		}
		return len(list.Servers) == 11
	})
	if list.Total < 150 {
		t.Fatalf("%+v", list)
	}
	r := s.run("many", "execute_code", map[string]any{"language": "typescript", "timeout": 100, "code": manyCalls})
	want := `text "Echo: x"
image image/png
structured true
resource resource
progress true
thinking 1
offline true
named error tool_failed
named error tool_failed
wrong arguments invalid
`
	if r.Stdout != want || len(r.ToolsCalled) != 10 {
		t.Errorf("%s\n%s\nwant\n%s; %d calls", r.Stdout, r.Stderr, want, len(r.ToolsCalled))
	}
	tree, err := filepath.Glob(filepath.Join(s.data, "run/*/code-api"))
	if err != nil || len(tree) != 1 {
		t.Fatalf("%v, %v", tree, err)
	}
	files, err := filepath.Glob(filepath.Join(tree[0], "servers/*/*.ts"))
	if err != nil || len(files) < list.Total {
		t.Fatalf("%d files of %d tools, %v", len(files), list.Total, err)
	}
	tsc := filepath.Join(cache(), "mcp/node_modules/.bin/tsc")
	args := append([]string{"--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "--allowImportingTsExtensions", "--types", ""}, files...)
	if out, err := exec.Command(tsc, args...).CombinedOutput(); err != nil {
		t.Errorf("tsc: %v\n%.2000s", err, out)
	}
	python := s.run("many", "execute_code", map[string]any{"language": "python", "code": strings.Join([]string{
		"import servers.chrome_devtools, servers.kubernetes, servers.notion, servers.playwright, servers.sentry, servers.context7, servers.pdf",
		"from servers.sequential_thinking import sequentialthinking",
		"print(sequentialthinking(thought='a', nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1)['thoughtNumber'])",
	}, "\n")})
	if python.Stdout != "1\n" {
		t.Errorf("%+v", python)
	}
}

const manyCalls = `import * as everything from './servers/everything';
import { sequentialthinking } from './servers/sequential-thinking';
import { listPdfs } from './servers/pdf';
import { browserClose } from './servers/playwright';
import { kubectlGet } from './servers/kubernetes';
const any = (x: unknown) => x as any;
console.log('text', JSON.stringify(await everything.echo({ message: 'x' })));
console.log('image', any(await everything.getTinyImage({})).find((c: any) => c.type === 'image').mimeType);
console.log('structured', typeof any(await everything.getStructuredContent(any({ location: 'Chicago' }))).temperature === 'number');
console.log('resource', any(await everything.getResourceReference(any({}))).find((c: any) => c.type === 'resource').type);
console.log('progress', String(await everything.triggerLongRunningOperation(any({ duration: 1, steps: 2 }))).includes('completed'));
console.log('thinking', any(await sequentialthinking(any({ thought: 'a', nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 }))).thoughtNumber);
console.log('offline', Array.isArray(any(await listPdfs(any({}))).localFiles));
for (const call of [() => browserClose(any({})), () => kubectlGet(any({ resourceType: 'pods' }))]) {
  try { await call(); } catch (e: any) { console.log('named error', e.code); }
}
try { await everything.getSum(any({ a: 'one', b: 2 })); } catch (e: any) { console.log('wrong arguments', e.code); }
`
