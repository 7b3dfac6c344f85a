package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

// extensions writes a file of MCP servers: the hostile one, and one without a program.
func extensionsFile(t *testing.T, broken bool) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("python3 is missing")
	}
	// The server's uid is another one when this is root: it has to get there.
	dir, err := os.MkdirTemp("", "skerry-mcp-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text, err := os.ReadFile("testdata/hostile.py")
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath("/usr/bin/python3") // a program that every uid can run
	if err != nil {
		python = "python3"
	}
	servers := map[string]any{"shop": map[string]any{"command": python, "args": []string{filepath.Join(dir, "hostile.py")}}}
	if broken {
		servers["gone"] = map[string]any{"command": "/none/such"}
	}
	config, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "hostile.py"), text, 0o644), os.WriteFile(filepath.Join(dir, "ext.json"), config, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SKERRY_DATA", filepath.Join(dir, "data"))
	t.Setenv("SKERRY_SERVER", "")
	t.Setenv("XDG_CACHE_HOME", dir)
	return filepath.Join(dir, "ext.json")
}

// skerry runs a command line in this process.
func skerry(stdin io.Reader, stdout, stderr io.Writer, args ...string) int {
	cmd := NewRoot()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(context.Background())
	var f *exit.Failure
	switch {
	case errors.As(err, &f):
		fmt.Fprintln(stderr, err)
		return f.Code
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = skerry(strings.NewReader(stdin), &out, &errs, args...)
	return code, out.String(), errs.String()
}

// TestMCPExitCodes: each kind of failure has its code and says what to do.
func TestMCPExitCodes(t *testing.T) {
	file := extensionsFile(t, false)
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
		says  string
	}{
		"good":             {"", []string{"call", "shop.list_all"}, 0, "of it"},
		"printed name":     {"", []string{"call", "shop__list_all"}, 0, "of it"},
		"args":             {"", []string{"call", "shop.order", "--args", `{"what":"tea","count":2}`}, 0, `"what": "tea"`},
		"args by a pipe":   {`{"what":"tea","count":2}`, []string{"call", "shop.order", "--args", "-"}, 0, `"what": "tea"`},
		"args of no shape": {"", []string{"call", "shop.order", "--args", `[1]`}, 2, "single quotes"},
		"args not JSON":    {"", []string{"call", "shop.order", "--args", `{what`}, 2, "single quotes"},
		"wrong arguments":  {"", []string{"call", "shop.order", "--args", `{"what":1}`}, 2, "--interactive"},
		"two readers":      {"", []string{"call", "shop.order", "--args", "-", "-i"}, 2, "standard input"},
		"no name":          {"", []string{"call"}, 2, "Usage: skerry mcp call SERVER.TOOL"},
		"wrong flag":       {"", []string{"list", "--detail"}, 2, "skerry mcp ls --help"},
		"no tool":          {"", []string{"call", "shop.lst_all"}, 3, "list_all"},
		"no tool, asked":   {"", []string{"call", "shop.none", "-i"}, 3, "list_all, order"},
		"no server":        {"", []string{"list", "--server", "shpo"}, 3, "there are: shop"},
		"tool failed":      {"", []string{"call", "shop.fail"}, 4, "answered with an error"},
		"input ended":      {"tea\n", []string{"call", "shop.order", "-i"}, 2, "before count was given"},
		"no file":          {"", []string{"list", "--config", "/none/such.json"}, 2, "/none/such.json"},
		"both":             {"", []string{"list", "--address", "http://127.0.0.1:1"}, 2, "give one of them"},
	} {
		code, out, errs := run(t, c.stdin, append(append([]string{"mcp"}, "--config", file), c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: code %d, want %d:\n%s%s", name, code, c.code, out, errs)
		}
	}
	if code, _, errs := run(t, "", "mcp", "lsit"); code != 2 || !strings.Contains(errs, "ls, add, rm, search, call, activate, put-away, generate, login, logout, install, drift and serve") {
		t.Errorf("no such command: %d %s", code, errs)
	}
	if code, out, _ := run(t, "", "mcp"); code != 0 || !strings.Contains(out, "Exit codes") {
		t.Errorf("help: %d %s", code, out)
	}
	for name, args := range map[string][]string{
		"nobody there": {"mcp", "list", "--address", "http://127.0.0.1:1"}, "no address": {"mcp", "list", "--address", "ftp://nowhere"},
	} {
		if code, _, errs := run(t, "", args...); code != map[string]int{"nobody there": 1, "no address": 2}[name] {
			t.Errorf("%s: code %d: %s", name, code, errs)
		}
	}
}

// TestMCPPartial: a server that does not answer is named, and hides nothing else.
func TestMCPPartial(t *testing.T) {
	file := extensionsFile(t, true)
	code, out, errs := run(t, "", "mcp", "list", "--config", file)
	if code != 5 || !strings.Contains(out, "order") || !strings.Contains(errs, "1 server did not answer:\n  gone: ") {
		t.Errorf("list: %d\n%s\n%s", code, out, errs)
	}
	dir := filepath.Join(t.TempDir(), "code")
	code, out, _ = run(t, "", "mcp", "generate", "--config", file, "--output", dir, "--json")
	var done struct {
		Servers, Tools int
		Failed         map[string]string
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != 5 || done.Tools != 3 || done.Servers != 1 || done.Failed["gone"] == "" {
		t.Errorf("generate: %d %v\n%s", code, err, out)
	}
	dir = filepath.Join(t.TempDir(), "one")
	if code, out, errs = run(t, "", "mcp", "generate", "--config", file, "--output", dir, "--server", "shop"); code != 0 || !strings.Contains(out, "1 server, 3 tools: ") {
		t.Errorf("generate --server: %d\n%s%s", code, out, errs)
	}
	if made, err := os.ReadDir(filepath.Join(dir, "servers")); err != nil || !slices.ContainsFunc(made, func(e os.DirEntry) bool { return e.Name() == "shop" }) {
		t.Errorf("%v, %v", made, err)
	}
}

// TestMCPList: what a program reads, and what a person reads.
func TestMCPList(t *testing.T) {
	file := extensionsFile(t, false)
	code, out, _ := run(t, "", "mcp", "list", "--config", file, "--json", "--detailed", "--server", "shop")
	var list struct {
		Servers []struct {
			Name  string
			Tools []struct {
				Name, Server string
				ShortName    string `json:"short_name"`
				Parameters   map[string]any
			}
		}
		Total int `json:"total_tools"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || list.Total != 3 || len(list.Servers) != 1 || len(list.Servers[0].Tools) != 3 {
		t.Fatalf("%d %v\n%s", code, err, out)
	}
	if tool := list.Servers[0].Tools[2]; tool.Name != "shop__order" || tool.ShortName != "order" || tool.Parameters["type"] != "object" {
		t.Errorf("%+v", tool)
	}
	_, out, _ = run(t, "", "mcp", "list", "--config", file, "--detailed")
	for _, want := range []string{"count (integer, required)", "size (one of small large, default small)", "1 server, 3 tools"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.ContainsAny(out, "\x1b\x07\u009b") {
		t.Errorf("control sequences: %q", out)
	}
}

// TestMCPInteractive: the questions go to standard error, and the answers become the arguments.
func TestMCPInteractive(t *testing.T) {
	file := extensionsFile(t, false)
	code, out, errs := run(t, "tea\n0\n3\n2\ny\n", "mcp", "call", "shop.order", "--config", file, "--interactive")
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("%d %v\n%s\n%s", code, err, out, errs)
	}
	if got["what"] != "tea" || got["count"] != 3.0 || got["size"] != "large" || got["gift"] != true {
		t.Errorf("%v", got)
	}
	if !strings.Contains(errs, "give at least 1") || strings.ContainsAny(errs, "\x1b\x07") {
		t.Errorf("%q", errs)
	}
	// What --args has is not asked for.
	_, out, errs = run(t, "\n\n", "mcp", "call", "shop.order", "--config", file, "-i", "--args", `{"what":"x","count":1}`)
	if !strings.Contains(out, `"size": "small"`) || strings.Contains(errs, "what (") {
		t.Errorf("%s\n%s", out, errs)
	}
}

// TestMCPTerminal: on a terminal a result loses its control sequences; a pipe and a file get it whole.
func TestMCPTerminal(t *testing.T) {
	file := extensionsFile(t, false)
	master, slave := openPTY(t)
	var shown bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(&shown, master) })
	code := skerry(slave, slave, slave, "mcp", "call", "shop.list_all", "--config", file)
	code2 := skerry(slave, slave, slave, "mcp", "call", "shop.fail", "--config", file)
	slave.Close()
	wg.Wait() // the terminal hangs up
	if code != 0 || code2 != 4 || !strings.Contains(shown.String(), "all red of it") || strings.ContainsAny(shown.String(), "\x1b\x07\u009b") {
		t.Errorf("terminal: %d %d %q", code, code2, shown.String())
	}
	if _, out, _ := run(t, "", "mcp", "call", "shop.list_all", "--config", file); !strings.Contains(out, "\x1b[31mred") {
		t.Errorf("pipe: %q", out)
	}
	target := filepath.Join(t.TempDir(), "result.txt")
	code, out, errs := run(t, "", "mcp", "call", "shop.list_all", "--config", file, "--output", target)
	raw, err := os.ReadFile(target)
	if err != nil || code != 0 || out != "" || !strings.Contains(string(raw), "\x1b[31mred") || !strings.Contains(errs, target) {
		t.Errorf("file: %d %q %q %v", code, raw, errs, err)
	}
}

// TestMCPInteractiveTerminal: a person at a terminal answers the questions one by one.
func TestMCPInteractiveTerminal(t *testing.T) {
	file := extensionsFile(t, false)
	master, slave := openPTY(t)
	var out bytes.Buffer
	done := make(chan int, 1)
	go func() {
		code := skerry(slave, &out, slave, "mcp", "call", "shop.order", "--config", file, "-i")
		slave.Close()
		done <- code
	}()
	var shown strings.Builder
	buf := make([]byte, 4096)
	for _, step := range []struct{ until, answer string }{{"what (string, required)", "tea"}, {"count (integer, required)", "2"}, {"size (one of these", ""}, {"gift (boolean", "n"}} {
		for !strings.Contains(shown.String(), step.until) || !strings.HasSuffix(shown.String(), "> ") {
			n, err := master.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, shown.String())
			}
			shown.Write(buf[:n])
		}
		if _, err := master.WriteString(step.answer + "\n"); err != nil {
			t.Fatal(err)
		}
		shown.Reset()
	}
	go io.Copy(io.Discard, master) // ends when the terminal hangs up
	if code := <-done; code != 0 || !strings.Contains(out.String(), `"count": 2`) || !strings.Contains(out.String(), `"gift": false`) {
		t.Errorf("%d %s", code, out.String())
	}
}

// openPTY returns both ends of a new terminal.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestMCPRemote: the address, the key and the thread reach the server, and its errors keep their kind.
func TestMCPRemote(t *testing.T) {
	t.Setenv("SKERRY_SERVER", "")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k1" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(401)
			fmt.Fprint(w, `{"code":"unauthorized","detail":"send a \u001b[31mkey"}`)
			return
		}
		switch r.Method + " " + r.URL.EscapedPath() {
		case "GET /api/threads/t%2F1/servers":
			fmt.Fprint(w, `{"servers":[{"name":"a b","transport":"http","state":"ready","tool_count":1}]}`)
		case "GET /api/threads/t%2F1/servers/a%20b/tools":
			fmt.Fprint(w, `{"items":[{"name":"a_b__list_x","short_name":"list_x","server":"a b","parameters":{"type":"object"}}]}`)
		case "POST /api/threads/t%2F1/tools/call":
			fmt.Fprint(w, `{"result":{"x":1},"is_error":false,"ms":1,"call_id":"c"}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	at := func(args ...string) []string {
		return append([]string{"mcp", "--address", srv.URL, "--api-key", "k1", "--thread", "t/1"}, args...)
	}
	if code, out, errs := run(t, "", at("call", "a b.list_x")...); code != 0 || !strings.Contains(out, `"x": 1`) {
		t.Errorf("call: %d %s %s", code, out, errs)
	}
	if code, out, errs := run(t, "", at("list")...); code != 0 || !strings.Contains(out, "list_x") {
		t.Errorf("list: %d %s %s", code, out, errs)
	}
	// --server takes the address, too, as the other commands do, beside names of MCP servers.
	if code, out, errs := run(t, "", "mcp", "list", "--server", srv.URL, "--server", "a b", "--api-key", "k1", "--thread", "t/1"); code != 0 || !strings.Contains(out, "list_x") {
		t.Errorf("list: %d %s %s", code, out, errs)
	}
	dir := filepath.Join(t.TempDir(), "code")
	if code, out, errs := run(t, "", at("generate", "--output", dir)...); code != 0 || !strings.Contains(out, "1 server, 1 tool: ") {
		t.Fatalf("generate: %d %s %s", code, out, errs)
	}
	example := exec.Command("python3", filepath.Join(dir, "example.py"))
	example.Env = append(os.Environ(), "SKERRY_API_KEY=k1")
	if out, err := example.CombinedOutput(); err != nil || !strings.Contains(string(out), `a_b__list_x: "{\"x\": 1}"`) {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "helpers/connection.py"))
	if err != nil || strings.Contains(string(text), "k1") || !strings.Contains(string(text), srv.URL) {
		t.Errorf("%v %s", err, text)
	}
	if code, _, errs := run(t, "", "mcp", "--address", srv.URL, "list"); code != 1 || !strings.Contains(errs, "(unauthorized)") {
		t.Errorf("without a key: %d %s", code, errs)
	}
}

// TestLoginCommands: what is no server, or has no login, is said with its code.
func TestLoginCommands(t *testing.T) {
	file := extensionsFile(t, false)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"login"}, exit.Usage, "Usage: skerry mcp login SERVER"},
		{[]string{"login", "none", "--port", "0"}, exit.NoTool, "there is no MCP server"},
		{[]string{"login", "shop", "--port", "0"}, exit.Usage, "is a program"},
		{[]string{"logout", "shop"}, exit.Usage, "is a program"},
	} {
		code, out, errs := run(t, "", append(append([]string{"mcp"}, "--config", file), c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%v: code %d, want %d:\n%s%s", c.args, code, c.code, out, errs)
		}
	}
}
