package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestCodeRuntimes: on each JavaScript runtime that a template may choose, code makes parallel calls. A
// failed call says which tool, which status, and at which line of the agent's own text.
func TestCodeRuntimes(t *testing.T) {
	t.Parallel()
	shared := sharedFolder(t)
	for _, name := range first("bun", "deno", "node") {
		t.Run(name, func(t *testing.T) {
			more := "javascript: " + name + "\n"
			if name == "deno" {
				more += "deno: {allow_read: [/mnt/user-data]}\n"
			}
			s := start(t, options{extensions: mcpServers(t, shared), template: more})
			s.connect("connects")
			r := s.run("code", "execute_code", map[string]any{"code": fmt.Sprintf(`import { readTextFile } from './servers/filesystem';
import { callMCPTool as call } from './helpers/callMCPTool';
const all = await Promise.all(Array.from({ length: 20 }, (_, i) => i %% 2 ? readTextFile({ path: '%[1]s/a.txt' }) : call('everything__echo', { message: String(i) })));
console.log(all.length, JSON.stringify(all[2]), process.versions.bun ? 'bun' : 'Deno' in globalThis ? 'deno' : 'node');
try { await readTextFile({ path: '%[1]s/none.txt' }); } catch (e: any) { console.log(e.name, e.tool, e.status, e.code); }

async function outer(): Promise<void> {
  await readTextFile({ path: '/etc/shadow' });
}
await outer();
`, shared), "language": "typescript"})
			want := `20 "Echo: 2" ` + name + "\nMCPToolError filesystem__read_text_file 502 tool_failed\n"
			if r.Stdout != want || r.ExitCode == nil || *r.ExitCode == 0 || len(r.ToolsCalled) != 22 {
				t.Errorf("%q, want %q; %d calls, %+v", r.Stdout, want, len(r.ToolsCalled), r.ExitCode)
			}
			if !strings.Contains(r.Stderr, ":8:") || !strings.Contains(r.Stderr, "filesystem__read_text_file") || !strings.Contains(r.Stderr, "denied") {
				t.Errorf("the error does not point at line 8: %s", r.Stderr)
			}
			r = s.run("code", "execute_code", map[string]any{"code": "const x = 1;\n\nawait callMCPTool('everything__none', {});", "language": "typescript"})
			if !strings.Contains(r.Stderr, ":3:") || !strings.Contains(r.Stderr, "everything__none") {
				t.Errorf("the first call without an import does not point at line 3: %s", r.Stderr)
			}
		})
	}
	s := start(t, options{extensions: mcpServers(t, shared)})
	s.connect("connects")
	r := s.run("code", "execute_code", map[string]any{"code": fmt.Sprintf(`from concurrent.futures import ThreadPoolExecutor
from servers.filesystem import read_text_file
from helpers.call_mcp_tool import MCPToolError
with ThreadPoolExecutor(8) as pool:
    print(len(list(pool.map(lambda i: read_text_file(path="%[1]s/a.txt"), range(20)))))
try:
    read_text_file(path="%[1]s/none.txt")
except MCPToolError as e:
    print(e.tool, e.status, e.code)

def outer():
    read_text_file(path="/etc/shadow")
outer()
`, shared), "language": "python"})
	if r.Stdout != "20\nfilesystem__read_text_file 502 tool_failed\n" || len(r.ToolsCalled) != 22 {
		t.Errorf("%q, %d calls", r.Stdout, len(r.ToolsCalled))
	}
	if !strings.Contains(r.Stderr, "line 12, in outer") || !strings.Contains(r.Stderr, "filesystem__read_text_file") {
		t.Errorf("the error does not point at line 12: %s", r.Stderr)
	}
}
