// Command bench measures Skerry beside its alternatives, side by side in one run on one machine, and
// prints medians and ratios. It is a report, never a test: nothing fails on a time.
//
// It starts a server of its own on the docker driver, and a plain container of the same image to
// `docker exec` into. The rounds of two things that are compared alternate, so that a noisy
// neighbour hurts both alike.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// settings are the flags.
type settings struct {
	bin    string
	cache  string
	image  string
	rounds int
}

func main() {
	var s settings
	flag.StringVar(&s.bin, "bin", "bin", "folder of skerry and skerry-sandboxd")
	flag.StringVar(&s.cache, "cache", "/var/cache/skerry", "folder of the images and MCP servers")
	flag.StringVar(&s.image, "image", "skerry/base:latest", "image for docker exec")
	flag.IntVar(&s.rounds, "rounds", 60, "how often each thing is measured")
	flag.Parse()
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	settings
	url       string
	container string
	mcpMain   string // the filesystem MCP server
	shared    string
}

func run(ctx context.Context, s settings) (err error) {
	dir, err := os.MkdirTemp("", "skerry-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{settings: s, shared: filepath.Join(dir, "shared")}
	if err := b.prepare(dir); err != nil {
		return err
	}
	stop, err := b.serve(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	out, err := exec.CommandContext(ctx, "docker", "run", "-d", "--rm", "--network", "none", s.image, "sleep", "3600").Output()
	if err != nil {
		return fmt.Errorf("docker run: %w", err)
	}
	b.container = strings.TrimSpace(string(out))
	defer func() { err = errors.Join(err, exec.Command("docker", "rm", "-f", b.container).Run()) }()
	return b.all(ctx)
}

func (b *bench) prepare(dir string) error {
	b.mcpMain = filepath.Join(b.cache, "mcp/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"filesystem": map[string]any{"command": "node", "args": []string{b.mcpMain, b.shared}},
	}})
	if err != nil {
		return err
	}
	return errors.Join(
		os.Chmod(dir, 0o755), //nolint:gosec // MCP servers run as nobody
		os.Mkdir(b.shared, 0o755),
		os.WriteFile(filepath.Join(b.shared, "a.txt"), []byte("one\ntwo\n"), 0o644),
		os.Mkdir(filepath.Join(dir, "data"), 0o711),
		os.WriteFile(filepath.Join(dir, "data/extensions_config.json"), config, 0o600),
		os.WriteFile(filepath.Join(dir, "x.ts"), []byte("const x: number = 1; console.log(x)\n"), 0o644))
}

// serve starts the server and returns what ends it.
func (b *bench) serve(dir string) (stop func() error, err error) {
	cmd := exec.Command(filepath.Join(b.bin, "skerry"), "serve", "--driver", "docker", "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "SKERRY_LOG_LEVEL=warn")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "serving on "); ok {
			b.url = strings.Fields(url)[0]
			break
		}
	}
	if b.url == "" {
		return nil, errors.Join(errors.New("the server did not start"), cmd.Wait())
	}
	go io.Copy(io.Discard, out) //nolint:errcheck // ends with the server
	return func() error {
		_, err := b.post(http.MethodDelete, "/api/threads/bench", nil)
		return errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	}, nil
}

func (b *bench) post(method, path string, body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, b.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	return answer, err
}

// code runs a program text and gives its stdout; a program that fails is an error.
func (b *bench) code(language, text string) (string, error) {
	raw, err := b.post(http.MethodPost, "/api/threads/bench/execute_code", map[string]any{"code": text, "language": language, "timeout": 120})
	if err != nil {
		return "", err
	}
	var r struct {
		Stdout, Stderr string
		ExitCode       *int `json:"exit_code"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", err
	}
	if r.ExitCode == nil || *r.ExitCode != 0 {
		return "", fmt.Errorf("%s failed: %s", language, raw)
	}
	return r.Stdout, nil
}

func (b *bench) docker(args ...string) func() error {
	return func() error { return exec.Command("docker", append([]string{"exec", b.container}, args...)...).Run() }
}

// row compares two ways to do one thing.
type row struct {
	name         string
	ours, theirs func() error
	against      string
	bar          float64
}

func (b *bench) all(ctx context.Context) error {
	npx := filepath.Join(b.cache, "mcp")
	rows := []row{
		{"exec true", func() error {
			_, err := b.post(http.MethodPost, "/api/threads/bench/exec", map[string]any{"argv": []string{"true"}})
			return err
		}, b.docker("true"), "docker exec true", 15},
		{"execute_code python", func() error { _, err := b.code("python", "print(1)"); return err }, b.docker("python3", "-c", "print(1)"), "docker exec python3 -c", 5},
		{"execute_code typescript", func() error { _, err := b.code("typescript", "const x: number = 1; console.log(x)"); return err }, func() error {
			cmd := exec.Command("npx", "--no-install", "tsx", "-e", "const x: number = 1; console.log(x)")
			cmd.Dir = npx
			return cmd.Run()
		}, "npx tsx (on the host)", 10},
	}
	fmt.Printf("%-26s %9s %9s   %-24s %9s %9s %8s %6s\n", "Skerry (HTTP API, docker)", "p50 ms", "p95 ms", "against", "p50 ms", "p95 ms", "ratio", "bar")
	for _, r := range rows {
		ours, theirs, err := alternate(b.rounds, r.ours, r.theirs)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("%-26s %9.2f %9.2f   %-24s %9.2f %9.2f %7.1f× %5.0f×\n", r.name, at(ours, 50), at(ours, 95), r.against, at(theirs, 50), at(theirs, 95), at(theirs, 50)/at(ours, 50), r.bar)
	}
	return b.bridge(ctx)
}

// rest lets one side finish what it leaves behind, such as the end of a container's process, before
// the other is measured: else each would pay for the other.
const rest = 30 * time.Millisecond

// alternate measures two functions in turn, after one round of each that does not count.
func alternate(rounds int, x, y func() error) (xs, ys []float64, err error) {
	for i := -1; i < rounds; i++ {
		for _, side := range []struct {
			do  func() error
			out *[]float64
		}{{x, &xs}, {y, &ys}} {
			time.Sleep(rest)
			began := time.Now()
			if err := side.do(); err != nil {
				return nil, nil, err
			}
			if i >= 0 {
				*side.out = append(*side.out, float64(time.Since(began).Microseconds())/1000)
			}
		}
	}
	return xs, ys, nil
}

func at(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

const calls = 300

// bridge compares a tool call made by code in a sandbox with the same call made by a plain MCP client.
func (b *bench) bridge(ctx context.Context) error {
	direct, err := b.direct(ctx)
	if err != nil {
		return err
	}
	path := strconv.Quote(filepath.Join(b.shared, "a.txt"))
	texts := map[string]string{
		"python":     fmt.Sprintf("import time\nfor i in range(%d):\n    t = time.perf_counter()\n    call_mcp_tool('filesystem__read_text_file', {'path': %s})\n    print((time.perf_counter() - t) * 1000)\n", calls, path),
		"typescript": fmt.Sprintf("for (let i = 0; i < %d; i++) { const t = performance.now(); await callMCPTool('filesystem__read_text_file', { path: %s }); console.log(performance.now() - t) }", calls, path),
	}
	fmt.Printf("\n%-40s %9s %9s %12s\n", "one tool call (filesystem read_text_file)", "p50 ms", "p99 ms", "added p50 ms")
	fmt.Printf("%-40s %9.2f %9.2f\n", "plain MCP client, stdio", at(direct, 50), at(direct, 99))
	for _, language := range []string{"python", "typescript"} {
		out, err := b.code(language, texts[language])
		if err != nil {
			return err
		}
		var ms []float64
		for line := range strings.Lines(out) {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
				ms = append(ms, v)
			}
		}
		if len(ms) < calls/2 {
			return fmt.Errorf("%s printed %d times: %s", language, len(ms), out)
		}
		fmt.Printf("%-40s %9.2f %9.2f %12.2f   (bar 3)\n", "from code in the sandbox, "+language, at(ms, 50), at(ms, 99), at(ms, 50)-at(direct, 50))
	}
	return nil
}

func (b *bench) direct(ctx context.Context) ([]float64, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.Command("node", b.mcpMain, b.shared)}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	var ms []float64
	for range calls {
		began := time.Now()
		if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": filepath.Join(b.shared, "a.txt")}}); err != nil {
			return nil, err
		}
		ms = append(ms, float64(time.Since(began).Microseconds())/1000)
	}
	return ms, nil
}
