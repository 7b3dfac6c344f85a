package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/wasm/wasmtest"
)

const wasmRunner = "/opt/skerry/skerry-sandboxd"

// TestWasm: WebAssembly runs by execute_code, as a script of a skill and from a command, with the thread's files and within
// bounds; what it may not have it does not reach. The sandbox and its other execs live on.
func TestWasm(t *testing.T) {
	t.Parallel()
	path, err := wasmtest.Guest(t.TempDir())
	must(t, err)
	guest, err := os.ReadFile(path)
	must(t, err)
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			short := strings.Replace(fmt.Sprintf(template, "base", runtime), "name: base", "name: short", 1) + "wasm: {cpu_s: 1}\n"
			s := start(t, options{runtime: runtime, template: "wasm: {memory: 64MiB}\n", templates: map[string]string{"short.yaml": short}})
			w := wasmThread{s, t}
			w.ways()
			w.put("guest.wasm", guest)
			w.guest()
			w.bounds()
			if got := s.ok("w", "cat kept.txt"); got != "kept" {
				t.Errorf("after all: %q", got)
			}
		})
	}
}

// manyImports is a module whose one section names more imports than it has bytes.
var manyImports = []byte("\x00asm\x01\x00\x00\x00\x02\x09\xff\xff\xffA0\x00\x00\x00\x00")

type wasmThread struct {
	s *server
	t *testing.T
}

func (w wasmThread) code(code string, more map[string]any) result {
	w.t.Helper()
	body := map[string]any{"language": "wasm", "code": code, "timeout": 120}
	for k, v := range more {
		body[k] = v
	}
	return w.s.run("w", "execute_code", body)
}

func (w wasmThread) module(m []byte, more map[string]any) result {
	w.t.Helper()
	return w.code(base64.StdEncoding.EncodeToString(m), more)
}

// put writes a file into the workspace.
func (w wasmThread) put(name string, data []byte) {
	w.t.Helper()
	r := w.s.run("w", "exec", map[string]any{"argv": []string{"sh", "-c", `base64 -d > "$1"`, "sh", name}, "stdin": base64.StdEncoding.EncodeToString(data)})
	if r.ExitCode == nil || *r.ExitCode != 0 {
		w.t.Fatalf("put %s: %+v", name, r)
	}
}

func (w wasmThread) want(what string, r result, code int, stdout, stderr string) {
	w.t.Helper()
	if r.ExitCode == nil || *r.ExitCode != code || r.Stdout != stdout || !strings.Contains(r.Stderr, stderr) || stderr == "" && r.Stderr != "" {
		w.t.Errorf("%s: %s %+v, want code %d, %q and %q", what, r.Status, r, code, stdout, stderr)
	}
}

// ways are the three by which a module runs.
func (w wasmThread) ways() {
	const hello = "hello from wasm\n"
	w.want("in base64", w.module(wasmtest.Hello(), nil), 0, hello, "")
	w.put("hello.wasm", wasmtest.Hello())
	w.want("by path", w.code("/mnt/user-data/workspace/hello.wasm", nil), 0, hello, "")
	w.want("by a command", w.s.exec("w", wasmRunner+" wasm hello.wasm"), 0, hello, "")
	made := w.s.do("POST", "/api/threads/w/skills", map[string]any{
		"name": "greets", "description": "Greets", "body": "Run scripts/hello.wasm.", "files": map[string]string{"scripts/hello.wasm": string(wasmtest.Hello())},
	})
	if made.status != 201 {
		w.t.Fatalf("%d %s", made.status, made.body)
	}
	w.want("as a script", w.s.run("w", "skills/greets/run", map[string]any{"script": "scripts/hello.wasm"}), 0, hello, "")
	w.want("what is not there", w.code("/mnt/user-data/workspace/none.wasm", nil), 127, "", "none.wasm: no such file or directory")
	for code, says := range map[string]string{"/etc/passwd": "is not the path of a .wasm file of the thread", "print(1)": "neither a module in base64", "aGVsbG8=": "is no WebAssembly module"} {
		a := w.s.do("POST", "/api/threads/w/execute_code", map[string]any{"language": "wasm", "code": code})
		if a.status != 422 && a.status != 400 || !strings.Contains(string(a.body), says) {
			w.t.Errorf("%s: %d %s", code, a.status, a.body)
		}
	}
}

// guest is a program of some size: its files, arguments, streams and variables, and what it does not see.
func (w wasmThread) guest() {
	w.s.ok("w", "ln -s /proc/self/environ environ; ln -s / root; ln -s ../workspace/in.txt in; echo -n input > in.txt; mkdir -p ../outputs")
	steps := []string{
		"args", "stdin", "read=in", "write=/mnt/user-data/outputs/out.txt,written", "write=kept.txt,kept", "ls=/mnt/skills/virtual", "write=/mnt/skills/virtual/x,x",
		"read=environ", "read=root/etc/passwd", "read=/etc/passwd", "read=/proc/self/environ", "read=/proc/1/cmdline", "ls=/proc", "read=/run/skerry/control.sock",
		"read=../../../etc/passwd", "ls=root", "ls=/tmp",
	}
	r := w.s.run("w", "exec", map[string]any{
		"argv": append([]string{wasmRunner, "wasm", "guest.wasm"}, steps...), "stdin": "typed", "timeout_s": 300, "report_files": true,
	})
	lines := strings.Split(r.Stdout, "\n")
	want := []string{"args: " + strings.Join(steps, " "), "stdin: typed", "read: input", "write: ", "write: ", "ls: greets/", "write: error open /mnt/skills/virtual/x: Read-only file system"}
	for range 9 {
		want = append(want, "error")
	}
	want = append(want, "ls: ")
	if len(lines) != len(want)+1 {
		w.t.Fatalf("%+v", r)
	}
	for i, line := range want {
		if line == "error" && strings.Contains(lines[i], ": error ") {
			continue
		}
		if lines[i] != line {
			w.t.Errorf("%s: %q, want %q", steps[i], lines[i], line)
		}
	}
	if got := w.s.ok("w", "cat ../outputs/out.txt"); got != "written" {
		w.t.Errorf("out.txt: %q", got)
	}
	r = w.s.run("w", "exec", map[string]any{"argv": []string{wasmRunner, "wasm", "guest.wasm", "env", "exit=9"}, "env": map[string]string{"GREETING": "hi"}, "timeout_s": 300})
	if r.ExitCode == nil || *r.ExitCode != 9 || !strings.Contains(r.Stdout, "GREETING=hi") || strings.Contains(r.Stdout, "SKERRY_") || strings.Contains(r.Stdout, "MCP_") {
		w.t.Errorf("%+v", r)
	}
}

// bounds: what a hostile module can take.
func (w wasmThread) bounds() {
	if r := w.module(wasmtest.Loop(), map[string]any{"timeout": 1}); r.Status != "timeout" {
		w.t.Errorf("endless, until the deadline: %+v", r)
	}
	if a := w.s.do("PUT", "/api/threads/short/sandbox", map[string]any{"template": "short"}); a.status != 200 {
		w.t.Fatalf("%d %s", a.status, a.body)
	}
	endless := map[string]any{"language": "wasm", "code": base64.StdEncoding.EncodeToString(wasmtest.Loop()), "timeout": 120}
	if r := w.s.run("short", "execute_code", endless); r.Status != "exited" || r.ExitCode == nil || *r.ExitCode != 152 && *r.ExitCode != 137 {
		w.t.Errorf("endless, until its processor time has passed: %+v", r)
	}
	w.want("recursion", w.module(wasmtest.Recurse(), nil), 134, "", "stack overflow")
	w.want("memory of 4 GiB", w.module(wasmtest.Module{Memory: []byte{0, 0x80, 0x80, 4}}.Bytes(), nil), 126, "", "over limit of 1024 pages")
	w.want("memory that grows", w.module(wasmtest.Grow(60, 60), nil), 121, "", "")
	w.want("a huge table", w.module(wasmtest.Module{Tables: [][]byte{{0x70, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}}}.Bytes(), nil), 126, "", "table")
	// A vector inside a section: wazero allocates before it reads. The exec's memory bounds it, whichever way it ends.
	many := []byte("\x00asm\x01\x00\x00\x00\x09\x08\x01\x01\x00\xff\xff\xff\xff\x01")
	if r := w.module(many, nil); r.Status == "exited" && (r.ExitCode == nil || *r.ExitCode == 0) || r.Status != "exited" && r.Status != "oom" {
		w.t.Errorf("a vector of half a billion elements: %+v", r)
	}
	w.want("a section of many imports", w.module(manyImports, nil), 126, "", "section import: 138412031 entries are named in 5 bytes")
	w.want("many functions", w.module(wasmtest.Module{Functions: 100_000}.Bytes(), nil), 0, "", "")
	w.want("a socket", w.module(wasmtest.Accept(), nil), 8, "", "")
	w.want("a trap", w.module(wasmtest.Trap(), nil), 134, "", "unreachable")
}
