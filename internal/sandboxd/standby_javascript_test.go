package sandboxd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// jsPath is where JavaScript runtimes are: in the unpacked base image where it was built, and on this machine.
func jsPath() string {
	image := filepath.Join(cmp.Or(os.Getenv("SKERRY_CACHE"), "/var/cache/skerry"), "images/base/rootfs/usr/local/bin")
	return image + ":/usr/local/bin:/usr/bin:/bin"
}

// js is a pair whose programs run on one JavaScript runtime.
type js struct {
	*pair
	runtime string
	env     []string
	cold    bool // asks for no interpreter to wait
	waiting uint32
}

// newJS makes one. Two must not live at once: a daemon that takes orphans ends what it did not start.
func newJS(t testing.TB, runtime string, change ...func(*Options)) *js {
	t.Helper()
	if process.LookPath(runtime, jsPath()) == "" {
		t.Fatalf("%s is not here: make images", runtime)
	}
	p := newPair(t, append(change, func(o *Options) {
		o.BaseEnv = []string{"HOME=" + o.TempDir, "LANG=C.UTF-8", "PATH=" + jsPath()}
	})...)
	return &js{pair: p, runtime: runtime}
}

func (j *js) request(language, text string) *sandboxv1.RunRequest {
	id := j.id()
	return &sandboxv1.RunRequest{
		ExecId: id, TimeoutMs: 20_000, Env: append([]string{"SKERRY_EXEC_ID=" + id, "SKERRY_EXEC_TOKEN=secret-" + id}, j.env...),
		Code: &sandboxv1.Code{Language: language, Text: text, Javascript: j.runtime, Cold: j.cold, Waiting: j.waiting},
	}
}

func (j *js) ts(text string) result {
	j.Helper()
	return j.run(j.request("typescript", text))
}

// oldJS prints whether the process is older than the file of its program.
const oldJS = `
import { readFileSync, statSync } from "node:fs";
const ticks = Number(readFileSync("/proc/self/stat", "latin1").split(") ")[1].split(" ")[19]);
let now, up;
do { // on a busy machine another process may run between the two clocks
  now = Date.now();
  up = Number(readFileSync("/proc/uptime", "latin1").split(" ")[0]);
} while (Date.now() - now > 5);
console.log(now / 1000 - up + ticks / 100 < statSync(process.argv[1]).mtimeMs / 1000 - 0.05);
`

// waitForOne returns once an interpreter waits, or is about to.
func (j *js) waitForOne() {
	j.Helper()
	for range 6000 {
		if len(j.folders()) > 0 {
			time.Sleep(150 * time.Millisecond)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	j.Fatal("none waits")
}

func (j *js) waitForNone() {
	j.Helper()
	for range 2000 {
		if len(j.folders()) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	j.Errorf("it waits still: %v", j.folders())
}

// folders are the private ones: of what runs, and of what waits.
func (j *js) folders() []string {
	j.Helper()
	dirs, err := filepath.Glob(filepath.Join(j.o.TempDir, "code-*"))
	if err != nil {
		j.Fatal(err)
	}
	return dirs
}

// privateFolder is what differs between any two runs.
var privateFolder = regexp.MustCompile(`code-[0-9]+`)

var jsRuntimes = []string{"bun", "node", "deno"}

// programsJS are all that a program can see of how it was started, and all that it does with it.
var programsJS = map[string]string{
	"arguments": `console.log(JSON.stringify([process.argv, process.execArgv.length, import.meta.url, import.meta.filename, import.meta.dirname, process.cwd(), process.title.length > 0]))`,
	"main":      `console.log(import.meta.main, typeof require, typeof module, this === undefined)`,
	"globals": `console.log(JSON.stringify([Object.getOwnPropertyNames(globalThis).filter((n) => n !== "__coverage__").sort(), Object.getOwnPropertyNames(process).sort(),
  Object.getOwnPropertyNames(Object.prototype).sort(), Object.getOwnPropertySymbols(globalThis).length]))`,
	"environment": `console.log(JSON.stringify(Object.entries(process.env).sort()))`,
	"commands": `import { execSync, spawnSync, fork } from "node:child_process";
const say = "echo $SKERRY_EXEC_ID $SKERRY_EXEC_TOKEN $SKERRY_STANDBY $PWD";
console.log(execSync(say).toString(), spawnSync("sh", ["-c", say]).stdout.toString(), execSync("env | cut -d= -f1 | grep -v ^_ | sort").toString());`,
	"own commands": `const words = ["sh", "-c", "echo $SKERRY_EXEC_ID $SKERRY_EXEC_TOKEN"];
process.env.LATER = "1";
const g = globalThis as any;
if (g.Bun) {
  const read = async (p: any) => await new Response(p.stdout).text();
  console.log(await read(g.Bun.spawn(words)), await read(g.Bun.spawn({ cmd: words })), g.Bun.spawnSync(words).stdout.toString(), g.Bun.spawnSync(words, { env: { SKERRY_EXEC_ID: "mine" } }).stdout.toString());
  console.log(await g.Bun.$` + "`sh -c 'echo $SKERRY_EXEC_ID'`.text()" + `, g.Bun.spawnSync(["sh", "-c", "env | cut -d= -f1 | grep -v ^_ | sort"]).stdout.toString(), g.Bun.spawn.name, g.Bun.spawn.length);
  const { spawnSync } = await import("bun");
  console.log(spawnSync(words).stdout.toString());
  try { g.Bun.spawnSync([]); } catch (e) { console.log(String(e)); }
  try { g.Bun.spawnSync(); } catch (e) { console.log(String(e)); }
  g.Bun.spawnSync(["/no/such/program"]);
} else if (g.Deno) {
  console.log(new TextDecoder().decode(new g.Deno.Command("sh", { args: words.slice(1) }).outputSync().stdout), g.Deno.mainModule, g.Deno.args);
}`,
	"workers": `import { Worker as Threads } from "node:worker_threads";
const text = "postMessage(process.env.SKERRY_EXEC_ID)";
if (globalThis.Worker && !(globalThis as any).Deno) {
  const w = new Worker(URL.createObjectURL(new Blob([text])));
  console.log(await new Promise((r) => w.onmessage = (e) => r(e.data)), w instanceof Worker, w.constructor.name);
  w.terminate();
}
const t = new Threads("require('node:worker_threads').parentPort.postMessage(process.env.SKERRY_EXEC_ID)", { eval: true });
console.log(await new Promise((r) => t.once("message", r)));
await t.terminate();`,
	"descriptors": `import { readdirSync, readlinkSync } from "node:fs";
const kinds = [];
for (const fd of readdirSync("/proc/self/fd")) {
  try { const to = readlinkSync("/proc/self/fd/" + fd); if (!/anon_inode|proc/.test(to)) kinds.push(to.replace(/[0-9]+/, "N")); } catch {}
}
// A third of a second after its start Deno opens a pair of sockets for itself.
console.log("Deno" in globalThis ? new Set(kinds.sort()) : kinds.sort());`,
	"stdin": `import { readFileSync } from "node:fs"; console.log(JSON.stringify(readFileSync(0, "utf8")), process.stdin.isTTY); for await (const c of process.stdin) console.log("some", c); console.log("end");`,
	"stack": `interface A {
  b: string;
}
function f(a: A): never {
  throw new Error("boom " + a.b);
}
console.error("before");
f({ b: "x" });`,
	"rejection":   "const wait = () => new Promise((_, no) => setTimeout(() => no(new TypeError('later')), 5));\nawait wait();",
	"unhandled":   "Promise.reject(new Error('nobody cares'));\nsetTimeout(() => console.log('not reached'), 2000);",
	"syntax":      "const x: number = 1;\nconst y = = 2;\n",
	"exit":        "process.on('exit', (c) => console.log('exit', c)); console.log('a'); process.exit(7);",
	"exit code":   "process.exitCode = 3; console.log('b');",
	"signal":      "process.kill(process.pid, 'SIGKILL'); setTimeout(() => {}, 5000);",
	"await":       "const x: number = await Promise.resolve(3);\nconst { basename } = await import('node:path');\nconsole.log(x, basename('/a/b'));\nexport {};",
	"timers":      "setImmediate(() => { console.log('immediate'); setTimeout(() => console.log('timeout'), 10); }); queueMicrotask(() => console.log('microtask')); process.nextTick(() => console.log('tick')); console.log('sync');",
	"package":     "import mine from 'mine';\nimport { deep } from 'mine/deep.js';\nconsole.log(mine.five, deep);",
	"no package":  "import x from 'no-such-package-of-ours';\nconsole.log(x);",
	"wrappers":    "import { readFile } from './servers/files';\nimport { callMCPTool } from './helpers/callMCPTool';\nconsole.log((await readFile({ path: 'p' })).tool, typeof callMCPTool);",
	"a tool":      "console.log(JSON.stringify([await callMCPTool('x__y', { a: 1 }), await callMCPTool('x__y', {})]));\nfunction inner() {\n  return callMCPTool('fails', {});\n}\nawait inner();",
	"late module": "console.log((await import(process.cwd() + '/late.ts')).late, (await import(process.cwd() + '/sub/late.ts')).late);",
	"types":       "enum Colour { Red }\nconsole.log(Colour.Red);",
	"unicode":     "console.log('ü', process.env.UNICODE, [...'日本'].length);",
	"session":     "import { readFileSync } from 'node:fs'; const f = readFileSync('/proc/self/stat', 'latin1').split(') ')[1].split(' '); console.log(f[2] === f[3], Number(f[3]) === process.pid, process.ppid === Number(f[1]));",
	"large":       "// " + strings.Repeat("x", 300_000) + "\nconsole.log('end');",
	"output":      "process.stdout.write('no newline'); console.error('err'); console.log('x'.repeat(200_000).length);",
}

// TestStandbyJavaScript: a program that runs in a process that waited can tell only by its age.
func TestStandbyJavaScript(t *testing.T) {
	for _, runtime := range jsRuntimes {
		t.Run(runtime, func(t *testing.T) {
			j := newJS(t, runtime)
			j.env = []string{"UNICODE=größe"}
			files := map[string]string{
				"code-api/helpers/callMCPTool.ts":                    "export async function callMCPTool<T>(tool: string, input: object): Promise<T> {\n  if (tool === 'fails') throw new Error('it fails');\n  return { tool, input } as T;\n}\n",
				"code-api/servers/files/readFile.ts":                 "import { callMCPTool } from '../../helpers/callMCPTool';\nexport const readFile = (input: { path: string }) => callMCPTool<{ tool: string }>('files__read', input);\n",
				"code-api/servers/files/index.ts":                    "export * from './readFile';\n",
				"user-data/workspace/node_modules/mine/package.json": `{"name":"mine","version":"1.0.0","main":"index.js"}`,
				"user-data/workspace/node_modules/mine/index.js":     "module.exports = { five: 5 };",
				"user-data/workspace/node_modules/mine/deep.js":      "exports.deep = 6;",
			}
			write := func(name, text string) {
				t.Helper()
				path := filepath.Join(filepath.Dir(j.data), name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range files {
				write(name, text)
			}
			// The folders that the late modules come into are there, and seen, when the process starts.
			write("user-data/workspace/sub/early.ts", "")
			neutral := func(r result, id string) string {
				all := fmt.Sprintf("%v %d %s\n--stdout\n%s\n--stderr\n%s", r.GetStatus(), r.GetCode(), r.GetReason(), r.stdout, r.stderr)
				return privateFolder.ReplaceAllString(strings.ReplaceAll(all, id, "ID"), "code-N")
			}
			warm := map[string]string{}
			names := make([]string, 0, len(programsJS))
			for name := range programsJS {
				names = append(names, name)
			}
			slices.Sort(names)
			j.ts("0")
			for i, name := range names {
				j.waitForOne()
				if i == 0 {
					write("user-data/workspace/late.ts", "export const late: number = 1;\n")
					write("user-data/workspace/sub/late.ts", "export const late: number = 2;\n")
				}
				r := j.ts(programsJS[name])
				warm[name] = neutral(r, fmt.Sprintf("exec-%d", j.count))
			}
			j.waitForOne()
			if r := j.ts(oldJS); r.stdout != "true\n" {
				t.Errorf("nothing waits: %q %s", r.stdout, r.stderr)
			}
			j.waitForOne()
			j.cold = true
			j.ts("0")
			for _, name := range names {
				r := j.ts(programsJS[name])
				if cold := neutral(r, fmt.Sprintf("exec-%d", j.count)); cold != warm[name] {
					t.Errorf("%s:\ncold: %s\nwarm: %s", name, cold, warm[name])
				}
			}
			if r := j.ts(oldJS); r.stdout != "false\n" {
				t.Errorf("what is meant to be cold waited: %q %s", r.stdout, r.stderr)
			}
		})
	}
}

// TestStandbyIsolation: nothing of one program is there for the next, whatever it did to its process.
func TestStandbyIsolation(t *testing.T) {
	const spoil = `
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { spawn } from "node:child_process";
const write = (text: string) => new Promise((done) => process.stdout.write(text, done));
spawn("sleep", ["4321"], { detached: true, stdio: "ignore" }).unref();
fs.openSync("/etc/hostname", "r");
fs.writeFileSync(path.dirname(process.argv[1]) + "/leak.txt", process.argv[1]);
await write(process.argv[1] + "\n");
const g = globalThis as any;
g.leak = "leak";
(Object.prototype as any).leak = "leak";
Array.prototype.map = () => ["leak"] as any;
console.log = () => {};
process.env.LEAK = "leak";
process.argv.push("leak");
process.chdir("/");
createRequire(import.meta.url)("node:fs").readFileSync = () => "leak";
try { (fs as any).readFileSync = () => "leak"; (path as any).basename = () => "leak"; } catch {}
try { g.callMCPTool = () => "leak"; } catch {}
process.exit(0);
`
	const look = `
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
const g = globalThis as any;
const files = [];
for (const fd of fs.readdirSync("/proc/self/fd")) {
  try { if (fs.readlinkSync("/proc/self/fd/" + fd).includes("hostname")) files.push(fd); } catch {}
}
let others = 0;
for (const pid of fs.readdirSync("/proc")) {
  try { if (fs.readFileSync("/proc/" + pid + "/cmdline", "latin1") === "sleep\\x004321\\x00") others++; } catch {}
}
console.log(JSON.stringify([g.leak ?? null, ({} as any).leak ?? null, [1].map((x) => x + 1), process.env.LEAK ?? null, process.argv.length, process.cwd(),
  createRequire(import.meta.url)("node:fs").readFileSync("/etc/hostname", "utf8") === "leak", path.basename("/a/b"), typeof callMCPTool, String(g.callMCPTool).includes("leak"),
  files, others, fs.existsSync("FORMER"), fs.readdirSync(path.dirname(process.argv[1])).includes("leak.txt")]));
`
	for _, runtime := range jsRuntimes {
		t.Run(runtime, func(t *testing.T) {
			j := newJS(t, runtime)
			j.ts("0")
			j.waitForOne()
			first := j.ts(spoil)
			if first.GetCode() != 0 || !strings.HasPrefix(first.stdout, j.o.TempDir) {
				t.Fatalf("%q %s", first.stdout, first.stderr)
			}
			j.waitForOne()
			former := strings.TrimSpace(first.stdout)
			got := j.ts(strings.ReplaceAll(look, "FORMER", filepath.Dir(former)))
			want := fmt.Sprintf(`[null,null,[2],null,2,%q,false,"b","function",false,[],0,false,false]`, j.o.WorkspaceDir) + "\n"
			if got.stdout != want || got.stderr != "" {
				t.Errorf("%q %s\nwant %q", got.stdout, got.stderr, want)
			}
		})
	}
}

// TestStandbyLostJavaScript: what code does to the process that waits, or to its folder, harms no next program.
func TestStandbyLostJavaScript(t *testing.T) {
	for _, runtime := range jsRuntimes {
		t.Run(runtime, func(t *testing.T) {
			j := newJS(t, runtime)
			j.ts("0")
			for name, spoil := range map[string]func(dir, main string) error{
				"a link in place of its file": func(_, main string) error { return os.Symlink("/etc/passwd", main+".new") },
				"its file is a FIFO": func(_, main string) error {
					return errors.Join(os.Remove(main), unix.Mkfifo(main, 0o600))
				},
				"its file is another one": func(_, main string) error { return os.WriteFile(main, []byte("console.log('another')"), 0o600) },
				"its folder is gone":      func(dir, _ string) error { return os.RemoveAll(dir) },
				"it is killed":            func(dir, _ string) error { return unix.Kill(j.processOf(dir), unix.SIGKILL) },
			} {
				j.waitForOne()
				dirs := j.folders()
				if len(dirs) != 1 {
					t.Fatalf("%s: %v", name, dirs)
				}
				mains, err := filepath.Glob(filepath.Join(dirs[0], "main.*"))
				if err != nil || len(mains) != 1 {
					t.Fatalf("%s: %v, %v", name, mains, err)
				}
				if err := spoil(dirs[0], mains[0]); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if r := j.ts("console.log(2)"); r.GetCode() != 0 || r.stdout != "2\n" {
					t.Errorf("%s: %v, code %d (%s) %q %s", name, r.GetStatus(), r.GetCode(), r.GetReason(), r.stdout, r.stderr)
				}
			}
		})
	}
}

// processOf finds the process that was started with a file of the folder.
func (j *js) processOf(dir string) int {
	j.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		j.Fatal(err)
	}
	for _, name := range all {
		if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), dir+"/main.") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				j.Fatal(err)
			}
			return pid
		}
	}
	j.Fatalf("no process has %s", dir)
	return 0
}

// TestStandbySeesStartFiles: what a runtime reads when it starts, and code wrote while one waited, is in force.
func TestStandbySeesStartFiles(t *testing.T) {
	for _, runtime := range jsRuntimes {
		t.Run(runtime, func(t *testing.T) {
			j := newJS(t, runtime)
			j.ts("0")
			j.waitForOne()
			for name, text := range map[string]string{"node_modules/late/package.json": `{"name":"late","main":"index.js"}`, "node_modules/late/index.js": "module.exports = 8;"} {
				path := filepath.Join(j.o.WorkspaceDir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if r := j.ts("import late from 'late';\nconsole.log(late);"); r.stdout != "8\n" {
				t.Errorf("a package: %v (%s) %q %s", r.GetStatus(), r.GetReason(), r.stdout, r.stderr)
			}
			if runtime != "bun" {
				return
			}
			j.waitForOne()
			if err := os.WriteFile(filepath.Join(j.o.WorkspaceDir, ".env"), []byte("FROM_FILE=yes\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, when := range []string{"before it started", "while it waited"} {
				if r := j.ts("console.log(process.env.FROM_FILE, Bun.spawnSync(['sh', '-c', 'echo $FROM_FILE']).stdout.toString());"); r.stdout != "yes yes\n\n" {
					t.Errorf(".env, written %s: %q %s", when, r.stdout, r.stderr)
				}
				j.waitForOne()
			}
		})
	}
}

// TestStandbyEnds: an unused one does not wait for good.
func TestStandbyEnds(t *testing.T) {
	j := newJS(t, "bun", func(o *Options) { o.WaitingAge = time.Millisecond })
	j.ts("0")
	j.waitForOne()
	j.waitForNone()
	if r := j.ts("console.log(1)"); r.stdout != "1\n" {
		t.Errorf("after it: %q %s", r.stdout, r.stderr)
	}
}

// TestStandbyYields: none waits when memory runs short.
func TestStandbyYields(t *testing.T) {
	cgroup := t.TempDir()
	anon := func(n int) {
		t.Helper()
		if err := errors.Join(os.WriteFile(filepath.Join(cgroup, "memory.max"), []byte("1000000\n"), 0o600),
			os.WriteFile(filepath.Join(cgroup, "memory.stat"), fmt.Appendf(nil, "anon %d\n", n), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	anon(500_000)
	j := newJS(t, "bun", func(o *Options) { o.Cgroups = cgroup })
	j.ts("0")
	j.waitForOne()
	anon(900_000)
	j.waitForNone()
	if r := j.ts("console.log(1)"); r.stdout != "1\n" {
		t.Errorf("short of memory: %q %s", r.stdout, r.stderr)
	}
	j.waitForNone()
}

// TestStandbysOfOneLanguage: as many wait as were asked for.
func TestStandbysOfOneLanguage(t *testing.T) {
	j := newJS(t, "bun")
	j.waiting = 3
	j.ts("0")
	for range 1000 {
		if len(j.folders()) == 3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(150 * time.Millisecond)
	for range 3 {
		if r := j.ts(oldJS); r.stdout != "true\n" {
			t.Errorf("%q %s", r.stdout, r.stderr)
		}
	}
	if n := len(j.folders()); n > 4 {
		t.Errorf("%d folders", n)
	}
}

// BenchmarkStandby measures a print in a standby beside a cold start, alternating. Then it measures programs
// right after each other, for which there may be none yet. -benchtime=200x prints medians of 200.
func BenchmarkStandby(b *testing.B) {
	for _, c := range []struct{ runtime, language, text string }{
		{"bun", "typescript", "const x: number = 1; console.log(x)"}, {"node", "typescript", "const x: number = 1; console.log(x)"},
		{"node", "javascript", "console.log(1)"}, {"deno", "typescript", "const x: number = 1; console.log(x)"}, {"python3", "python", "print(1)"},
	} {
		b.Run(c.runtime+"/"+c.language, func(b *testing.B) {
			j := newJS(b, c.runtime)
			if c.runtime == "python3" {
				j.runtime = ""
			}
			once := func(waiting uint32, cold bool) float64 {
				j.waiting = waiting
				r := j.request(c.language, c.text)
				r.Code.Cold = cold
				if cold {
					r.Stdin = []byte("x") // what has a stdin has never waited
				}
				began := time.Now()
				if got := j.run(r); got.GetCode() != 0 {
					b.Fatal(got.stderr)
				}
				return float64(time.Since(began).Microseconds()) / 1000
			}
			median := func(name string, values []float64) {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], name+"-p50-ms")
			}
			const rest = 100 * time.Millisecond
			var cold, warm []float64
			rows := map[string][]float64{}
			once(1, false)
			for b.Loop() {
				time.Sleep(rest)
				cold = append(cold, once(1, true))
				time.Sleep(rest)
				warm = append(warm, once(1, false))
			}
			b.ReportMetric(0, "ns/op")
			median("cold", cold)
			median("waited", warm)
			for round := range 2 * b.N / 10 {
				waiting := uint32(1 + round%2)
				time.Sleep(2 * rest)
				for range 5 {
					name := fmt.Sprintf("five-in-a-row-%d-wait", waiting)
					rows[name] = append(rows[name], once(waiting, false))
				}
			}
			for name, values := range rows {
				median(name, values)
			}
		})
	}
}
