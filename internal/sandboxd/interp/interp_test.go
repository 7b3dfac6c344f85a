package interp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

func TestMain(m *testing.M) {
	process.SuperviseIfAsked()
	goleak.VerifyTestMain(m)
}

const envPath = "/usr/local/bin:/usr/bin:/bin"

// programs finds interpreters on this machine, and in the unpacked base image where it was built.
func programs(name string) string {
	image := filepath.Join(cmp.Or(os.Getenv("SKERRY_CACHE"), "/var/cache/skerry"), "images/base/rootfs/usr/local/bin")
	return process.LookPath(name, image+":"+envPath+":"+os.Getenv("PATH"))
}

type bed struct {
	*testing.T
	m       *process.Manager
	codeAPI string
	temp    string
	cwd     string
	how     Choice
	n       int
}

func newBed(t *testing.T) *bed {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m, err := process.New(process.Options{Supervisor: []string{exe, process.SuperviseCommand}, Orphans: true, SpillRoot: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	b := &bed{T: t, m: m, codeAPI: t.TempDir(), temp: t.TempDir(), cwd: t.TempDir()}
	return b
}

// withCodeAPI writes a code API of one tool, in both languages.
func (b *bed) withCodeAPI() {
	b.Helper()
	for name, text := range map[string]string{
		"helpers/callMCPTool.ts":    "export async function callMCPTool<T>(tool: string, input: object): Promise<T> {\n  return { tool, input } as T;\n}\n",
		"helpers/call_mcp_tool.py":  "def call_mcp_tool(tool, input):\n    return {'tool': tool, 'input': input}\n",
		"helpers/__init__.py":       "",
		"servers/files/readFile.ts": "import { callMCPTool } from '../../helpers/callMCPTool';\nexport const readFile = (input: { path: string }) => callMCPTool<{ tool: string }>('files__read', input);\n",
		"servers/files/index.ts":    "export * from './readFile';\n",
		"servers/files/__init__.py": "from helpers.call_mcp_tool import call_mcp_tool\ndef read_file(path):\n    return call_mcp_tool('files__read', {'path': path})\n",
		"servers/__init__.py":       "",
		"servers/broken/index.ts":   "throw new Error('broken wrapper');\n",
	} {
		path := filepath.Join(b.codeAPI, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// runner that finds only the named interpreters.
func (b *bed) runner(names ...string) *Runner {
	b.Helper()
	found := map[string]string{}
	for _, n := range names {
		found[n] = programs(n)
	}
	return b.runnerOf(found)
}

func (b *bed) runnerOf(programs map[string]string) *Runner {
	b.Helper()
	dir := b.TempDir()
	for n, path := range programs {
		if err := os.Symlink(path, filepath.Join(dir, n)); err != nil {
			b.Fatal(err)
		}
	}
	return New(Options{TempDir: b.temp, CodeAPIDir: b.codeAPI, Path: dir, NodeVersion: func(node string) (string, error) {
		r := b.exec(process.Request{Argv: []string{node, "--version"}, Cwd: "/", Timeout: 10 * time.Second})
		return r.stdout, nil
	}})
}

type result struct {
	*process.Exit
	stdout, stderr string
}

func (b *bed) exec(req process.Request) (r result) {
	b.Helper()
	b.n++
	e, _, err := b.m.Start(fmt.Sprint(b.n), req)
	if err != nil {
		b.Fatal(err)
	}
	for after := uint64(0); ; {
		events, err := e.Next(b.Context(), after, 100)
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, ev := range events {
			after = ev.N
			switch {
			case ev.Exit != nil:
				r.Exit = ev.Exit
			case ev.Stderr:
				r.stderr += string(ev.Data)
			default:
				r.stdout += string(ev.Data)
			}
		}
	}
}

func (b *bed) run(r *Runner, language, text string) result {
	b.Helper()
	p, err := r.Prepare(language, text, b.cwd, b.how)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Cleanup()
	env := append([]string{"PATH=" + envPath, "HOME=" + b.temp}, p.Env...)
	return b.exec(process.Request{Argv: p.Argv, Env: env, Cwd: b.cwd, Timeout: 30 * time.Second})
}

func (b *bed) want(r result, code int, stdout string) {
	b.Helper()
	if r.Status != process.Exited || r.Code != code || r.stdout != stdout {
		b.Errorf("code %d (%s), stdout %q; want %d, %q; stderr %s", r.Code, r.Reason, r.stdout, code, stdout, r.stderr)
	}
}

func TestPython(t *testing.T) {
	b := newBed(t)
	r := b.runner("python3")
	b.want(b.run(r, "python", "import os\nprint('hello', __name__, os.getcwd())"), 0, "hello __main__ "+b.cwd+"\n")
	b.want(b.run(r, "python", "import os\nprint('first')\nos.write(1, b'second\\n')\nprint('third')"), 0, "first\nsecond\nthird\n")
	got := b.run(r, "python", "def f():\n    1 / 0\n\nf()\n")
	if got.Code != 1 || !strings.Contains(got.stderr, `main.py", line 4, in <module>`+"\n    f()") || !strings.Contains(got.stderr, "line 2, in f\n    1 / 0") || strings.Contains(got.stderr, "sitecustomize") {
		t.Errorf("traceback:\n%s", got.stderr)
	}
	got = b.run(r, "python", "call_mcp_tool('x__y', {})")
	if got.Code != 1 || !strings.Contains(got.stderr, "No module named 'helpers'") {
		t.Errorf("a tool call without a code API: %s", got.stderr)
	}
	b.withCodeAPI()
	b.want(b.run(r, "python", "print(call_mcp_tool('x__y', {'a': 1}))\nprint(call_mcp_tool('x__y', {}))"), 0,
		"{'tool': 'x__y', 'input': {'a': 1}}\n{'tool': 'x__y', 'input': {}}\n")
	b.want(b.run(r, "python", "from servers.files import read_file\nfrom helpers.call_mcp_tool import call_mcp_tool as c\nprint(read_file('p')['tool'])"), 0, "files__read\n")
	if err := os.WriteFile(filepath.Join(b.cwd, "mine.py"), []byte("x = 5"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.want(b.run(r, "python", "import mine\nprint(mine.x)"), 0, "5\n")
	if _, err := os.Stat(filepath.Join(b.cwd, "__pycache__")); err == nil {
		t.Error("compiled files are left in the workspace")
	}
}

func TestBash(t *testing.T) {
	b := newBed(t)
	r := b.runner("bash")
	b.want(b.run(r, "bash", "pwd\necho \"$0\" | grep -c main.sh\nexit 4"), 4, b.cwd+"\n1\n")
	b.want(b.run(r, "bash", strings.Repeat("true # long text\n", 20000)+"echo end"), 0, "end\n")
}

// All that holds on every JavaScript runtime.
func TestJavaScriptRuntimes(t *testing.T) {
	found := 0
	for _, name := range []string{"bun", "deno", "node"} {
		if programs(name) == "" {
			continue
		}
		found++
		t.Run(name, func(t *testing.T) { testRuntime(t, name, programs(name)) })
	}
	// The machine's own node may be an older one than the image's.
	if own := process.LookPath("node", os.Getenv("PATH")); own != "" && own != programs("node") {
		t.Run("own node", func(t *testing.T) { testRuntime(t, "node", own) })
	}
	if found == 0 {
		t.Fatal("no JavaScript runtime on this machine")
	}
}

func testRuntime(t *testing.T, name, program string) {
	b := newBed(t)
	r := b.runnerOf(map[string]string{name: program})
	b.want(b.run(r, "javascript", "const x = await Promise.resolve(process.cwd());\nconsole.log('hello', x);"), 0, "hello "+b.cwd+"\n")
	got := b.run(r, "javascript", "const a = 1;\n\nfunction f() {\n  throw new Error('boom');\n}\nf();\n")
	if got.Code == 0 || !strings.Contains(got.stderr, "boom") || !strings.Contains(got.stderr, "main.mjs:4:") || !strings.Contains(got.stderr, "main.mjs:6:") {
		t.Errorf("stack trace: code %d\n%s", got.Code, got.stderr)
	}
	b.want(b.run(r, "javascript", "process.exit(9)"), 9, "")
	got = b.run(r, "javascript", "import x from 'no-such-package-of-ours';")
	if got.Code == 0 || got.Duration > 5*time.Second || !strings.Contains(got.stderr, "no-such-package-of-ours") {
		t.Errorf("an import that does not exist: code %d after %v\n%s", got.Code, got.Duration, got.stderr)
	}
	modules := filepath.Join(b.cwd, "node_modules", "mine")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"package.json": `{"name":"mine","version":"1.0.0","main":"index.js"}`, "index.js": "module.exports = { five: 5 };"} {
		if err := os.WriteFile(filepath.Join(modules, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.want(b.run(r, "javascript", "import mine from 'mine';\nconsole.log(mine.five);"), 0, "5\n")

	if !slices.Contains(r.Available(), "typescript") {
		got = b.run(r, "javascript", "await callMCPTool('x__y', {});")
		if got.Code == 0 || !strings.Contains(got.stderr, "needs bun, deno or node 22.6") {
			t.Errorf("a tool call without an import: %s", got.stderr)
		}
		return
	}
	b.want(b.run(r, "typescript", "const x: number = await Promise.resolve(3);\nconsole.log(x as unknown as string);"), 0, "3\n")
	got = b.run(r, "typescript", "interface A {\n  b: string;\n}\nconst f = (a: A): never => {\n  throw new Error('boom ' + a.b);\n};\nf({ b: 'x' });\n")
	if got.Code == 0 || !strings.Contains(got.stderr, "boom x") || !strings.Contains(got.stderr, "ts:5:") || !strings.Contains(got.stderr, "ts:7:") {
		t.Errorf("stack trace: code %d\n%s", got.Code, got.stderr)
	}
	got = b.run(r, "typescript", "await callMCPTool('x__y', {});")
	if got.Code == 0 || !strings.Contains(got.stderr, "callMCPTool") {
		t.Errorf("a tool call without a code API: %s", got.stderr)
	}
	b.withCodeAPI()
	b.want(b.run(r, "typescript", "console.log(JSON.stringify([await callMCPTool('x__y', { a: 1 }), await callMCPTool('x__y', {})]));"), 0,
		`[{"tool":"x__y","input":{"a":1}},{"tool":"x__y","input":{}}]`+"\n")
	b.want(b.run(r, "typescript", "import { readFile } from './servers/files';\nimport { callMCPTool } from './helpers/callMCPTool';\nconsole.log((await readFile({ path: 'p' })).tool, typeof callMCPTool);"), 0,
		"files__read function\n")
	b.want(b.run(r, "javascript", "import { readFile } from './servers/files';\nconsole.log((await readFile({ path: 'p' })).tool);"), 0, "files__read\n")
}

func TestPrivateFolder(t *testing.T) {
	b := newBed(t)
	r := b.runner("bash", "python3")
	p, err := r.Prepare("python", "x", b.cwd, Choice{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(p.Argv[len(p.Argv)-1])
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "servers")); err != nil || target != filepath.Join(b.codeAPI, "servers") {
		t.Errorf("%q, %v", target, err)
	}
	p.Cleanup()
	if left, err := os.ReadDir(b.temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestUnavailable(t *testing.T) {
	b := newBed(t)
	none := b.runner()
	if got := none.Available(); len(got) > 0 {
		t.Errorf("%v", got)
	}
	for _, l := range Languages {
		var u *UnavailableError
		if _, err := none.Prepare(l, "", b.cwd, Choice{}); !errors.As(err, &u) {
			t.Errorf("%s: %v", l, err)
		}
	}
	if _, err := none.Prepare("cobol", "", b.cwd, Choice{}); !errors.Is(err, ErrLanguage) {
		t.Errorf("cobol: %v", err)
	}
	if _, err := none.Prepare("bash", strings.Repeat("x", MaxText+1), b.cwd, Choice{}); err == nil {
		t.Error("a text that is too long was accepted")
	}
	if got := b.runner("bash", "python3").Available(); !slices.Equal(got, []string{"python", "bash"}) {
		t.Errorf("%v", got)
	}
}

func TestNodeVersions(t *testing.T) {
	node := filepath.Join(t.TempDir(), "node")
	if err := os.WriteFile(node, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for says, want := range map[string]struct{ strips, flag bool }{
		"v20.20.2": {false, false}, "v22.5.9": {false, false}, "v22.6.0": {true, true}, "v22.18.0": {true, false},
		"v23.5.0": {true, true}, "v23.6.0": {true, false}, "v24.0.0": {true, false},
	} {
		var n nodeVersions
		for range 2 {
			asked := 0
			v, err := n.version(node, func(string) (string, error) { asked++; return says + "\n", nil })
			if err != nil || v.stripsTypes() != want.strips || want.strips && v.needsFlag() != want.flag || v.major == 0 {
				t.Errorf("%s: %+v, %v", says, v, err)
			}
		}
	}
	var n nodeVersions
	if _, err := n.version(node, func(string) (string, error) { return "Segmentation fault", nil }); err == nil {
		t.Error("nonsense was taken for a version")
	}
	if got := (version{20, 1}).String(); got != "20.1" {
		t.Error(got)
	}
}

func BenchmarkHello(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	m, err := process.New(process.Options{Supervisor: []string{exe, process.SuperviseCommand}, SpillRoot: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close(context.Background())
	for _, c := range []struct{ program, language, text string }{
		{"python3", "python", "print('hello')"}, {"bun", "typescript", "const x: string = 'hello'; console.log(x)"},
		{"deno", "typescript", "const x: string = 'hello'; console.log(x)"}, {"node", "javascript", "console.log('hello')"}, {"bash", "bash", "echo hello"},
	} {
		program := programs(c.program)
		if program == "" {
			continue
		}
		b.Run(c.program, func(b *testing.B) {
			dir := b.TempDir()
			if err := os.Symlink(program, filepath.Join(dir, c.program)); err != nil {
				b.Fatal(err)
			}
			r := New(Options{TempDir: b.TempDir(), CodeAPIDir: b.TempDir(), Path: dir, NodeVersion: func(string) (string, error) { return "v22.20.0", nil }})
			for i := 0; b.Loop(); i++ {
				p, err := r.Prepare(c.language, c.text, dir, Choice{})
				if err != nil {
					b.Fatal(err)
				}
				e, _, err := m.Start(fmt.Sprint(b.Name(), b.N, i), process.Request{Argv: p.Argv, Env: append(p.Env, "HOME="+dir), Cwd: dir, Timeout: time.Minute, Cleanup: p.Cleanup})
				if err != nil {
					b.Fatal(err)
				}
				if err := e.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestDenoPermissions: what a template does not list, a program may not do; tools work all the same.
func TestDenoPermissions(t *testing.T) {
	if programs("deno") == "" {
		t.Fatal("deno is not here: make images")
	}
	b := newBed(t)
	b.withCodeAPI()
	b.how = Choice{JavaScript: "deno", Deno: &Permissions{Read: []string{b.cwd}, Env: []string{"HOME"}}}
	r := b.runner("deno", "bun")
	text := `
const tried = async (name: string, f: () => unknown) => { try { await f(); console.log(name, "allowed"); } catch (e) { console.log(name, (e as Error).name); } };
await tried("own folder", () => Deno.readTextFileSync("mine.txt"));
await tried("etc", () => Deno.readTextFileSync("/etc/hostname"));
await tried("write", () => Deno.writeTextFileSync("x.txt", "x"));
await tried("home", () => Deno.env.get("HOME"));
await tried("path", () => Deno.env.get("PATH"));
await tried("run", () => new Deno.Command("true").outputSync());
await tried("net", () => Deno.connect({ hostname: "127.0.0.1", port: 1 }));
`
	if err := os.WriteFile(filepath.Join(b.cwd, "mine.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := b.run(r, "typescript", text)
	want := "own folder allowed\netc NotCapable\nwrite NotCapable\nhome allowed\npath NotCapable\nrun NotCapable\nnet NotCapable\n"
	b.want(got, 0, want)
	b.want(b.run(r, "typescript", "console.log(await callMCPTool('x__y', { a: 1 }) !== undefined)"), 0, "true\n")
	b.how = Choice{JavaScript: "node"}
	var u *UnavailableError
	if _, err := r.Prepare("typescript", "", b.cwd, b.how); !errors.As(err, &u) || !strings.Contains(u.Reason, "no node") {
		t.Errorf("%v", err)
	}
}
