package standalone

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var set = sandbox.ToolSet{Tools: []sandbox.Tool{
	{Server: "files", Name: "list_roots", Printed: "files__list_roots", Description: `Lists */ """ roots`, Input: json.RawMessage(`{"type":"object","properties":{"all":{"type":"boolean"}}}`)},
	{Server: "files", Name: "get_size", Printed: "files__get_size", Input: json.RawMessage(`{"type":"object"}`)},
	{Server: "files", Name: "read", Printed: "files__read", Input: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)},
	{Server: "b\"\\\n*/", Name: "get_env", Printed: "b____get_env", Input: json.RawMessage(`{}`)},
	{Server: "b\"\\\n*/", Name: "search", Printed: "b____search", Input: json.RawMessage(`{"type":"object"}`)},
	{Server: "c", Name: "list_secrets", Printed: "c__list_secrets", Input: json.RawMessage(`{"type":"object"}`)},
}}

func generate(t *testing.T, c Connection) string {
	t.Helper()
	tree, err := Generate(set, c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Generate(set, c)
	if err != nil || len(again) != len(tree) {
		t.Fatalf("%d files, then %d: %v", len(tree), len(again), err)
	}
	dir := t.TempDir()
	for name, text := range tree {
		if !bytes.Equal(again[name], text) {
			t.Errorf("%s differs from run to run", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// program finds a program that the tests install; without it the test ends: skipped, in CI failed.
func program(t *testing.T, name string) string {
	t.Helper()
	cache := os.Getenv("SKERRY_CACHE")
	if cache == "" {
		cache = "/var/cache/skerry"
	}
	for _, path := range []string{name, filepath.Join(cache, "mcp/node_modules/.bin", name)} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("missing: %s", name)
	}
	t.Skipf("missing: %s (`make test` installs it)", name)
	return ""
}

// TestTypes: the tree with its helpers and examples is strictly typed.
func TestTypes(t *testing.T) {
	dir := generate(t, Connection{Server: "http://127.0.0.1:1", Thread: "t"})
	config := `{"compilerOptions":{"strict":true,"noUnusedLocals":true,"noUncheckedIndexedAccess":true,"erasableSyntaxOnly":true,"verbatimModuleSyntax":true,"isolatedModules":true,"noEmit":true,"allowImportingTsExtensions":true,"target":"es2022","lib":["es2022"],"types":[],"module":"esnext","moduleResolution":"bundler"},"files":["example.ts"],"include":["servers"]}`
	// console is of the host, whose types are not there.
	text, err := os.ReadFile(filepath.Join(dir, "example.ts"))
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte("declare const console: { log(text: string): void };\n"), text...)
	if err := os.WriteFile(filepath.Join(dir, "example.ts"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program(t, "tsc"), "-p", dir).CombinedOutput(); err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
}

// runners run the two examples, each with the wrappers' helpers.
func runners(t *testing.T) map[string][]string {
	return map[string][]string{"example.py": {program(t, "python3")}, "example.ts": {program(t, "tsx")}}
}

func run(t *testing.T, dir, file string, runner []string, env ...string) string {
	t.Helper()
	cmd := exec.Command(runner[0], append(runner[1:], filepath.Join(dir, file))...)
	cmd.Env = append(os.Environ(), append([]string{"SKERRY_SERVER=", "MCP_RPC_ENDPOINT="}, env...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", file, err, out)
	}
	return string(out)
}

// TestServer: calls go to the server's API with the key of the environment; what fails there says why.
func TestServer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Tool  string
			Input map[string]any
		}
		err := json.NewDecoder(r.Body).Decode(&call)
		switch {
		case err != nil || r.Method != http.MethodPost || r.URL.EscapedPath() != "/api/threads/a%2Fb/tools/call" || r.Header.Get("Content-Type") != "application/json":
			w.WriteHeader(500)
		case r.Header.Get("Authorization") != "Bearer k":
			w.WriteHeader(401)
			fmt.Fprint(w, `{"code":"unauthorized","detail":"send a key"}`)
		case call.Tool == "files__list_roots":
			fmt.Fprint(w, `{"result":["/"],"is_error":false}`)
		default:
			fmt.Fprint(w, `{"result":"no such luck","is_error":true}`)
		}
	}))
	t.Cleanup(srv.Close)
	dir := generate(t, Connection{Server: srv.URL + "/", Thread: "a/b"})
	for file, runner := range runners(t) {
		out := run(t, dir, file, runner, "SKERRY_API_KEY=k")
		for _, want := range []string{"files: 3 tools\n", `files__list_roots: "[\"/\"]"`, `b____search failed (tool_failed): "b____search: no such luck"`, "2 called, 1 failed\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", file, want, out)
			}
		}
		if strings.Contains(out, "get_env") || strings.Contains(out, "secrets") {
			t.Errorf("%s calls a tool that an example had better not:\n%s", file, out)
		}
		if out := run(t, dir, file, runner); !strings.Contains(out, "failed (unauthorized)") {
			t.Errorf("%s without a key:\n%s", file, out)
		}
		if out := run(t, dir, file, runner, "SKERRY_SERVER=http://127.0.0.1:1"); !strings.Contains(out, "failed (unavailable)") {
			t.Errorf("%s with a wrong server:\n%s", file, out)
		}
		if out := run(t, dir, file, runner, "MCP_RPC_ENDPOINT="+srv.URL+"/api/threads/a%2Fb/tools/call", "SKERRY_EXEC_TOKEN=k"); !strings.Contains(out, `files__list_roots: "[`) {
			t.Errorf("%s with a bridge:\n%s", file, out)
		}
	}
}

// TestCommand: without a server each call starts the command, with its arguments on standard input.
func TestCommand(t *testing.T) {
	script := filepath.Join(t.TempDir(), "skerry")
	text := "#!/bin/sh\n[ \"$1 $3 $4 $5\" = 'mcp --args - --json' ] || exit 9\nread -r input\n[ \"$input\" = '{}' ] || exit 8\n" +
		"case $2 in files__list_roots) echo '{\"result\": {\"a\": 1}}' ;; *) echo '{\"error\": {\"code\": \"not_found\", \"message\": \"gone\"}}'; exit 3 ;; esac\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	dir := generate(t, Connection{Command: []string{script, "mcp"}})
	broken := generate(t, Connection{Command: []string{filepath.Join(dir, "none")}})
	for file, runner := range runners(t) {
		out := run(t, dir, file, runner)
		if !strings.Contains(out, `\"a\":`) || !strings.Contains(out, `b____search failed (not_found): "b____search: gone"`) {
			t.Errorf("%s:\n%s", file, out)
		}
		if out := run(t, broken, file, runner); !strings.Contains(out, "failed (unavailable)") {
			t.Errorf("%s without the command:\n%s", file, out)
		}
	}
}

// TestWrapper: the typed functions work outside, too.
func TestWrapper(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(500)
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"result": string(body)}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	dir := generate(t, Connection{Server: srv.URL, Thread: "t"})
	for file, c := range map[string]struct{ program, text string }{
		"use.py": {"python3", "from servers.files import read\nprint(read(path='/a'))\n"},
		"use.ts": {"tsx", "import { read } from './servers/files/index.ts';\nread({ path: '/a' }).then((r) => console.log(r));\n"},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		out := run(t, dir, file, []string{program(t, c.program)})
		if strings.ReplaceAll(strings.TrimSpace(out), " ", "") != `{"tool":"files__read","input":{"path":"/a"}}` {
			t.Errorf("%s: %s", file, out)
		}
	}
}
