package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	bridgeRounds = 12
	bridgeCalls  = 48 // of each side in a round, shared by its callers
)

// route is a way to an MCP server that both sides take.
type route struct {
	name, tool, printed string
	input               map[string]any
	connect             func() mcp.Transport
}

// bridge compares a tool call by code in a sandbox with the same call by a plain MCP client on the same
// server. Both have as many callers at once, and take turns within one run. The first call of each caller
// opens its connection and is not counted on either side.
func bridge(ctx context.Context, b *bench) error {
	path := filepath.Join(b.shared, "a.txt")
	routes := []route{
		{"call over http", "echo", "echo__echo", map[string]any{"text": "hello"}, func() mcp.Transport {
			return &mcp.StreamableClientTransport{Endpoint: b.echo}
		}},
		{"call over stdio", "read_text_file", "filesystem__read_text_file", map[string]any{"path": path}, func() mcp.Transport {
			return &mcp.CommandTransport{Command: exec.Command("node", b.mcpMain, b.shared)}
		}},
	}
	for _, r := range routes {
		if err := b.compareRoute(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (b *bench) compareRoute(ctx context.Context, r route) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, r.connect(), nil)
	if err != nil {
		return err
	}
	defer session.Close()
	for _, callers := range []int{1, 8} {
		for _, language := range []string{"python", "typescript"} {
			var ours, theirs []float64
			for i := -1; i < bridgeRounds; i++ {
				x, err := b.callsByCode(language, r, callers)
				if err != nil {
					return err
				}
				time.Sleep(rest)
				y, err := callsByClient(ctx, session, r, callers)
				if err != nil {
					return err
				}
				time.Sleep(rest)
				if i >= 0 {
					ours, theirs = append(ours, x...), append(theirs, y...)
				}
			}
			mine, client := sampled(fmt.Sprintf("%s, %s × %d", r.name, language, callers), ours), sampled(fmt.Sprintf("MCP client × %d", callers), theirs)
			b.row("ms", mine, &client, added, bar{atMost: 1}, "")
			b.row("ms", mine, &client, addedTo, bar{atMost: 5}, "")
		}
	}
	return nil
}

const pythonCalls = `import json, time, threading
call, given, out = CALL, INPUT, []
def work():
    call_mcp_tool(call, given)
    for _ in range(EACH):
        t = time.perf_counter()
        call_mcp_tool(call, given)
        out.append((time.perf_counter() - t) * 1000)
threads = [threading.Thread(target=work) for _ in range(CALLERS)]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps(out))
`

const typescriptCalls = `const out: number[] = [];
async function work() {
  await callMCPTool(CALL, INPUT);
  for (let i = 0; i < EACH; i++) {
    const t = performance.now();
    await callMCPTool(CALL, INPUT);
    out.push(performance.now() - t);
  }
}
await Promise.all(Array.from({ length: CALLERS }, work));
console.log(JSON.stringify(out));
`

// callsByCode runs one round of calls in the sandbox and returns their times in ms.
func (b *bench) callsByCode(language string, r route, callers int) ([]float64, error) {
	input, err := json.Marshal(r.input)
	if err != nil {
		return nil, err
	}
	text := map[string]string{"python": pythonCalls, "typescript": typescriptCalls}[language]
	text = strings.NewReplacer("CALLERS", fmt.Sprint(callers), "EACH", fmt.Sprint(bridgeCalls/callers), "CALL", fmt.Sprintf("%q", r.printed), "INPUT", string(input)).Replace(text)
	out, err := b.code(language, text)
	if err != nil {
		return nil, err
	}
	var ms []float64
	if err := json.Unmarshal([]byte(out), &ms); err != nil {
		return nil, fmt.Errorf("%s printed %s: %w", language, out, err)
	}
	if len(ms) != bridgeCalls {
		return nil, fmt.Errorf("%s made %d calls of %d", language, len(ms), bridgeCalls)
	}
	return ms, nil
}

func callsByClient(ctx context.Context, session *mcp.ClientSession, r route, callers int) ([]float64, error) {
	var mu sync.Mutex
	var ms []float64
	var errs []error
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := -1; i < bridgeCalls/callers; i++ {
				began := time.Now()
				res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: r.tool, Arguments: r.input})
				took := float64(time.Since(began).Microseconds()) / 1000
				if err == nil && res.IsError {
					err = errors.New("the tool answered with an error")
				}
				mu.Lock()
				if errs = append(errs, err); err == nil && i >= 0 {
					ms = append(ms, took)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return ms, errors.Join(errs...)
}

// startEcho starts the HTTP server of the comparison, a process of its own, and returns its address.
func (b *bench) startEcho() (stop func() error, err error) {
	cmd := exec.Command(b.self, serverArg, "echo")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // killed, as it should be
		return err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, errors.Join(errors.New("the echo server did not start"), stop())
	}
	b.echo = lines.Text()
	return stop, nil
}
