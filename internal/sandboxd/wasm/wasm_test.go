package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/wasm/wasmtest"
)

// filesEnv and cacheEnv name the variables that tell a test binary, run as the program, where its files and its cache are.
const (
	filesEnv = "WASM_TEST_FILES"
	cacheEnv = "WASM_TEST_CACHE"
)

// guest is the module that TestMain builds, cache where its code is kept, and program what runs it: this test binary
// without the race detector, which makes a compiler of machine code fifty times slower.
var guest, cache, program string

func TestMain(m *testing.M) {
	if dir := os.Getenv(filesEnv); dir != "" {
		threadFiles = []mountPoint{{Path: dir + "/user-data"}, {Path: dir + "/skills", ReadOnly: true}, {Path: dir + "/none"}}
		cacheDir = os.Getenv(cacheEnv)
		RunIfAsked(os.Environ())
	}
	os.Exit(run1(m))
}

func run1(m *testing.M) int {
	dir, err := os.MkdirTemp("", "wasm-test-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a test's
		cache = filepath.Join(dir, "cache")
		guest, err = wasmtest.Guest(dir)
	}
	if err == nil {
		program = filepath.Join(dir, "program")
		var said []byte
		if said, err = exec.Command("go", "test", "-c", "-o", program, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, said)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// bed is the files of one thread, and what lies beside them.
type bed struct {
	t     *testing.T
	dir   string
	env   []string
	stdin string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir()}
	for _, dir := range []string{"user-data/workspace", "user-data/outputs", "skills/public/x", "tmp"} {
		must(t, os.MkdirAll(filepath.Join(b.dir, dir), 0o755))
	}
	for name, text := range map[string]string{"secret": "the secret", "skills/public/x/SKILL.md": "a skill", "tmp/other": "of another exec", "user-data/workspace/in.txt": "input"} {
		must(t, os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644))
	}
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// outcome is how a program ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs a module as the sandbox does: as a process in the workspace.
func (b *bed) run(module string, args ...string) outcome {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{sandbox.WasmCommand, module}, args...)...)
	cmd.Dir = filepath.Join(b.dir, "user-data/workspace")
	cmd.Env = append([]string{filesEnv + "=" + b.dir, cacheEnv + "=" + cache, "TMPDIR=" + filepath.Join(b.dir, "tmp")}, b.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(b.stdin), &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	if ctx.Err() != nil {
		b.t.Fatalf("%s %q does not end", module, args)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// file writes a module and returns its path.
func (b *bed) file(module []byte) string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "m.wasm")
	must(b.t, os.WriteFile(path, module, 0o600))
	return path
}

// TestProgram: a module of Go's own compiler has arguments, variables, streams, clock and exit code as any program.
func TestProgram(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.env, b.stdin = []string{"GREETING=hi", "SKERRY_EXEC_TOKEN=token", "MCP_BRIDGE_PORT=9876"}, "typed"
	got := b.run(guest, "args=a,b", "env", "stdin", "cwd", "stderr=oops", "sleep=30ms", "exit=7")
	work := filepath.Join(b.dir, "user-data/workspace")
	want := "args: args=a,b env stdin cwd stderr=oops sleep=30ms exit=7\n" +
		fmt.Sprintf("env: GREETING=hi PWD=%s TMPDIR=%s/tmp %s=%s %s=%s\n", work, b.dir, cacheEnv, cache, filesEnv, b.dir) +
		"stdin: typed\ncwd: " + work + "\nstderr: \nsleep: true\n"
	if got.stdout != want || got.stderr != "oops" || got.code != 7 {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := b.run(guest, "panic=at the disco"); got.code != 2 || !strings.Contains(got.stderr, "panic: at the disco") {
		t.Errorf("%+v", got)
	}
}

// TestFiles: the thread's files are under their own paths, relative ones are of the working folder, and skills can be read
// only. What a module writes lies where all else finds it.
func TestFiles(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	out, skill := filepath.Join(b.dir, "user-data/outputs/out.txt"), filepath.Join(b.dir, "skills/public/x/SKILL.md")
	b.steps([][2]string{
		{"read=in.txt", "input"}, {"read=./in.txt", "input"}, {"read=../workspace/in.txt", "input"},
		{"write=" + out + ",written", ""}, {"read=../outputs/out.txt", "written"}, {"append=" + out + ",+", ""}, {"stat=" + out, "8 false"},
		{"patch=" + out + ",XY", "XY wXYtten+"}, {"truncate=" + out + ",3", ""}, {"read=" + out, "wXY"},
		{"mkdir=d", ""}, {"write=d/f,1", ""}, {"symlink=f,d/l", ""}, {"lstat=d/l", "L---------"}, {"read=d/l", "1"}, {"readlink=d/l", "f"}, {"ls=d", "f l"},
		{"link=d/f,d/h", ""}, {"rename=d/h,d/g", ""}, {"ls=d", "f g l"}, {"ls=.", "d/ in.txt"},
		{"touch=d/f,2020-02-02T02:02:02Z", "2020-02-02T02:02:02Z"},
		{"rm=d", "error"}, {"rm=d/f", ""}, {"rm=d/g", ""}, {"rm=d/l", ""}, {"rm=d", ""}, {"ls=.", "in.txt"}, {"stat=d", "error"}, {"mkdir=in.txt", "error"},
		{"read=" + skill, "a skill"}, {"ls=" + filepath.Join(b.dir, "skills/public"), "x/"},
		{"write=" + skill + ",x", "error"}, {"append=" + skill + ",x", "error"}, {"rm=" + skill, "error"}, {"mkdir=" + skill + "d", "error"}, {"rename=" + skill + "," + skill + "2", "error"},
	})
	if text, err := os.ReadFile(out); string(text) != "wXY" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := os.ReadFile(skill); string(text) != "a skill" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// steps runs steps of the guest, all in one process: it is compiled anew in each. What is wanted of one may be "error".
func (b *bed) steps(list [][2]string) {
	b.t.Helper()
	var args []string
	for _, step := range list {
		args = append(args, step[0])
	}
	got := b.run(guest, args...)
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if got.code != 0 || len(lines) != len(list) {
		b.t.Fatalf("%+v: %d lines, want %d", got, len(lines), len(list))
	}
	for i, step := range list {
		kind, _, _ := strings.Cut(step[0], "=")
		text, ok := strings.CutPrefix(lines[i], kind+": ")
		if step[1] == "error" {
			ok = ok && strings.HasPrefix(text, "error ")
		} else {
			ok = ok && text == step[1]
		}
		if !ok {
			b.t.Errorf("%s: %q, want %q", step[0], lines[i], step[1])
		}
	}
}

// TestConfined: no path leads out of the thread's files, by whatever name, and no link that the code of the sandbox laid.
func TestConfined(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	work, secret := filepath.Join(b.dir, "user-data/workspace"), filepath.Join(b.dir, "secret")
	for name, to := range map[string]string{
		"abs": secret, "rel": "../../secret", "root": "/", "up": "../..", "proc": "/proc/self/environ", "chain": "rel",
		"loop": "loop", "new": filepath.Join(b.dir, "new"), "skills": filepath.Join(b.dir, "skills"), "inside": "in.txt",
	} {
		must(t, os.Symlink(to, filepath.Join(work, name)))
	}
	steps := [][2]string{{"read=inside", "input"}}
	for _, step := range []string{
		"read=" + secret, "read=../../secret", "read=../../../../../../../../../../etc/passwd", "read=/etc/passwd", "read=/proc/self/environ", "read=/proc/1/cmdline",
		"read=abs", "read=rel", "read=chain", "read=proc", "read=root/etc/passwd", "read=up/secret", "read=loop", "read=in.txt/../../../secret", "read=root/proc/self/environ",
		"stat=abs", "stat=up/secret", "ls=root", "ls=up", "ls=/proc", "ls=" + b.dir, "ls=..//..", "ls=root/.",
		"write=new,x", "write=abs,x", "append=abs,x", "write=up/other,x", "mkdir=up/dir", "rm=up/secret", "truncate=rel,0", "touch=rel,2020-02-02T02:02:02Z",
		"rename=in.txt,up/stolen", "rename=up/secret,mine", "link=up/secret,mine", "link=in.txt,up/given", "symlink=/etc,mine", "readlink=up/workspace",
		"write=skills/public/x/SKILL.md,x", "read=" + filepath.Join(b.dir, "tmp/other"), "read=/tmp/other", "read=",
	} {
		steps = append(steps, [2]string{step, "error"})
	}
	// It can lay a link that leads out, which it cannot follow.
	b.steps(append(steps, [2]string{"symlink=../../secret,mine", ""}, [2]string{"read=mine", "error"}))
	for name, want := range map[string]string{"secret": "the secret", "user-data/workspace/in.txt": "input", "skills/public/x/SKILL.md": "a skill"} {
		if text, err := os.ReadFile(filepath.Join(b.dir, name)); string(text) != want || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	entries, err := os.ReadDir(b.dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"secret", "skills", "tmp", "user-data"}) {
		t.Errorf("beside the files: %q", names)
	}
}

// TestTemp: each run has a /tmp of its own, which goes with it.
func TestTemp(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for range 2 {
		b.steps([][2]string{{"ls=/tmp", ""}, {"write=/tmp/a,mine", ""}, {"read=/tmp/a", "mine"}})
	}
	left, err := os.ReadDir(filepath.Join(b.dir, "tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestFolder: a working folder that is not the thread's is not shown.
func TestFolder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cmd := exec.CommandContext(t.Context(), program, sandbox.WasmCommand, guest, "read=secret", "ls=.", "ls="+b.dir)
	cmd.Dir, cmd.Env = b.dir, []string{filesEnv + "=" + b.dir, cacheEnv + "=" + cache, "TMPDIR=" + filepath.Join(b.dir, "tmp")}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), ": error ") != 3 {
		t.Errorf("%s, %v", out, err)
	}
}

// manyImports has one section, of imports, that names more entries than it has bytes. A fuzz test found it.
var manyImports = append([]byte("\x00asm\x01\x00\x00\x00\x020\xff\xff\xffA0"), make([]byte, 43)...)

// TestHostile: a module that does harm ends by itself, with a code and a sentence, and takes no more than it may.
func TestHostile(t *testing.T) {
	t.Parallel()
	pages := func(n uint32) []byte { return append([]byte{0}, wasmtest.Unsigned(n)...) }
	table := func(n uint32) []byte { return append([]byte{0x70, 0}, wasmtest.Unsigned(n)...) }
	for name, c := range map[string]struct {
		module []byte
		code   int
		says   string
	}{
		"loop":             {wasmtest.Loop(), 152, "wasm: the module has used its 1 seconds of processor time\n"},
		"memory of 4 GiB":  {wasmtest.Module{Memory: pages(65536)}.Bytes(), 126, "over limit of 256 pages"},
		"memory too large": {wasmtest.Module{Memory: pages(65537)}.Bytes(), 126, "over limit"},
		"grows":            {wasmtest.Grow(15, 1), 17, ""},
		"deep":             {wasmtest.Recurse(), 134, "stack overflow"},
		"table":            {wasmtest.Module{Tables: [][]byte{table(1<<32 - 1)}}.Bytes(), 126, "table"},
		"functions":        {wasmtest.Module{Functions: 100_000}.Bytes(), 0, ""},
		"trap":             {wasmtest.Trap(), 134, "unreachable"},
		"socket":           {wasmtest.Accept(), 8, ""}, // EBADF: a folder is no socket
		"library":          {wasmtest.Module{Export: "add"}.Bytes(), 126, "exports no _start"},
		"unknown import":   {wasmtest.Module{Import: "sock_open"}.Bytes(), 126, "sock_open"},
		"many imports":     {manyImports, 126, "section import: 138412031 entries are named in 44 bytes"},
		"cut":              {wasmtest.Hello()[:60], 126, "not a module that can run"},
		"no module":        {[]byte("#!/bin/sh\necho hi\n"), 126, "not a module that can run"},
		"empty":            {nil, 126, "not a module that can run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.env = []string{sandbox.WasmMemoryEnv + "=16777216"}
			if name == "loop" {
				b.env = append(b.env, sandbox.WasmCPUEnv+"=1")
			}
			got := b.run(b.file(c.module))
			if got.code != c.code || !strings.Contains(got.stderr, c.says) || c.says == "" && got.stderr != "" {
				t.Errorf("%+v, want code %d and %q", got, c.code, c.says)
			}
			if len(got.stderr) > maxReport+100 {
				t.Errorf("it says %d bytes", len(got.stderr))
			}
		})
	}
}

// TestMemory: a program has what the limit says and no more.
func TestMemory(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.env = []string{sandbox.WasmMemoryEnv + "=67108864"}
	b.steps([][2]string{{"alloc=33554432", "33554432"}})
	if got := b.run(guest, "alloc=134217728"); got.code == 0 || !strings.Contains(got.stderr, "out of memory") {
		t.Errorf("%+v", got)
	}
	m := b.file(wasmtest.Grow(60, 60)) // pages
	b.env = nil
	if got := b.run(m); got.code != 121 {
		t.Errorf("%+v", got)
	}
	b.env = []string{sandbox.WasmMemoryEnv + "=0"}
	if got := b.run(m); got.code != codeUsage || !strings.Contains(got.stderr, `SKERRY_WASM_MEMORY: "0" is not a positive number`) {
		t.Errorf("%+v", got)
	}
}

// TestModuleFile: what is no file of a bearable size is not read.
func TestModuleFile(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	large, fifo := filepath.Join(b.dir, "large.wasm"), filepath.Join(b.dir, "fifo.wasm")
	must(t, os.WriteFile(large, wasmtest.Hello(), 0o600))
	must(t, os.Truncate(large, sandbox.MaxWasmBytes+1))
	must(t, syscall.Mkfifo(fifo, 0o600))
	for path, want := range map[string]outcome{
		b.file(wasmtest.Hello()):          {0, "hello from wasm\n", ""},
		large:                             {126, "", fmt.Sprintf("wasm: %q has 67108865 bytes; a module has at most 67108864\n", large)},
		fifo:                              {126, "", fmt.Sprintf("wasm: %q is not a file\n", fifo)},
		b.dir:                             {126, "", fmt.Sprintf("wasm: %q is not a file\n", b.dir)},
		filepath.Join(b.dir, "none.wasm"): {127, "", "wasm: stat " + b.dir + "/none.wasm: no such file or directory\n"},
	} {
		if got := b.run(path); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, sandbox.WasmCommand)
	cmd.Env = []string{filesEnv + "=" + b.dir}
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != codeUsage || !strings.HasPrefix(string(out), "wasm: usage:") {
		t.Errorf("%s, %v", out, err)
	}
}

// TestCache: a second run takes the code of the first. Without room for it, and with what others put in its place, a module
// runs all the same; and the cache does not grow without end.
func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	was := cacheDir
	cacheDir = dir
	t.Cleanup(func() { cacheDir = was })
	runs := func() {
		t.Helper()
		r, _, err := compile(t.Context(), wasmtest.Hello(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		must(t, r.Close(t.Context()))
	}
	kept := func() []string {
		files, err := filepath.Glob(dir + "/*/*")
		must(t, err)
		return files
	}
	runs()
	files := kept()
	if len(files) != 1 {
		t.Fatalf("kept: %q", files)
	}
	before, err := os.Stat(files[0])
	must(t, err)
	runs()
	if after, err := os.Stat(files[0]); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was compiled again: %v", err)
	}
	must(t, os.WriteFile(files[0], []byte("WAZEVO, but not really"), 0o600))
	runs()
	must(t, os.Truncate(files[0], maxCache+1))
	runs()
	if size := sizeOf(dir); size > maxCache {
		t.Errorf("%d bytes are kept", size)
	}
	must(t, os.RemoveAll(dir))
	must(t, os.WriteFile(dir, nil, 0o600)) // no folder can be made there
	runs()
}
