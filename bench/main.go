// Command bench measures Skerry beside its alternatives, side by side in one run on one machine, and
// prints medians and ratios. It is a report, never a test: nothing fails on a time.
//
// It starts a server of its own on the docker driver, and a plain container of the same image to
// `docker exec` into. The rounds of two things that are compared alternate, so that a noisy
// neighbour hurts both alike. It also counts what tools cost a model in tokens, directly and by code:
// definitions of real tools (testdata), and two tasks in which every call is really made.
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
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	bin    string
	cache  string
	image  string
	rounds int
	only   string
	driver string
	bomb   string

	sandboxes int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == serverArg {
		if err := serveMCP(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	// Children get a signal when the thread that started them ends: this one stays to the end.
	runtime.LockOSThread()
	var s settings
	flag.StringVar(&s.bin, "bin", "bin", "folder of skerry and skerry-sandboxd")
	flag.StringVar(&s.cache, "cache", "/var/cache/skerry", "folder of the images and MCP servers")
	flag.StringVar(&s.image, "image", "skerry/base:latest", "image for docker exec")
	flag.StringVar(&s.only, "only", "", "print only this: speed, bridge, bombs, tokens or idle (idle only when it is named)")
	flag.StringVar(&s.driver, "driver", "docker", "driver of the server")
	flag.StringVar(&s.bomb, "bomb", "", "of the bombs only this, by its name")
	flag.IntVar(&s.sandboxes, "sandboxes", 100, "how many idle sandboxes are measured")
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
	dir       string
	self      string // this program, where MCP servers may run it
	url       string
	server    *exec.Cmd
	echo      string // address of the HTTP server of the bridge's comparison
	container string
	threads   []string // to delete in the end
	mcpMain   string   // the filesystem MCP server
	shared    string
}

func run(ctx context.Context, s settings) (err error) {
	parts := map[string]func(context.Context, *bench) error{
		"speed": speed, "bridge": func(ctx context.Context, b *bench) error { return b.bridge(ctx) },
		"bombs":  func(_ context.Context, b *bench) error { return b.bombs() },
		"tokens": func(_ context.Context, b *bench) error { return b.tokens() },
		"idle":   func(ctx context.Context, b *bench) error { return b.idle(ctx) },
		"scale":  func(ctx context.Context, b *bench) error { return b.scale(ctx) },
	}
	if _, ok := parts[s.only]; !ok && s.only != "" {
		return fmt.Errorf("-only: there is no part %q", s.only)
	}
	dir, err := os.MkdirTemp("", "skerry-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{settings: s, dir: dir, shared: filepath.Join(dir, "shared")}
	stopEcho, err := b.prepare(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopEcho()) }()
	stop, err := b.serve(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	// The tokens go last: they change the MCP servers.
	for _, name := range []string{"speed", "bridge", "bombs", "tokens", "idle", "scale"} {
		if s.only != name && (s.only != "" || name == "idle" || name == "scale") {
			continue
		}
		if name != "tokens" && name != "idle" && name != "scale" && len(b.threads) == 0 {
			b.threads = append(b.threads, "bench")
		}
		if err := parts[name](ctx, b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// speed compares with a plain container of the same image.
func speed(ctx context.Context, b *bench) (err error) {
	out, err := exec.CommandContext(ctx, "docker", "run", "-d", "--rm", "--network", "none", b.image, "sleep", "3600").Output()
	if err != nil {
		return fmt.Errorf("docker run: %w", err)
	}
	b.container = strings.TrimSpace(string(out))
	defer func() { err = errors.Join(err, exec.Command("docker", "rm", "-f", b.container).Run()) }()
	return b.all()
}

// copySelf puts this program where an unprivileged uid can run it.
func (b *bench) copySelf() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	b.self = filepath.Join(b.dir, "bench")
	return os.WriteFile(b.self, raw, 0o755) //nolint:gosec // see above
}

// prepare makes what the server works on, and returns what ends the HTTP server of the comparison.
func (b *bench) prepare(dir string) (stopEcho func() error, err error) {
	if err := errors.Join(os.Chmod(dir, 0o755), b.copySelf()); err != nil { //nolint:gosec // MCP servers run as nobody
		return nil, err
	}
	if stopEcho, err = b.startEcho(); err != nil {
		return nil, err
	}
	b.mcpMain = filepath.Join(b.cache, "mcp/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"filesystem": map[string]any{"command": "node", "args": []string{b.mcpMain, b.shared}},
		"echo":       map[string]any{"type": "http", "url": b.echo},
	}})
	err = errors.Join(err,
		os.Mkdir(b.shared, 0o755),
		os.WriteFile(filepath.Join(b.shared, "a.txt"), []byte("one\ntwo\n"), 0o644),
		os.Mkdir(filepath.Join(dir, "data"), 0o711),
		os.WriteFile(filepath.Join(dir, "data/extensions_config.json"), config, 0o600),
		os.WriteFile(filepath.Join(dir, "x.ts"), []byte("const x: number = 1; console.log(x)\n"), 0o644))
	if err != nil {
		return nil, errors.Join(err, stopEcho())
	}
	return stopEcho, nil
}

// serve starts the server and returns what ends it.
func (b *bench) serve(dir string) (stop func() error, err error) {
	program, err := filepath.Abs(filepath.Join(b.bin, "skerry"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "serve", "--driver", b.driver, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // nothing stays behind, however this ends
	cmd.Env = append(os.Environ(), "SKERRY_LOG_LEVEL=warn", "SKERRY_DISK_QUOTA=off", "SKERRY_IMAGES="+filepath.Join(b.cache, "images"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.server = cmd
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
		var errs []error
		for _, thread := range b.threads {
			_, err := b.post(http.MethodDelete, "/api/threads/"+thread, nil)
			errs = append(errs, err)
		}
		return errors.Join(errors.Join(errs...), cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	}, nil
}

func (b *bench) post(method, path string, body any) ([]byte, error) {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, b.url+path, in)
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

func (b *bench) all() error {
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
	living, err := b.contextRows()
	if err != nil {
		return err
	}
	rows = append(rows, living...)
	fmt.Printf("%-26s %9s %9s   %-24s %9s %9s %8s %6s\n", "Skerry (HTTP API, docker)", "p50 ms", "p95 ms", "against", "p50 ms", "p95 ms", "ratio", "bar")
	for _, r := range rows {
		ours, theirs, err := alternate(b.rounds, r.ours, r.theirs)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("%-26s %9.2f %9.2f   %-24s %9.2f %9.2f %7.1f× %5.0f×\n", r.name, at(ours, 50), at(ours, 95), r.against, at(theirs, 50), at(theirs, 95), at(theirs, 50)/at(ours, 50), r.bar)
	}
	return nil
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
