package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownSkill installs a skill for the caller: the frontmatter's further lines, and files beside SKILL.md by their paths.
func (s *server) ownSkill(name, frontmatter string, files map[string]string) {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), name)
	files["SKILL.md"] = "---\nname: " + name + "\ndescription: for a test\n" + frontmatter + "---\nRun scripts/call.py TOOL.\n"
	for file, text := range files {
		at := filepath.Join(dir, file)
		must(s.t, os.MkdirAll(filepath.Dir(at), 0o755))
		must(s.t, os.WriteFile(at, []byte(text), 0o600))
	}
	s.cli("skills", "install", dir)
}

const callScript = `import sys
sys.path.insert(0, "/mnt/code-api")
from helpers.call_mcp_tool import call_mcp_tool
try:
    print(call_mcp_tool(sys.argv[1], {"message": "hi"}))
except Exception as e:
    print(e.status, e)
`

// TestAllowedTools: the API tells what SKILL.md says, and a rule of the policy makes a limit of allowed-tools for what a
// script of the skill calls. It does not limit a skill without the key, nor the agent itself.
func TestAllowedTools(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t)), policy: `version: 1
default: allow
rules:
  - id: own-tools-only
    effect: deny
    match: {allowed_tools: false}
    reason: the skill does not name this tool
tests:
  - name: another tool
    call: {server: everything, tool: echo, skill: report, allowed_tools: [memory__read_graph]}
    expect: deny
`})
	s.connect("k")
	files := func() map[string]string { return map[string]string{"scripts/call.py": callScript} }
	s.ownSkill("report", "license: MIT\ncompatibility: Python 3.12\nallowed-tools: mcp__everything__echo Bash(ls:*)\nmetadata:\n  version: \"2\"\n", files())
	s.ownSkill("narrow", "allowed-tools: [\"memory:read_graph\", Read]\n", files())
	s.ownSkill("free", "", files())
	var sk struct {
		Compatibility string
		AllowedTools  []string `json:"allowed_tools"`
		Metadata      map[string]any
	}
	s.do("GET", "/api/skills/report", nil).into(t, &sk)
	if sk.Compatibility != "Python 3.12" || fmt.Sprint(sk.AllowedTools) != "[mcp__everything__echo Bash(ls:*)]" || sk.Metadata["version"] != "2" {
		t.Errorf("%+v", sk)
	}
	if a := s.do("POST", "/api/threads/k/skills/narrow/activate", nil); !strings.Contains(string(a.body), `"allowed_tools":["memory:read_graph","Read"]`) {
		t.Errorf("an activation: %s", a.body)
	}
	if out := s.cli("skills", "list", "--json"); !strings.Contains(out, "mcp__everything__echo") {
		t.Errorf("the command line: %s", out)
	}
	for skill, want := range map[string]string{"report": "Echo: hi\n", "free": "Echo: hi\n", "narrow": "403 "} {
		r := s.run("k", "skills/"+skill+"/run", map[string]any{"script": "scripts/call.py", "args": []string{"everything__echo"}})
		if !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("%s: %+v", skill, r)
		}
		if skill == "narrow" && !strings.Contains(r.Stdout, "own-tools-only") {
			t.Errorf("the refusal names no rule: %s", r.Stdout)
		}
	}
	if a := s.do("POST", "/api/threads/k/tools/call", map[string]any{"tool": "everything__echo", "input": map[string]any{"message": "hi"}}); a.status != 200 {
		t.Errorf("the agent's own call: %d %s", a.status, a.body)
	}
}

// TestScriptRuntimes: a script without a #! line is run by the runtime that the template names, and calls tools there.
func TestScriptRuntimes(t *testing.T) {
	t.Parallel()
	const who = "const name: string = process.versions.bun ? 'bun' : 'Deno' in globalThis ? 'deno' : 'node';\nconsole.log(name, process.argv.slice(2).join(' '));\n"
	js := strings.Replace(who, ": string", "", 1)
	shared := sharedFolder(t)
	for _, runtime := range first("bun", "node", "deno", "deno ") {
		more := map[string]string{
			"node": "javascript: node\n", "deno": "javascript: deno\n", "deno ": "javascript: deno\ndeno: {allow_env: [NO_COLOR]}\n",
		}[runtime]
		t.Run(strings.ReplaceAll(runtime, " ", "-limited"), func(t *testing.T) {
			s := start(t, options{extensions: mcpServers(t, shared), template: more})
			s.connect("r")
			a := s.do("POST", "/api/threads/r/skills", map[string]any{"name": "who", "description": "Says who runs it", "body": "scripts/who.ts", "files": map[string]string{
				"scripts/who.ts": who, "scripts/who.mjs": js, "scripts/who.js": js,
				"scripts/call.ts": "import { callMCPTool } from '/mnt/code-api/helpers/callMCPTool.ts';\nconsole.log(await callMCPTool('everything__echo', { message: 'hi' }));\n",
				"scripts/read.ts": "import { readFileSync } from 'node:fs';\ntry { readFileSync('/etc/passwd'); console.log('read'); } catch { console.log('denied'); }\n",
			}})
			if a.status != 201 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			name := strings.TrimSpace(runtime)
			for _, script := range []string{"who.ts", "who.mjs", "who.js"} {
				r := s.run("r", "skills/who/run", map[string]any{"script": "scripts/" + script, "args": []string{"a", "b c"}})
				if r.Stdout != name+" a b c\n" || r.Stderr != "" {
					t.Errorf("%s: %+v", script, r)
				}
			}
			if r := s.run("r", "skills/who/run", map[string]any{"script": "scripts/call.ts"}); r.Stdout != "Echo: hi\n" || len(s.records("action=tool_call&exec="+r.ExecID, "attempt")) != 1 {
				t.Errorf("a call: %+v", r)
			}
			want := "read\n"
			if runtime == "deno " {
				want = "denied\n"
			}
			if r := s.run("r", "skills/who/run", map[string]any{"script": "scripts/read.ts"}); r.Stdout != want {
				t.Errorf("permissions: %+v", r)
			}
		})
	}
}

// TestCodeDescription: what a caller says of its code is in the list of execs and in the audit log, without secrets, and
// the short names of languages work.
func TestCodeDescription(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	const secret = "sk-live-0123456789"
	r := s.run("d", "execute_code", map[string]any{"language": "py", "code": "print(6*7)", "description": "Multiplies with " + secret, "env": map[string]string{"K": secret}, "redact_env": true})
	if r.Stdout != "42\n" {
		t.Errorf("%+v", r)
	}
	if r := s.run("d", "execute_code", map[string]any{"language": "ts", "code": "const x: number = 6; console.log(x * 7)"}); r.Stdout != "42\n" {
		t.Errorf("ts: %+v", r)
	}
	var list struct {
		Items []struct {
			ID          string `json:"exec_id"`
			Description string
		}
	}
	s.do("GET", "/api/threads/d/execs", nil).into(t, &list)
	if len(list.Items) != 2 || list.Items[1].Description != "Multiplies with [redacted]" || list.Items[0].Description != "" {
		t.Errorf("%+v", list.Items)
	}
	records := s.records("action=execute_code&exec="+r.ExecID, "attempt")
	if len(records) != 1 || !strings.Contains(fmt.Sprint(records[0]["args"]), "Description:Multiplies with") || records[0]["subject"] != "python" {
		t.Errorf("%v", records)
	}
	if a := s.do("POST", "/api/threads/d/execute_code", map[string]any{"code": "1", "description": strings.Repeat("ä", 501)}); a.code() != "invalid" || !strings.Contains(string(a.body), "description") {
		t.Errorf("a long one: %d %s", a.status, a.body)
	}
	if a := s.do("POST", "/api/threads/d/contexts", map[string]any{"language": "py"}); a.status != 201 || !strings.Contains(string(a.body), `"language":"python"`) {
		t.Errorf("a context: %d %s", a.status, a.body)
	}
	script := filepath.Join(t.TempDir(), "hello.sh")
	must(t, os.WriteFile(script, []byte("echo hello"), 0o600))
	if out := s.cli("code", "d", "--lang", "sh", "--description", "Says hello", script); out != "hello\n" {
		t.Errorf("the command line: %q", out)
	}
	if a := s.do("GET", "/api/threads/d/execs", nil); !strings.Contains(string(a.body), "Says hello") {
		t.Errorf("the command line's: %s", a.body)
	}
}
