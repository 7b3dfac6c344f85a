package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// realServer returns the program of an npm MCP server. In CI a missing one is a failure.
func realServer(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("SKERRY_MCP_DIR")
	if dir == "" {
		cache := os.Getenv("SKERRY_CACHE")
		if cache == "" {
			cache = "/var/cache/skerry"
		}
		dir = filepath.Join(cache, "mcp")
	}
	path := filepath.Join(dir, "node_modules/@modelcontextprotocol", name, "dist/index.js")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("%s is not installed; scripts/install.sh mcp does it", name)
	}
	return path
}

// publicFolder is a folder that nobody's uid can read.
func publicFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcphub-files-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRealServers: the three reference servers from npm, as they are.
func TestRealServers(t *testing.T) {
	t.Parallel()
	dir := publicFolder(t)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := open(t, withServers(fmt.Sprintf(`
		"filesystem":{"command":"node","args":[%q,%q]},
		"memory":{"command":"node","args":[%q],"env":{"MEMORY_FILE_PATH":"${HOME}/memory.jsonl"}},
		"everything":{"command":"node","args":[%q]}`,
		realServer(t, "server-filesystem"), dir, realServer(t, "server-memory"), realServer(t, "server-everything"))))
	set, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil || len(set.Tools) < 30 {
		t.Fatalf("%v: %d tools", err, len(set.Tools))
	}

	got := r.ok("filesystem__read_file", fmt.Sprintf(`{"path":%q}`, dir+"/a.txt"))
	if got != `{"content":"one\ntwo\n"}` {
		t.Errorf("read_file: %s", got)
	}
	res, err := r.call("filesystem__read_file", `{"path":"/etc/passwd"}`)
	if err != nil || !res.IsError || !strings.Contains(string(res.Result), "denied") {
		t.Errorf("outside: %v %s", err, res.Result)
	}
	r.fails("filesystem__read_file", `{"pfad":"x"}`, sandbox.Invalid, "input.path is missing")

	r.ok("memory__create_entities", `{"entities":[{"name":"Foula","entityType":"island","observations":["12.65 km2"]}]}`)
	if got := r.ok("memory__read_graph", "{}"); !strings.Contains(got, `"Foula"`) {
		t.Errorf("read_graph: %s", got)
	}
	bob := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "bob"}, ID: "one"}
	if res, err := r.callAs(bob, "memory__read_graph", "{}"); err != nil || strings.Contains(string(res.Result), "Foula") {
		t.Errorf("bob sees what alice wrote: %v %s", err, res.Result)
	}
	if err := r.Servers.ReconnectServer(context.Background(), "memory"); err != nil {
		t.Fatal(err)
	}
	if got := r.ok("memory__read_graph", "{}"); !strings.Contains(got, `"Foula"`) {
		t.Errorf("after the server was started anew: %s", got)
	}

	if got := r.ok("everything__echo", `{"message":"hi"}`); got != `"Echo: hi"` {
		t.Errorf("echo: %s", got)
	}
	if got := r.ok("everything__get-sum", `{"a":2,"b":3}`); !strings.Contains(got, "5") {
		t.Errorf("sum: %s", got)
	}
	r.fails("everything__echo", `{"message":7}`, sandbox.Invalid, "input.message")

	found, err := r.Catalog.Search(context.Background(), alice, sandbox.ToolQuery{Query: "read the content of a text file"})
	if err != nil || !strings.HasPrefix(found.Tools[0].Name, "filesystem__read") {
		t.Errorf("search: %v %+v", err, found.Tools)
	}
}

// BenchmarkCall compares a call through the hub with the same call by the SDK alone.
func BenchmarkCall(b *testing.B) {
	bin := testBinary(b)
	ctx := context.Background()
	b.Run("sdk", func(b *testing.B) {
		transport := &mcp.CommandTransport{Command: serverCommand(bin)}
		s, err := mcp.NewClient(&mcp.Implementation{Name: "b", Version: "1"}, nil).Connect(ctx, transport, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		for b.Loop() {
			if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"message":"a"}`)}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hub", func(b *testing.B) {
		h := quietHub(b, withServers(fmt.Sprintf(`"x":{"command":%q,"args":["test-server"]}`, bin)))
		for b.Loop() {
			tool, err := h.Catalog.Resolve(ctx, alice, sandbox.ToolRef{Printed: "x__echo"})
			if err == nil {
				_, err = h.Catalog.Call(ctx, alice, tool, []byte(`{"message":"a"}`))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	h := quietHub(b, withServers(fmt.Sprintf(`"x":{"command":%q,"args":["test-server"]}`, testBinary(b))))
	ref := sandbox.ToolRef{Printed: "x__echo"}
	if _, err := h.Catalog.Resolve(context.Background(), alice, ref); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = h.Catalog.Resolve(context.Background(), alice, ref)
	}
}

func quietHub(b *testing.B, config string) *Hub {
	b.Helper()
	path := filepath.Join(b.TempDir(), "c.json")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	h, err := Open(Options{ConfigPath: path, Log: quiet, LookupEnv: os.LookupEnv, CallTimeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
	})
	return h
}
