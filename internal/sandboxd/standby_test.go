package sandboxd

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// look prints all that a program can see of how it was started.
const look = `
import os, sys, json
def fails():
    raise ValueError("mine")
seen = {"argv": [os.path.basename(a) for a in sys.argv], "file": os.path.basename(__file__), "name": __name__, "cwd": os.getcwd(),
  "path": [p.replace(os.path.dirname(__file__), "PRIVATE") for p in sys.path], "env": sorted(os.environ), "exec": os.environ["SKERRY_EXEC_ID"],
  "fds": sorted(os.listdir("/proc/self/fd")), "globals": sorted(globals()), "modules": sorted(sys.modules), "sid": os.getsid(0) == os.getpid()}
seen["env"] = [e for e in seen["env"] if e != "LC_CTYPE"]
print(json.dumps(seen))
fails()
`

// waited is a program that prints whether its interpreter had started before this call.
func waited(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	now, _, _ := strings.Cut(string(text), " ")
	// The kernel counts a start in hundredths of a second, and rounds down.
	return `
ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
print(ticks / 100 + 0.02 < ` + now + `)
`
}

func (p *pair) python(text string, env ...string) result {
	p.Helper()
	id := p.id()
	return p.run(&sandboxv1.RunRequest{
		ExecId: id, Code: &sandboxv1.Code{Language: "python", Text: text}, TimeoutMs: 20_000,
		Env: append([]string{"HOME=" + filepath.Join(p.o.TempDir, "home"), "SKERRY_EXEC_ID=" + id, "SKERRY_EXEC_TOKEN=secret-" + id}, env...),
	})
}

// waitForStandby returns once those interpreters that are to wait do.
func (p *pair) waitForStandby() {
	p.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for pause := 600 * time.Millisecond; ; {
		time.Sleep(pause)
		st, err := p.c.Status(p.Context())
		if err != nil {
			p.Fatal(err)
		}
		if !slices.ContainsFunc(st.GetInterpreters(), (*sandboxv1.InterpreterStatus).GetStarts) {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("an interpreter starts for 30 s: %v", st.GetInterpreters())
		}
	}
}

// TestStandbyPython: the second program of a language starts in an interpreter that waited, and can
// tell only by when it started.
func TestStandbyPython(t *testing.T) {
	p := newPair(t)
	neutral := func(r result, id string) string {
		return strings.ReplaceAll(r.stdout, id, "ID") + neutralTrace(r.stderr)
	}
	cold := p.python(look)
	if cold.GetCode() != 1 || !strings.Contains(cold.stderr, "ValueError: mine") {
		t.Fatalf("%v %s %s", cold.Exit, cold.stdout, cold.stderr)
	}
	p.waitForStandby()
	warm := p.python(look)
	if a, b := neutral(cold, "exec-1"), neutral(warm, "exec-2"); a != b {
		t.Errorf("cold:\n%s\nwarm:\n%s", a, b)
	}
	p.waitForStandby()
	if r := p.python(waited(t)); r.stdout != "True\n" {
		t.Errorf("the third program ran in an interpreter that had not waited: %q %s", r.stdout, r.stderr)
	}
	p.waitForStandby()
	if r := p.python("import os; print(os.environ['MINE'])\n"+waited(t), "MINE=1"); r.stdout != "1\nFalse\n" {
		t.Errorf("another environment: %q %s", r.stdout, r.stderr)
	}
}

func neutralTrace(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if before, after, ok := strings.Cut(line, `/code-`); ok {
			_, after, _ = strings.Cut(after, "/")
			line = before + "/" + after
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// TestStandbySeesNewPackages: what was installed while the interpreter waited is there.
func TestStandbySeesNewPackages(t *testing.T) {
	p := newPair(t)
	home := filepath.Join(p.o.TempDir, "home")
	where := p.python("import site; print(site.getusersitepackages())")
	packages := strings.TrimSpace(where.stdout)
	if !strings.HasPrefix(packages, home) {
		t.Fatalf("%q %s", packages, where.stderr)
	}
	p.waitForStandby()
	for path, text := range map[string]string{
		filepath.Join(packages, "direct.py"): "x = 1", filepath.Join(packages, "linked.pth"): p.data + "\n", filepath.Join(p.data, "behind.py"): "x = 2",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := p.python("import direct, behind; print(direct.x, behind.x)\n" + waited(t)); r.stdout != "1 2\nTrue\n" {
		t.Errorf("%q %s", r.stdout, r.stderr)
	}
}

// TestStandbySpoilt: code that breaks into the folder of the waiting interpreter harms no next program.
func TestStandbySpoilt(t *testing.T) {
	p := newPair(t)
	p.python("print(1)")
	p.waitForStandby()
	dirs, err := filepath.Glob(filepath.Join(p.o.TempDir, "code-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v, %v", dirs, err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dirs[0], "main.py")); err != nil {
		t.Fatal(err)
	}
	if r := p.python("print(2)"); r.stdout != "2\n" {
		t.Errorf("%q %s", r.stdout, r.stderr)
	}
	p.waitForStandby()
	dirs, err = filepath.Glob(filepath.Join(p.o.TempDir, "code-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v, %v", dirs, err)
	}
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}
	if r := p.python("print(3)"); r.stdout != "3\n" {
		t.Errorf("%q %s", r.stdout, r.stderr)
	}
}

// TestStandbyPreload: an interpreter that waits has the template's modules imported, and reports none of the
// broken ones. It leaves a module of the agent's own in its place.
func TestStandbyPreload(t *testing.T) {
	p := newPair(t)
	broken := filepath.Join(p.data, "broken_one.py")
	if err := os.WriteFile(broken, []byte("print('said'); raise SystemExit(3)"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(text string, cold bool) result {
		id := p.id()
		return p.run(&sandboxv1.RunRequest{
			ExecId: id, TimeoutMs: 20_000, Env: []string{"HOME=" + p.o.TempDir, "PYTHONPATH=" + p.data, "SKERRY_EXEC_ID=" + id},
			Code: &sandboxv1.Code{Language: "python", Text: text, Preload: []string{"colorsys", "broken_one", "no_such_module", "wave"}, Cold: cold},
		})
	}
	const loaded = "import sys, os; print([m for m in ('colorsys', 'wave') if m in sys.modules], 'SKERRY_PRELOAD' in os.environ)\n"
	if r := run(loaded, false); r.stdout != "[] False\n" {
		t.Fatalf("the first: %q %s", r.stdout, r.stderr)
	}
	p.waitForStandby()
	if r := run(loaded+waited(t), false); r.stdout != "['colorsys', 'wave'] False\nTrue\n" || r.stderr != "" {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
	p.waitForStandby()
	own := filepath.Join(p.o.WorkspaceDir, "colorsys.py")
	if err := os.WriteFile(own, []byte("mine = 7"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := run("import colorsys; print(colorsys.mine)", false); r.stdout != "7\n" {
		t.Errorf("a module beside the program: %q %s", r.stdout, r.stderr)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	p.waitForStandby()
	run("print(1)", true) // takes the waiting one, and asks for none
	p.waitForStandby()
	if r := run(loaded+waited(t), false); r.stdout != "[] False\nFalse\n" {
		t.Errorf("after warm: 0 one waited: %q %s", r.stdout, r.stderr)
	}
}

// TestStandbyStillImports: a program does not wait for modules that it may not need.
func TestStandbyStillImports(t *testing.T) {
	p := newPair(t)
	gate := filepath.Join(p.data, "gate")
	module := "import os, time\nwhile not os.path.exists(" + strconv.Quote(gate) + "): time.sleep(0.01)\n"
	if err := os.WriteFile(filepath.Join(p.data, "slow.py"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(text string) result {
		id := p.id()
		return p.run(&sandboxv1.RunRequest{
			ExecId: id, TimeoutMs: 20_000, Env: []string{"HOME=" + p.o.TempDir, "PYTHONPATH=" + p.data, "SKERRY_EXEC_ID=" + id},
			Code: &sandboxv1.Code{Language: "python", Text: text, Preload: []string{"slow"}},
		})
	}
	const loaded = "import sys; print('slow' in sys.modules)"
	run(loaded)
	for range 2 {
		if r := run(loaded); r.stdout != "False\n" {
			t.Errorf("while it imports: %v %q %s", r.GetStatus(), r.stdout, r.stderr)
		}
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var r result
	for range 100 {
		if r = run(loaded); r.stdout == "True\n" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("it was never taken: %q %s", r.stdout, r.stderr)
}
