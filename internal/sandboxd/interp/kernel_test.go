package interp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// kernel is a context under test.
type kernel struct {
	*bed
	s   *process.Session
	dir string // for large results
}

// modules returns a folder with IPython for this machine's python3: the base image's, where it has none.
func modules(t testing.TB) string {
	t.Helper()
	if exec.Command(process.LookPath("python3", envPath), "-c", "import IPython").Run() == nil {
		return ""
	}
	dir := filepath.Join(cmp.Or(os.Getenv("SKERRY_CACHE"), "/var/cache/skerry"), "images/base/rootfs/usr/lib/python3/dist-packages")
	if _, err := os.Stat(filepath.Join(dir, "IPython")); err != nil {
		t.Fatal("IPython is not here: make images")
	}
	return ":" + dir
}

func (b *bed) kernel(r *Runner, language string) *kernel {
	b.Helper()
	p, err := r.Kernel(language, b.cwd, b.how)
	if err != nil {
		b.Fatal(err)
	}
	env := []string{"PATH=" + envPath, "HOME=" + b.temp, "PWD=" + b.cwd}
	for _, kv := range p.Env {
		if strings.HasPrefix(kv, "PYTHONPATH=") {
			kv += modules(b)
		}
		env = append(env, kv)
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	s, err := b.m.OpenSession(ctx, process.Request{Argv: p.Argv, Env: env, Cwd: b.cwd, Cleanup: p.Cleanup})
	if err != nil {
		b.Fatal(err)
	}
	return &kernel{bed: b, s: s, dir: filepath.Join(b.temp, "results")}
}

// run runs one cell; env is "NAME=value".
func (k *kernel) run(code string, env ...string) result {
	k.Helper()
	return k.exec(k.request(code, 60*time.Second, env...))
}

func (k *kernel) request(code string, timeout time.Duration, env ...string) process.Request {
	vars := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	frame, err := json.Marshal(map[string]any{"run": fmt.Sprint(k.n + 1), "code": code, "env": vars, "dir": k.dir})
	if err != nil {
		k.Fatal(err)
	}
	return process.Request{Session: k.s, Frame: frame, Cwd: k.cwd, Timeout: timeout}
}

// results joins what a run displayed.
func (r result) results() string {
	var parts []string
	for _, p := range r.Results {
		parts = append(parts, string(p))
	}
	return strings.Join(parts, "\n")
}

// wantResult runs a cell that is to end well and display this.
func (k *kernel) wantResult(code, want string) {
	k.Helper()
	r := k.run(code)
	k.want(r, 0, "")
	if r.results() != want {
		k.Errorf("%s: results %s, want %s", code, r.results(), want)
	}
}

func text(s string) string { return `{"text/plain": "` + s + `"}` }

// TestResultsForE2B: a run that asks for it is told which result is the value of the code, and gets frames and charts as data; the
// code does not see that it was asked for. Other runs have what they had.
func TestResultsForE2B(t *testing.T) {
	b := newBed(t)
	k := b.kernel(b.runner("python3"), "python")
	const data = "E2B_RESULTS=data"
	// What stands for pandas and matplotlib here; the template "data" has them, and the tests of E2B's SDKs use them.
	k.want(k.run(`
import sys, types
class DataFrame:
    def to_json(self, **how):
        return '{"columns": ["a", 1], "index": [0, 1], "data": [[1, "x"], [2, null]]}'
    def __repr__(self):
        return "frame"
class Figure:
    def __repr__(self):
        return "figure"
sys.modules["pandas"] = types.SimpleNamespace(DataFrame=DataFrame)
sys.modules["matplotlib.figure"] = types.SimpleNamespace(Figure=Figure)
sys.modules["e2b_charts"] = types.SimpleNamespace(chart_figure_to_dict=lambda f: {"type": "bar", "x": types.SimpleNamespace(item=lambda: 3)})
None`), 0, "")
	for _, c := range []struct{ code, env, want string }{
		{"import os\n'E2B_RESULTS' in os.environ", data, `{"text/plain": "False", "application/vnd.e2b.main+json": true}`},
		{"display(1)\nNone", data, text("1")},
		{"DataFrame()", data, `{"text/plain": "frame", "application/vnd.e2b.data+json": {"a": [1, 2], "1": ["x", null]}, "application/vnd.e2b.main+json": true}`},
		{"display(Figure())", data, `{"text/plain": "figure", "application/vnd.e2b.chart+json": {"type": "bar", "x": 3}}`},
		{"DataFrame()", "A=b", text("frame")},
		{"del sys.modules['e2b_charts']\nFigure()", data, `{"text/plain": "figure", "application/vnd.e2b.main+json": true}`},
	} {
		r := k.run(c.code, c.env)
		k.want(r, 0, "")
		if got := r.results(); got != c.want {
			t.Errorf("%s: %s, want %s", c.code, got, c.want)
		}
	}
}

func TestPythonContext(t *testing.T) {
	b := newBed(t)
	b.withCodeAPI()
	k := b.kernel(b.runner("python3"), "python")
	k.wantResult("x = 5\nx + 1", text("6"))
	k.wantResult("_ + x", text("11"))
	k.wantResult("x = 7;", "")
	k.want(k.run("import os, sys\nprint('out', x, flush=False)\nprint('err', file=sys.stderr)\nos.system('echo child')\nNone"), 0, "out 7\nchild\n")
	k.wantResult("import asyncio\nawait asyncio.sleep(0)\nx", text("7"))
	k.wantResult("(__name__, os.getcwd() == "+fmt.Sprintf("%q", b.cwd)+")", text("('__main__', True)"))
	k.wantResult("call_mcp_tool('a__b', {'x': 1})['tool']", text("'a__b'"))
	k.wantResult("from servers.files import read_file\nread_file('p')['tool']", text("'files__read'"))

	r := k.run("def f():\n    1 / 0\n\nf()\n")
	k.want(r, 1, "")
	if !strings.Contains(r.stderr, "line 4\n    f()") || !strings.Contains(r.stderr, "ZeroDivisionError: division by zero") || strings.Contains(r.stderr, "kernel.py") {
		t.Errorf("traceback:\n%s", r.stderr)
	}
	k.want(k.run("x +"), 1, "")
	k.want(k.run("print('last')\nsys.exit(9)"), 9, "last\n")
	k.want(k.run("input()"), 1, "")
	k.wantResult("x", text("7"))

	// The variables of one run are not those of the next.
	r = k.run("print(os.environ['SKERRY_EXEC_TOKEN'])\nos.environ['MINE'] = '1'", "SKERRY_EXEC_TOKEN=one")
	k.want(r, 0, "one\n")
	k.want(k.run("print(os.environ['SKERRY_EXEC_TOKEN'])", "SKERRY_EXEC_TOKEN=two"), 0, "two\n")
	k.wantResult("'SKERRY_EXEC_TOKEN' in os.environ, os.environ['MINE']", text("(False, '1')"))
	// Two contexts share nothing.
	other := b.kernel(b.runner("python3"), "python")
	k.want(other.run("x"), 1, "")
}

func TestRichResults(t *testing.T) {
	b := newBed(t)
	k := b.kernel(b.runner("python3"), "python")
	k.want(k.run(`
class Rich:
    def __repr__(self): return "plain"
    def _repr_html_(self): return "<b>é</b>"
    def _repr_png_(self): return b"\x89PNG"
    def _repr_svg_(self): return "<svg/>"
    def _repr_latex_(self): return "$x$"
    def _repr_json_(self): return {"a": [1, None]}
`), 0, "")
	var got map[string]any
	r := k.run("display(Rich())\nprint('printed')\nRich()")
	k.want(r, 0, "printed\n")
	if len(r.Results) != 2 || json.Unmarshal(r.Results[0], &got) != nil || string(r.Results[0]) != string(r.Results[1]) {
		t.Fatalf("results %s", r.results())
	}
	want := map[string]any{
		"text/plain": "plain", "text/html": "<b>é</b>", "image/png": "iVBORw==", "image/svg+xml": "<svg/>",
		"text/latex": "$x$", "application/json": map[string]any{"a": []any{1.0, nil}},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	k.wantResult("h = display('a', display_id=True)\nh.update('b')\n1", text("'b'")+"\n"+text("1"))

	// Large data is in a file.
	r = k.run("class P:\n  def _repr_png_(self): return b'x' * 3_000_000\nP()")
	var large struct {
		Files []struct {
			MIME, Path string
			Bytes      int
		} `json:"application/vnd.skerry.file+json"`
	}
	if len(r.Results) != 1 || json.Unmarshal(r.Results[0], &large) != nil || len(large.Files) != 1 {
		t.Fatalf("results %.300s", r.results())
	}
	f := large.Files[0]
	info, err := os.Stat(f.Path)
	if err != nil || info.Size() != 3_000_000 || f.Bytes != 3_000_000 || f.MIME != "image/png" || filepath.Dir(f.Path) != k.dir {
		t.Errorf("%+v, %v", f, err)
	}
	r = k.run("for i in range(100): display(i)")
	kept, err := os.ReadFile(filepath.Join(k.dir, "results.jsonl"))
	if err != nil || len(r.Results) != 64 || r.LeftOut != 36 || strings.Count(string(kept), "\n") != 36 || !strings.Contains(r.stderr, "results.jsonl") {
		t.Errorf("%d results, %d left out, %v, kept %s; %s", len(r.Results), r.LeftOut, err, kept, r.stderr)
	}
	// A value that cannot be shown is no end of anything.
	k.want(k.run("class Bad:\n  def __repr__(self): 1 / 0\nBad()"), 0, "")
	k.wantResult("'\\ud800'", text(`'\\ud800'`))
}

// interrupts are cells that do not end, and what each leaves.
func TestPythonContextIsInterrupted(t *testing.T) {
	b := newBed(t)
	k := b.kernel(b.runner("python3"), "python")
	k.want(k.run("x = 1"), 0, "")
	for _, endless := range []string{
		"x = 2\nwhile True: pass",
		"import subprocess\nx = 3\nsubprocess.run(['sleep', '100'])",
		"import os\nx = 4\nos.system('sleep 100')\nwhile True: pass",
		"import asyncio\nx = 5\nawait asyncio.sleep(100)",
	} {
		start := time.Now()
		r := k.exec(k.request(endless, 500*time.Millisecond))
		if r.Status != process.TimedOut || r.Lost || time.Since(start) > 20*time.Second {
			t.Fatalf("%q: %+v after %v; %s", endless, r.Exit, time.Since(start), r.stderr)
		}
		if strings.Contains(r.stderr, "kernel.py") {
			t.Errorf("traceback:\n%s", r.stderr)
		}
	}
	k.wantResult("x", text("5"))
	// By a caller, before the deadline; and while nothing runs.
	if err := k.s.Interrupt(); err != nil {
		t.Fatal(err)
	}
	k.wantResult("x", text("5"))
	go func() {
		for !k.s.Busy() {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		_ = k.s.Interrupt()
	}()
	r := k.run("x = 6\nwhile True: pass")
	if r.Status != process.Exited || r.Code != 130 || !strings.Contains(r.stderr, "KeyboardInterrupt") {
		t.Errorf("%+v %s", r.Exit, r.stderr)
	}
	k.wantResult("x", text("6"))
	// What does not heed it ends with its context.
	r = k.exec(k.request("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 500*time.Millisecond))
	if r.Status != process.TimedOut || !r.Lost {
		t.Errorf("%+v", r.Exit)
	}
	<-k.s.Gone()
}

func TestPythonContextEnds(t *testing.T) {
	b := newBed(t)
	k := b.kernel(b.runner("python3"), "python")
	k.want(k.run("import os, subprocess\nchild = subprocess.Popen(['sleep', '1000']).pid\nprint(child > 1)"), 0, "True\n")
	r := k.run("print(child)\nos._exit(7)")
	if r.Status != process.Exited || r.Code != 7 || !r.Lost || r.stdout == "" {
		t.Fatalf("%+v %s", r.Exit, r.stdout)
	}
	<-k.s.Gone()
	if _, err := os.Stat("/proc/" + strings.TrimSpace(r.stdout) + "/fd"); err == nil {
		t.Error("what the context started outlives it")
	}
	if r = k.run("1"); r.Status != process.FailedToStart {
		t.Errorf("a run in a context that is gone: %+v", r.Exit)
	}
	// A killed run takes its context with it.
	k = b.kernel(b.runner("python3"), "python")
	req := k.request("while True: pass", time.Minute)
	b.n++
	e, _, err := b.m.Start(fmt.Sprint(b.n), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-k.s.Gone()
	if err := k.s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHostileContext: code that writes our frames ends its own runs only, and what it says is bounded.
func TestHostileContext(t *testing.T) {
	b := newBed(t)
	k := b.kernel(b.runner("python3"), "python")
	forge := `
import os, json
fd = next(int(f) for f in os.listdir('/proc/self/fd') if int(f) >= 200)
def frame(m):
    body = m if isinstance(m, bytes) else json.dumps(m).encode()
    os.write(fd, len(body).to_bytes(4, 'little') + body)
`
	k.want(k.run(forge), 0, "")
	r := k.run("frame({'run': 'another', 'code': 5})\nframe({'run': '', 'ready': True})\nprint('on')")
	k.want(r, 0, "on\n")
	r = k.run(fmt.Sprintf("frame({'run': '%d', 'code': 1000, 'results': [{'text/plain': 'x'}] * 100, 'left_out': 1})", b.n+1))
	if r.Code != 255 || len(r.Results) != 64 || r.LeftOut != 37 {
		t.Errorf("code %d, %d results, %d left out", r.Code, len(r.Results), r.LeftOut)
	}
	k.want(k.run("print('goes on')"), 0, "goes on\n")
	// A question without an answer ends the context.
	r = k.run("os.write(fd, b'\\xff\\xff\\xff\\x7f')\nimport time\ntime.sleep(100)")
	if !r.Lost || r.Duration > 30*time.Second {
		t.Errorf("%+v", r.Exit)
	}
	k = b.kernel(b.runner("python3"), "python")
	r = k.run("import os\nos.closerange(3, 1000)")
	if !r.Lost {
		t.Errorf("%+v", r.Exit)
	}
}

func TestContextsThatCannotBe(t *testing.T) {
	b := newBed(t)
	r := b.runner("bash")
	var u *UnavailableError
	for _, language := range []string{"python", "bash"} {
		if _, err := r.Kernel(language, b.cwd, b.how); !errors.As(err, &u) {
			t.Errorf("%s: %v", language, err)
		}
	}
	if _, err := r.Kernel("perl", b.cwd, b.how); !errors.Is(err, ErrLanguage) {
		t.Error(err)
	}
	// A Python without IPython says so.
	p, err := b.runner("python3").Kernel("python", b.cwd, b.how)
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{p.Argv[0], "-S"}, p.Argv[1:]...)
	var refused *process.RefusedError
	_, err = b.m.OpenSession(t.Context(), process.Request{Argv: argv, Env: []string{"PATH=" + envPath, "HOME=" + b.temp}, Cwd: b.cwd, Cleanup: p.Cleanup})
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, "IPython") {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(b.temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestInterruptHitsItsRun: an interrupt that crosses the end of its run does not hit the next one, however late its supervisor sends it.
func TestInterruptHitsItsRun(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		k                    *kernel
		parent, crossed, one string // crossed ends when the file "asked" is there, and makes "over"
	}{
		{
			b.kernel(b.runner("python3"), "python"), "import os, time; print(os.getppid())",
			"while not os.path.exists('asked'): time.sleep(0.01)\nos.rename('asked', 'over')", "time.sleep(1.5)",
		},
		{
			b.nodeKernel("javascript"), "const fs = require('fs'), wait = (ms) => new Promise((r) => setTimeout(r, ms)); console.log(process.ppid)",
			"while (!fs.existsSync('asked')) await wait(10);\nfs.renameSync('asked', 'over')", "await wait(1500)",
		},
	} {
		r := c.k.run(c.parent)
		supervisor, err := strconv.Atoi(strings.TrimSpace(r.stdout))
		if err != nil {
			t.Fatal(err, r.stderr)
		}
		if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		go func() {
			for !c.k.s.Busy() {
				time.Sleep(time.Millisecond)
			}
			if err := c.k.s.Interrupt(); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(filepath.Join(b.cwd, "asked"), nil, 0o600); err != nil {
				t.Error(err)
			}
			for os.Remove(filepath.Join(b.cwd, "over")) != nil && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Second)
			_ = syscall.Kill(supervisor, syscall.SIGCONT)
		}()
		c.k.want(c.k.run(c.crossed), 0, "")
		c.k.want(c.k.run(c.one), 0, "")
		// One that comes in time hits.
		time.AfterFunc(100*time.Millisecond, func() { _ = c.k.s.Interrupt() })
		if r := c.k.run(c.one); r.Code != 130 || r.Lost {
			t.Errorf("%+v %s", r.Exit, r.stderr)
		}
	}
}
