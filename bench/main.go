package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	bin      string
	cache    string
	rounds   int
	caseTime time.Duration
	only     string
	driver   string
	bomb     string
	json     string
	svg      string
	page     string
	redraw   bool

	sandboxes int
	bridge    string
}

// part is a group of rows. What is not in a full run is run when it is named.
type part struct {
	name, about string
	named       bool
	run         func(context.Context, *bench) error
}

// parts are in the order in which they run: the tokens change the MCP servers.
var parts = []part{
	{"speed", "one run in a thread whose sandbox is there, ms", false, speed},
	{"recording", "what records and the policy add to an exec, ms", false, recording},
	{"tools", "code that calls tools, and the same calls by a plain MCP client, ms", false, toolCalls},
	{"bridge", "one tool call of code in a sandbox, and of a plain MCP client on the same server, ms", false, bridge},
	{"files", "files of a thread over HTTP, ms", false, files},
	{"starts", "a new thread until its first exec has ended, ms", false, starts},
	{"claims", "the same where a sandbox waits, ms", false, claims},
	{"load", "threads at once, each with runs and files mixed, ms", false, load},
	{"bombs", "exec of a neighbour while a bomb is at work in another sandbox, and without, ms", true, bombs},
	{"tokens", "what tools cost a model, by code and directly, tokens", false, tokens},
	{"idle", "what an idle sandbox costs, MiB", true, idle},
	{"kubernetes", "a new thread until its first exec has ended, where sandboxes are pods of a cluster, ms", true, pods},
	{"scale", "calls as the number of threads grows; tables of its own", true, scale},
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// start does what the arguments say: this program is also the servers that it measures with.
func start() error {
	if len(os.Args) > 1 && os.Args[1] == serverArg {
		return serveMCP(context.Background(), os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == floorArg {
		return serveFloor(os.Args[2:])
	}
	// Children get a signal when the thread that started them ends: this one stays to the end.
	runtime.LockOSThread()
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	var s settings
	flag.StringVar(&s.bin, "bin", "bin", "folder of skerry and skerry-sandboxd")
	flag.StringVar(&s.cache, "cache", "/var/cache/skerry", "folder of the images and MCP servers")
	flag.StringVar(&s.only, "only", "", "only these parts, with commas between: "+strings.Join(names, ", ")+" (bombs, idle, kubernetes and scale only when they are named)")
	flag.StringVar(&s.driver, "driver", "docker", "driver of the server")
	flag.StringVar(&s.bomb, "bomb", "", "of the bombs only this, by its name")
	flag.IntVar(&s.sandboxes, "sandboxes", 100, "how many idle sandboxes are measured")
	flag.StringVar(&s.bridge, "bridge", "skerry/bridge:"+cmp.Or(os.Getenv("SKERRY_TEST_TAG"), "test"), "image of the sidecar of pods, of the same version, which the cluster's nodes have")
	flag.IntVar(&s.rounds, "rounds", rounds, "how often each thing is measured")
	flag.DurationVar(&s.caseTime, "case-time", caseTime, "a case ends when so much time is over, with fewer calls")
	flag.StringVar(&s.json, "json", "", "write the results to this file")
	flag.StringVar(&s.svg, "svg", "", "write the chart to this file")
	flag.StringVar(&s.page, "page", "", "write the table into this page")
	flag.BoolVar(&s.redraw, "redraw", false, "measure nothing: write chart and page from the file -json")
	flag.Parse()
	if s.redraw {
		r, err := read(s.json)
		if err != nil {
			return err
		}
		return r.write("", s.svg, s.page)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, s)
}

// bench is one run.
type bench struct {
	settings
	*server // that of most parts, with the thread "bench"
	dir     string
	self    string // this program, where an unprivileged uid may run it
	echo    string // address of the HTTP server of the tool calls
	mcpMain string // the filesystem MCP server
	shared  string // its folder

	ctx    context.Context // ends with a signal: then what was started is cleared away
	began  time.Time
	part   string
	report report
}

// wanted returns the parts that the flag names, all that a full run has without it.
func wanted(only string) ([]part, error) {
	var list []part
	names := strings.Split(only, ",")
	for _, p := range parts {
		if only == "" && !p.named || slices.Contains(names, p.name) {
			list = append(list, p)
		}
	}
	if only != "" && len(list) != len(names) {
		return nil, fmt.Errorf("-only %s: a part is there twice, or is none of the parts", only)
	}
	return list, nil
}

func run(ctx context.Context, s settings) (err error) {
	list, err := wanted(s.only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "skerry-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{settings: s, ctx: ctx, dir: dir, shared: filepath.Join(dir, "shared"), began: time.Now()}
	b.report = report{MadeAt: b.began.UTC().Format(time.DateOnly), Machine: thisMachine()}
	b.report.Version = said(filepath.Join(s.bin, "skerry"), "version")
	stopEcho, err := b.prepare()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopEcho()) }()
	if b.server, err = b.serve("data", s.driver); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	b.uses("bench")
	var failed error
	for _, p := range list {
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
		b.part = p.name
		printHead(os.Stdout, p.name, p.about)
		// One part that fails does not take the others' results with it.
		if err := p.run(ctx, b); err != nil {
			b.leave(p.name+", from here on", err.Error())
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	b.report.Seconds = int(time.Since(b.began).Seconds())
	fmt.Printf("\n%d rows in %d s\n", len(b.report.Results), b.report.Seconds)
	return errors.Join(failed, b.report.write(s.json, s.svg, s.page))
}

func thisMachine() machine {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Docker: said("docker", "version", "--format", "{{.Server.Version}}")}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel, _, _ = strings.Cut(strings.TrimSpace(string(release)), "-")
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m
}

// said is the first line that a program prints, "" when it cannot.
func said(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(strings.TrimSpace(line), "skerry ")
}

// prepare makes what the servers work on, and returns what ends the HTTP server of the tool calls.
func (b *bench) prepare() (stopEcho func() error, err error) {
	if err := errors.Join(os.Chmod(b.dir, 0o755), b.copySelf()); err != nil { //nolint:gosec // MCP servers run as nobody
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
		os.Mkdir(filepath.Join(b.dir, "data"), 0o711),
		os.WriteFile(filepath.Join(b.dir, "data/extensions_config.json"), config, 0o600))
	if err != nil {
		return nil, errors.Join(err, stopEcho())
	}
	return stopEcho, nil
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

// code runs a program text in the thread of most parts.
func (b *bench) code(language, text string) (string, error) { return b.codeIn("bench", language, text) }
