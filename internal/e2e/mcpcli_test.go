package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cli runs the program as a person does.
func cli(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "skerry"), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	cmd.Env = append(os.Environ(), "SKERRY_SERVER=", "SKERRY_DATA="+filepath.Join(bin, "cli-data"))
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestMCPCommands: `skerry mcp` with real npm servers, at a server and without one.
func TestMCPCommands(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		whole(t, TestMCPCommands)
		shared := sharedFolder(t)
		file := filepath.Join(shared, "ext.json")
		must(t, os.WriteFile(file, []byte(mcpServers(t, shared)), 0o600))
		mcpCommands(t, shared, "--config", file)
	})
	t.Run("server", func(t *testing.T) {
		shared := sharedFolder(t)
		s := start(t, options{extensions: mcpServers(t, shared)})
		s.connect("connects")
		mcpCommands(t, shared, "--address", s.url)
		if a := s.do("GET", "/api/threads/cli/servers/none/tools", nil); a.code() != "not_found" {
			t.Errorf("tools of no server: %d %s", a.status, a.body)
		}
		if n := len(s.records("action=tool_call&thread=cli", "result")); n < 6 {
			t.Errorf("%d records of calls", n)
		}
	})
}

func mcpCommands(t *testing.T, shared string, where ...string) {
	mcp := func(stdin string, args ...string) (int, string, string) {
		t.Helper()
		return cli(t, stdin, append(append([]string{"mcp"}, where...), args...)...)
	}
	code, out, errs := mcp("", "list", "--json")
	var list struct {
		Servers []struct {
			Name  string
			Tools []struct{ Name string }
		}
		Total int `json:"total_tools"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list.Servers) != 3 || list.Total < 30 {
		t.Fatalf("list: %d %v\n%s%s", code, err, out, errs)
	}
	if code, out, _ := mcp("", "list", "--server", "memory", "--detailed"); code != 0 || !strings.Contains(out, "memory.create_entities") || strings.Contains(out, "read_text_file") {
		t.Errorf("list --server: %d %s", code, out)
	}
	if code, out, errs := mcp("", "search", "--detail", "full", "read", "a", "text", "file"); code != 0 || !strings.HasPrefix(out, "filesystem.read_") || !strings.Contains(out, "path (string, required)") || !strings.Contains(out, "\nalso ") {
		t.Errorf("search: %d %s%s", code, out, errs)
	}
	if code, out, errs := mcp("", "search", "--server", "memory", "--limit", "2", "--json", "--detail", "full", "--output-schema", "entities"); code != 0 || strings.Count(out, `"short_name"`) != 2 || !strings.Contains(out, `"output"`) {
		t.Errorf("search in JSON: %d %s%s", code, out, errs)
	}
	if code, _, errs := mcp("", "search", "--limit", "16", "x"); code != 2 || !strings.Contains(errs, "limit") {
		t.Errorf("search with a wrong limit: %d %s", code, errs)
	}
	path := filepath.Join(shared, "a.txt")
	if code, out, errs := mcp("", "call", "filesystem.read_text_file", "--args", `{"path":"`+path+`"}`, "--json"); code != 0 || !strings.Contains(out, `one\ntwo\nthree`) {
		t.Errorf("call: %d %s%s", code, out, errs)
	}
	// path, tail, head, by a pipe.
	if code, out, errs := mcp(path+"\n\n1\n", "call", "filesystem.read_text_file", "--interactive"); code != 0 || !strings.Contains(out, "one") || strings.Contains(out, "three") {
		t.Errorf("interactive: %d %s%s", code, out, errs)
	}
	// A list of objects with a list inside: entities[0] is name, entityType, observations.
	if code, out, errs := mcp("y\nUnst\nisland\nnorthern\n120 km2\n\n\n", "call", "memory.create_entities", "-i"); code != 0 || !strings.Contains(out, "120 km2") {
		t.Errorf("interactive: %d %s%s", code, out, errs)
	}
	if code, out, _ := mcp("", "call", "filesystem.read_text_file", "--args", `{"path":"/etc/passwd"}`); code != 4 || !strings.Contains(out, "denied") {
		t.Errorf("an error of the tool: %d %s", code, out)
	}
	if code, _, errs := mcp("", "call", "filesystem.read_text_file", "--args", `{"path":7}`); code != 2 || !strings.Contains(errs, "path") {
		t.Errorf("wrong arguments: %d %s", code, errs)
	}
	if code, _, _ := mcp("", "call", "filesystem.none"); code != 3 {
		t.Errorf("no such tool: %d", code)
	}
	dir := filepath.Join(t.TempDir(), "code")
	code, out, errs = mcp("", "generate", "--output", dir, "--clean")
	if code != 0 || !strings.Contains(out, "3 servers, ") || !strings.Contains(out, " tools: ") {
		t.Fatalf("generate: %d %s%s", code, out, errs)
	}
	runExamples(t, dir)
}

// runExamples runs what was generated, on every runtime that is here.
func runExamples(t *testing.T, dir string) {
	t.Helper()
	tsx := filepath.Join(cache(), "mcp/node_modules/.bin/tsx")
	need(t, have(tsx), "tsx")
	runners := [][]string{{"python3", "example.py"}, {tsx, "example.ts"}}
	if bun := filepath.Join(cache(), "images/base/rootfs/usr/local/bin/bun"); have(bun) {
		runners = append(runners, []string{bun, "example.ts"})
	}
	if have("deno") {
		runners = append(runners, []string{"deno", "run", "-A", "example.ts"})
	}
	for _, r := range runners {
		cmd := exec.Command(r[0], r[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SKERRY_DATA="+filepath.Join(bin, "cli-data"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "filesystem: 14 tools") || !strings.Contains(string(out), "filesystem__list_allowed_directories: ") || !strings.Contains(string(out), "3 called, 0 failed") {
			t.Errorf("%v: %v\n%s", r, err, out)
		}
	}
}
