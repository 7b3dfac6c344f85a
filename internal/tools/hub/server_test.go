package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serverArgument is the first argument with which a test binary becomes the server.
const serverArgument = "test-server"

// serveOr runs the server when the process was started as one, else the tests, and returns the exit code. The
// server does what servers should not do. Arguments after the first say how the server behaves from the start: "hang" (it
// never answers), "exit" (it ends at once), "noisy" (lines on standard output that are no messages),
// "legacy" (it never answers server/discover), "late" (it answers that one late, and refuses the older protocol then).
func serveOr(run func() int) int {
	switch {
	case len(os.Args) == 3 && os.Args[1] == conformanceArgument:
		return conformanceClient(os.Args[2])
	case len(os.Args) < 2 || os.Args[1] != serverArgument:
		return run()
	}
	fmt.Fprintln(os.Stderr, "test server is starting", strings.Repeat("x", 5000))
	var in io.ReadCloser = os.Stdin
	for _, how := range os.Args[2:] {
		switch how {
		case "raw":
			return serveRaw()
		case "hang":
			time.Sleep(time.Hour)
		case "exit":
			fmt.Fprintln(os.Stderr, "I end")
			return 3
		case "noisy":
			fmt.Println("Welcome to the test server!")
			fmt.Println(`{"level":"info"}`)
		case "legacy":
			in = dropDiscover(in)
		case "late":
			in = delayDiscover(in)
		}
	}
	// The race detector would keep the process for a second at its end.
	defer func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }()
	err := newTestServer().Run(context.Background(), &mcp.IOTransport{Reader: in, Writer: stdout{}})
	if err != nil && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "closing") {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type stdout struct{}

func (stdout) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdout) Close() error                { return nil }

// dropDiscover passes on all messages but server/discover.
func dropDiscover(in io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		d := json.NewDecoder(in)
		for {
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				_ = w.CloseWithError(err)
				return
			}
			if !strings.Contains(string(raw), `"server/discover"`) {
				_, _ = w.Write(append(raw, '\n'))
			}
		}
	}()
	return r
}

// delayDiscover passes on server/discover after a while. What asks for the older protocol meanwhile is refused in the words
// of the Python SDK.
func delayDiscover(in io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		d := json.NewDecoder(in)
		for {
			var m struct {
				rawMessage
				raw json.RawMessage
			}
			if err := d.Decode(&m.raw); err != nil {
				_ = w.CloseWithError(err)
				return
			}
			_ = json.Unmarshal(m.raw, &m.rawMessage)
			switch m.Method {
			case "server/discover":
				time.AfterFunc(300*time.Millisecond, func() { _, _ = w.Write(append(m.raw, '\n')) })
			case "initialize":
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"connection is serving the 2026-07-28 protocol"}}`+"\n", m.ID)
			default:
				_, _ = w.Write(append(m.raw, '\n'))
			}
		}
	}()
	return r
}

// testBinary copies the running test binary to where every uid can start it and returns its path.
func testBinary(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "mcphub-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "server")
	if err := os.Link(self, path); err == nil {
		return path
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// newTestServer returns the server, for any transport.
func newTestServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	addTestTool(s, "echo", `{"type":"object","properties":{"zulu":{"type":"string"},"message":{"type":"string","description":"what to say"},"alpha":{"type":"integer","minimum":1}},"required":["message"],"additionalProperties":false}`,
		func(_ context.Context, a map[string]any) (*mcp.CallToolResult, error) {
			return textResult(fmt.Sprint(a["message"])), nil
		})
	addTestTool(s, "sleep", `{"type":"object","properties":{"ms":{"type":"integer"}}}`, func(ctx context.Context, a map[string]any) (*mcp.CallToolResult, error) {
		ms, _ := a["ms"].(float64)
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-ctx.Done():
			_ = os.Setenv("SLEEP_CANCELLED", "1")
		}
		return textResult("slept"), nil
	})
	addTestTool(s, "crash", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		os.Exit(7)
		return nil, nil
	})
	addTestTool(s, "flood", `{"type":"object","properties":{"bytes":{"type":"integer"}}}`, func(_ context.Context, a map[string]any) (*mcp.CallToolResult, error) {
		n, _ := a["bytes"].(float64)
		return textResult(strings.Repeat("f", int(n))), nil
	})
	addTestTool(s, "fail", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		r := textResult("it did not work")
		r.IsError = true
		return r, nil
	})
	addTestTool(s, "blocks", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a"}, &mcp.ImageContent{Data: []byte{1}, MIMEType: "image/png"}}}, nil
	})
	addTestTool(s, "json", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		return textResult(`{"b": 1, "a": [true, null]}`), nil
	})
	addTestTool(s, "structured", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"z":9007199254740993,"a":"<&>"}`), Content: []mcp.Content{&mcp.TextContent{Text: "see there"}}}, nil
	})
	addTestTool(s, "env", `{"type":"object","properties":{"name":{"type":"string"}}}`, func(_ context.Context, a map[string]any) (*mcp.CallToolResult, error) {
		if name, _ := a["name"].(string); name != "" {
			return textResult(os.Getenv(name)), nil
		}
		return textResult(strings.Join(os.Environ(), "\n")), nil
	})
	addTestTool(s, "whoami", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		status, _ := os.ReadFile("/proc/self/status")
		wd, _ := os.Getwd()
		out, err := json.Marshal(map[string]any{"uid": os.Getuid(), "gid": os.Getgid(), "pid": os.Getpid(), "cwd": wd, "status": string(status)})
		return textResult(string(out)), err
	})
	addTestTool(s, "spawn", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			return nil, err
		}
		return textResult(fmt.Sprint(c.Process.Pid)), nil
	})
	addTestTool(s, "grow", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) {
		addTestTool(s, "grown", "", func(context.Context, map[string]any) (*mcp.CallToolResult, error) { return textResult("new"), nil })
		return textResult("grown"), nil
	})
	return s
}

func textResult(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func addTestTool(s *mcp.Server, name, schema string, do func(context.Context, map[string]any) (*mcp.CallToolResult, error)) {
	if schema == "" {
		schema = `{"type":"object"}`
	}
	s.AddTool(&mcp.Tool{Name: name, Description: "does " + name, InputSchema: json.RawMessage(schema)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		args := map[string]any{}
		if len(r.Params.Arguments) > 0 {
			if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
				return nil, err
			}
		}
		return do(ctx, args)
	})
}
