package codeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

// fakeBridge answers calls of "s__echo" with their input, and of others with an error.
type fakeBridge struct {
	*httptest.Server
	cache              string // of deno, which keeps one in the home folder otherwise
	near               string // its unix socket
	calls, connections atomic.Int64
	nearby             atomic.Int64 // connections to the unix socket
}

func newFakeBridge(t *testing.T) *fakeBridge {
	t.Helper()
	b := &fakeBridge{cache: t.TempDir(), near: filepath.Join(t.TempDir(), "bridge.sock")}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(b.answer))
	b.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			b.connections.Add(1)
			if c.LocalAddr().Network() == "unix" {
				b.nearby.Add(1)
			}
		}
	}
	near, err := net.Listen("unix", b.near)
	must(t, err)
	served := make(chan struct{})
	b.Start()
	go func() {
		defer close(served)
		_ = b.Config.Serve(near) // ends with the server
	}()
	t.Cleanup(func() {
		b.Close()
		near.Close()
		<-served
	})
	return b
}

// sockets returns the sockets that a program may be told of, and whether its calls must come over them.
func (b *fakeBridge) sockets(t *testing.T) map[string]bool {
	dead := filepath.Join(t.TempDir(), "dead.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: dead})
	must(t, err)
	ln.SetUnlinkOnClose(false)
	ln.Close()
	return map[string]bool{"": false, dead: false, dead + ".none": false, b.near: true}
}

func (b *fakeBridge) answer(w http.ResponseWriter, r *http.Request) {
	b.calls.Add(1)
	var call struct {
		Tool  string
		Input json.RawMessage
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &call)
	}
	switch {
	case err != nil || r.URL.Path != "/call" || r.Header.Get("Authorization") != "Bearer secret":
		http.Error(w, `{"error":{"code":"unauthorized","message":"no","tool":""}}`, 401)
	case call.Tool == "s__cut":
		panic(http.ErrAbortHandler)
	case call.Tool == "s__html":
		http.Error(w, "<html>", 502)
	case call.Tool == "s__chunked":
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, `{"result":%s}`, call.Input)
	case call.Tool == "s__close":
		w.Header().Set("Connection", "close")
		fmt.Fprintf(w, `{"result":%s}`, call.Input)
	case call.Tool != "s__echo":
		http.Error(w, `{"error":{"code":"not_found","message":"no such tool","tool":"x"}}`, 404)
	default:
		text := fmt.Sprintf(`{"result":%s}`, call.Input)
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		io.WriteString(w, text)
	}
}

func (b *fakeBridge) env() []string {
	return append(os.Environ(), "MCP_RPC_ENDPOINT="+b.URL+"/call", "SKERRY_EXEC_TOKEN=secret", "NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1", "DENO_DIR="+b.cache, "PYTHONDONTWRITEBYTECODE=1")
}

const useTS = `import { echo } from "./servers/s/index.ts";
import { callMCPTool, MCPToolError } from "./helpers/callMCPTool.ts";
console.log(JSON.stringify(await echo({ a: "é\u2028" })), JSON.stringify(await callMCPTool("s__chunked")));
console.log((globalThis as any).callMCPTool === callMCPTool);
for (const name of ["none", "s__html", "s__cut"]) {
  try { await callMCPTool(name, {}); console.log("no error"); }
  catch (e) { if (e instanceof MCPToolError && e instanceof Error) console.log(e.tool, e.status, e.code, e.name); else console.log("other", e); }
}
console.log((await Promise.all(Array.from({ length: 20 }, (_, i) => echo({ i })))).length);
`

const wantTS = `{"a":"é` + "\u2028" + `"} {}
true
none 404 not_found MCPToolError
s__html 502 unavailable MCPToolError
s__cut 0 unavailable MCPToolError
20
`

// TestTypeScriptRuns on every runtime that is here. Node gets it without types, as from the server.
func TestTypeScriptRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, generate(t, tool("s", "echo", `{"type":"object"}`, "")))
	must(t, os.WriteFile(filepath.Join(dir, "main.ts"), []byte(useTS), 0o644))
	built := api.Build(api.BuildOptions{EntryPoints: []string{filepath.Join(dir, "main.ts")}, Bundle: true, Format: api.FormatESModule, Platform: api.PlatformNode, Outfile: filepath.Join(dir, "main.mjs"), Write: true})
	if len(built.Errors) > 0 {
		t.Fatal(built.Errors)
	}
	image := cacheDir("images/base/rootfs/usr/local/bin")
	for name, args := range map[string][]string{
		"node": {"main.mjs"},
		"bun":  {"main.ts"},
		"deno": {"run", "-A", "--no-check", "main.ts"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBridge(t)
			for socket, used := range b.sockets(t) {
				b.calls.Store(0)
				b.nearby.Store(0)
				cmd := command(t, program(t, name, image), args...)
				cmd.Dir, cmd.Env = dir, append(b.env(), "MCP_BRIDGE_SOCKET="+socket)
				out, err := cmd.CombinedOutput()
				if err != nil || string(out) != wantTS {
					t.Errorf("%v\n%s", err, out)
				}
				// deno itself sends a call again that a kept connection has lost without an answer.
				if n := b.calls.Load(); n != 25 && (n != 26 || name != "deno") {
					t.Errorf("%d calls, want 25: none is sent twice", n)
				}
				if n := b.nearby.Load(); (n > 0) != (used && name == "bun") {
					t.Errorf("socket %q: %d connections", socket, n)
				}
			}
		})
	}
}

const usePython = `import sys, threading
before = set(sys.modules)
from servers.s import echo
from helpers.call_mcp_tool import MCPToolError, call_mcp_tool
heavy = (set(sys.modules) - before) & {"json", "socket", "threading", "typing", "http", "urllib", "re"}
print(heavy or "light")
print(echo(a="é", b=None, **{"x-y": 1}), echo("first", _input={"a": 2, "z": 3}), call_mcp_tool("s__chunked", {"k": [1.5]}), call_mcp_tool("s__close"))
for name in ("none", "s__html", "s__cut"):
    try:
        print("no error", call_mcp_tool(name, {}))
    except MCPToolError as e:
        print(e.tool, e.status, e.code)
try:
    echo(a=object())
except TypeError as e:
    print("not JSON")
results = []
def work(i):
    for k in range(10):
        results.append(echo(a=[i, k]) == {"a": [i, k]})
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(results), all(results))
import os
echo(a="parent")
pid = os.fork()
if pid == 0:
    os._exit(0 if echo(a="child") == {"a": "child"} else 1)
print(os.waitpid(pid, 0)[1], echo(a="parent again")["a"])
print(len(echo(a="x" * 3_000_000)["a"]))
`

const wantPython = `light
{'x-y': 1, 'a': 'é', 'b': None} {'a': 'first', 'z': 3} {'k': [1.5]} {}
none 404 not_found
s__html 502 unavailable
s__cut 0 unavailable
not JSON
80 True
0 parent again
3000000
`

func TestPythonRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, generate(t, tool("s", "echo", `{"type":"object","properties":{"b":{"type":["string","null"]},"a":{},"x-y":{}},"required":["a"]}`, "")))
	b := newFakeBridge(t)
	for socket, used := range b.sockets(t) {
		b.connections.Store(0)
		b.nearby.Store(0)
		cmd := command(t, program(t, "python3"), "-c", usePython)
		cmd.Dir, cmd.Env = dir, append(b.env(), "MCP_BRIDGE_SOCKET="+socket)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != wantPython {
			t.Errorf("%v\n%s", err, out)
		}
		n, near := b.connections.Load(), b.nearby.Load()
		if n > 20 {
			t.Errorf("%d connections: they are not kept", n)
		}
		if used && near != n || !used && near > 0 {
			t.Errorf("socket %q: %d of %d connections", socket, near, n)
		}
	}
}

// deadBridge is a listener that ends connections as told: each accepted connection answers so many
// calls, and the next request on it is read and not answered.
func deadBridge(t *testing.T, answers ...int) (url string, requests *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	requests = &atomic.Int64{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, n := range answers {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 1<<16)
			for i := range n + 1 {
				if _, err := conn.Read(buf); err != nil {
					break
				}
				requests.Add(1)
				if i < n {
					io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"result\":1}")
				}
			}
			conn.Close()
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return "http://" + ln.Addr().String() + "/call", requests
}

// TestPythonResends only what a kept connection has lost before a byte of the answer.
func TestPythonResends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, generate(t))
	for name, c := range map[string]struct {
		answers  []int
		code     string
		want     string
		requests int64
	}{
		"kept and dead": {[]int{1, 1}, `print(call("x"), call("x"))`, "1 1", 3},
		"fresh and dead": {[]int{0, 1}, `
try: call("x")
except E as e: print(e.status, e.code)`, "0 unavailable", 1},
		"dead twice": {[]int{1, 0, 5}, `
call("x")
try: call("x")
except E as e: print(e.status, e.code)`, "0 unavailable", 3},
	} {
		t.Run(name, func(t *testing.T) {
			url, requests := deadBridge(t, c.answers...)
			cmd := command(t, program(t, "python3"), "-c", "from helpers.call_mcp_tool import call_mcp_tool as call, MCPToolError as E\n"+c.code)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "MCP_RPC_ENDPOINT="+url, "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != c.want || requests.Load() != c.requests {
				t.Errorf("%v, %d requests\n%s", err, requests.Load(), out)
			}
		})
	}
}
