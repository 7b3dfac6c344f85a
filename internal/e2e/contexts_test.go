package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// codeContext is a stateful context as the API shows it.
type codeContext struct {
	ID     string `json:"context_id"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Exec   string `json:"exec_id"`
	Runs   int    `json:"runs"`
}

// contextResult is a run in a context.
type contextResult struct {
	result
	Results []map[string]any `json:"results"`
	Context codeContext      `json:"context"`
}

func (s *server) context(thread, language string) codeContext {
	s.t.Helper()
	a := s.do("POST", "/api/threads/"+thread+"/contexts", map[string]any{"language": language})
	if a.status != http.StatusCreated {
		s.t.Fatalf("create a context: %d %s\n%s", a.status, a.body, s.log)
	}
	var c codeContext
	a.into(s.t, &c)
	if c.ID == "" || c.State != "idle" {
		s.t.Fatalf("%s", a.body)
	}
	return c
}

// in runs a cell in a context; timeout_s 0 is the default.
func (s *server) in(thread, id, code string, timeout float64) contextResult {
	s.t.Helper()
	a := s.do("POST", "/api/threads/"+thread+"/execute_code", map[string]any{"code": code, "context_id": id, "timeout": timeout})
	if a.status != 200 {
		s.t.Fatalf("%s: %d %s\n%s", code, a.status, a.body, s.log)
	}
	var r contextResult
	a.into(s.t, &r)
	if r.Results == nil || r.Context.ID != id {
		s.t.Fatalf("an answer without results or context: %s", a.body)
	}
	return r
}

// shows runs a cell whose last expression is to be shown as text.
func (s *server) shows(thread, id, code, text string) {
	s.t.Helper()
	r := s.in(thread, id, code, 60)
	if r.ExitCode == nil || *r.ExitCode != 0 || len(r.Results) != 1 || r.Results[0]["text/plain"] != text {
		s.t.Errorf("%s: %s %v, want %q; stderr %s", code, r.Status, r.Results, text, r.Stderr)
	}
}

// TestContexts: a context of Python keeps its variables between runs, each of which is an exec with its
// own end, token and records.
func TestContexts(t *testing.T) {
	t.Parallel()
	shared := sharedFolder(t)
	for _, o := range first(options{driver: "docker", runtime: "runc"}, options{driver: "oci", runtime: "runsc"}, options{driver: "oci", runtime: "runc"}) {
		t.Run(o.driver+"/"+o.runtime, func(t *testing.T) {
			t.Parallel()
			o.extensions = mcpServers(t, shared)
			s := start(t, o)
			s.connect("connects")
			testContexts(t, s)
		})
	}
}

func testContexts(t *testing.T, s *server) {
	c, other := s.context("c", "python"), s.context("c", "python")
	s.shows("c", c.ID, "x = [1, 2]\nx", "[1, 2]")
	s.shows("c", c.ID, "x.append(3)\nx", "[1, 2, 3]")
	if r := s.in("c", other.ID, "x", 0); *r.ExitCode != 1 || !strings.Contains(r.Stderr, "NameError") {
		t.Errorf("another context sees a variable: %s %s", r.Stdout, r.Stderr)
	}
	r := s.in("c", c.ID, `class Rich:
    def __repr__(self): return "plain"
    def _repr_html_(self): return "<table/>"
    def _repr_png_(self): return b"\x89PNG"
    def _repr_latex_(self): return "$x$"
display({"application/json": {"a": [1]}, "image/svg+xml": "<svg/>"}, raw=True)
print("printed")
Rich()`, 0)
	got, err := json.Marshal(r.Results)
	want := `[{"application/json":{"a":[1]},"image/svg+xml":"\u003csvg/\u003e"},{"image/png":"iVBORw==","text/html":"\u003ctable/\u003e","text/latex":"$x$","text/plain":"plain"}]`
	if err != nil || string(got) != want || r.Stdout != "printed\n" {
		t.Errorf("results %s, want %s; stdout %q, stderr %s", got, want, r.Stdout, r.Stderr)
	}

	// Tools are called, and counted, by the exec that runs.
	for range 2 {
		r = s.in("c", c.ID, "echo = call_mcp_tool('everything__echo', {'message': 'hi'})\necho", 60)
		if len(r.ToolsCalled) != 1 || r.ToolsCalled[0].Tool != "everything__echo" || r.Results[0]["text/plain"] != "'Echo: hi'" {
			t.Errorf("%v %v %s", r.ToolsCalled, r.Results, r.Stderr)
		}
		if n := len(s.records("exec="+r.ExecID+"&action=tool_call", "result")); n != 1 {
			t.Errorf("%d records of the tool call", n)
		}
	}
	r = s.in("c", c.ID, "open('made.txt', 'w').write('x')\nimport os\nprint(os.environ['SKERRY_EXEC_ID'])", 0)
	if len(r.Files) != 1 || strings.TrimSpace(r.Stdout) != r.ExecID {
		t.Errorf("files %v, exec %s, stdout %q", r.Files, r.ExecID, r.Stdout)
	}
	if n := len(s.records("exec="+r.ExecID+"&action=execute_code", "result")); n != 1 {
		t.Errorf("%d terminal records", n)
	}

	// The deadline interrupts, and the variables stay; what does not heed it loses them.
	began := time.Now()
	r = s.in("c", c.ID, "y = 1\nwhile True: pass", 1)
	if r.Status != "timeout" || r.Context.State != "idle" || !strings.Contains(r.Context.Detail, "kept") || time.Since(began) > 30*time.Second {
		t.Errorf("%s, context %+v, after %v", r.Status, r.Context, time.Since(began))
	}
	s.shows("c", c.ID, "y", "1")
	r = s.in("c", other.ID, "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 1)
	if r.Status != "timeout" || r.Context.State != "lost" || !strings.Contains(r.Context.Detail, "restart") {
		t.Errorf("%s, context %+v", r.Status, r.Context)
	}
	if a := s.do("POST", "/api/threads/c/execute_code", map[string]any{"code": "1", "context_id": other.ID}); a.code() != "conflict" || !strings.Contains(string(a.body), "restart") {
		t.Errorf("a run in a lost context: %s", a.body)
	}
	s.interrupt("c", c.ID)

	// A restart empties a context, and starts a lost one again.
	for _, id := range []string{c.ID, other.ID} {
		if a := s.do("POST", "/api/threads/c/contexts/"+id+"/restart", nil); a.status != 200 {
			t.Fatalf("restart: %s", a.body)
		}
		if r := s.in("c", id, "y", 0); *r.ExitCode != 1 {
			t.Errorf("a variable outlived the restart: %+v", r)
		}
	}
	// An interpreter that ends by itself ends its run with its code.
	r = s.in("c", other.ID, "import os\nos._exit(7)", 0)
	if r.Status != "exited" || *r.ExitCode != 7 || r.Context.State != "lost" {
		t.Errorf("%s %v, context %+v", r.Status, r.ExitCode, r.Context)
	}
	if a := s.do("DELETE", "/api/threads/c/contexts/"+other.ID, nil); a.status != 204 {
		t.Errorf("delete: %s", a.body)
	}
	if a := s.do("POST", "/api/threads/c/execute_code", map[string]any{"code": "1", "context_id": other.ID}); a.code() != "not_found" {
		t.Errorf("a run in a deleted context: %s", a.body)
	}
	// With its sandbox a context is lost; a restart starts another sandbox.
	if a := s.do("DELETE", "/api/threads/c/sandbox", nil); a.status != 204 {
		t.Fatalf("%s", a.body)
	}
	if list := s.contexts("c"); len(list) != 1 || list[0].State != "lost" || !strings.Contains(list[0].Detail, "sandbox") {
		t.Errorf("contexts after the sandbox: %+v", list)
	}
	if a := s.do("POST", "/api/threads/c/contexts/"+c.ID+"/restart", nil); a.status != 200 {
		t.Fatalf("restart: %s", a.body)
	}
	s.shows("c", c.ID, "1 + 1", "2")
}

func (s *server) contexts(thread string) []codeContext {
	s.t.Helper()
	var list struct{ Items []codeContext }
	s.do("GET", "/api/threads/"+thread+"/contexts", nil).into(s.t, &list)
	return list.Items
}

// interrupt runs an endless loop in a context, finds the context busy, and interrupts it.
func (s *server) interrupt(thread, id string) {
	s.t.Helper()
	ended := make(chan answer, 1)
	go func() {
		a, err := s.request("POST", "/api/threads/"+thread+"/execute_code", map[string]any{"code": "z = 5\nwhile True: pass", "context_id": id, "timeout": 100})
		if err != nil {
			a.body = []byte(err.Error())
		}
		ended <- a
	}()
	eventually(s.t, "the context is busy", func() bool { return s.contexts(thread)[0].State == "busy" && s.contexts(thread)[0].Exec != "" })
	if a := s.do("POST", "/api/threads/"+thread+"/execute_code", map[string]any{"code": "1", "context_id": id}); a.code() != "conflict" {
		s.t.Errorf("a second run at the same time: %s", a.body)
	}
	time.Sleep(500 * time.Millisecond) // the loop runs
	if a := s.do("POST", "/api/threads/"+thread+"/contexts/"+id+"/interrupt", nil); a.status != 200 {
		s.t.Errorf("interrupt: %s", a.body)
	}
	var r contextResult
	(<-ended).into(s.t, &r)
	if r.Status != "exited" || r.ExitCode == nil || *r.ExitCode != 130 || !strings.Contains(r.Stderr, "KeyboardInterrupt") || r.Context.State != "idle" {
		s.t.Errorf("the interrupted run: %+v", r)
	}
	s.shows(thread, id, "z", "5")
}

// TestContextsOfAFormerServer: after kill -9 of the server an idle context is found again with its
// variables; one in which something ran has ended with that.
func TestContextsOfAFormerServer(t *testing.T) {
	whole(t, TestCrash)
	t.Parallel()
	s := start(t, options{})
	idle, busy := s.context("crash", "python"), s.context("crash", "python")
	s.shows("crash", idle.ID, "x = 41\nx", "41")
	var begun contextResult
	go func() {
		_, _ = s.request("POST", "/api/threads/crash/execute_code", map[string]any{"code": "import time\nopen('begun', 'w')\ntime.sleep(300)", "context_id": busy.ID, "timeout": 100})
	}()
	eventually(t, "it runs", func() bool {
		for _, c := range s.contexts("crash") {
			if c.ID == busy.ID && c.Exec != "" {
				begun.ExecID = c.Exec
			}
		}
		// The server says "running" before the interpreter has begun: had it not, it would outlive the server, idle.
		return begun.ExecID != "" && s.ok("crash", "ls begun 2>/dev/null || true") != ""
	})
	s.kill()
	s.boot()
	s.shows("crash", idle.ID, "x + 1", "42")
	if list := s.contexts("crash"); len(list) != 1 || list[0].ID != idle.ID {
		t.Errorf("contexts: %+v", list)
	}
	eventually(t, "the run that was cut off has a terminal record", func() bool { return len(s.records("exec="+begun.ExecID, "result")) > 0 })
	if n := len(s.records("exec="+begun.ExecID, "result")); n != 1 {
		t.Errorf("%d terminal records of the run that was cut off", n)
	}
	// At most 8 live at once.
	for range 7 {
		s.context("crash", "python")
	}
	if a := s.do("POST", "/api/threads/crash/contexts", map[string]any{"language": "python"}); a.code() != "capacity_exceeded" {
		t.Errorf("the ninth: %s", a.body)
	}
}

// TestContextSecrets: what a request's own environment holds is hidden in what a run displays, and in
// the files that hold what is too large.
func TestContextSecrets(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	c := s.context("s", "python")
	const secret = "correct-horse-battery"
	var r contextResult
	a := s.do("POST", "/api/threads/s/execute_code", map[string]any{
		"code": "import os\nv = os.environ['PASS']\ndisplay(v)\ndisplay({'text/html': v + 'x' * 2_000_000}, raw=True)\n{v: 1}", "context_id": c.ID, "env": map[string]any{"PASS": secret}, "redact_env": true,
	})
	a.into(t, &r)
	if strings.Contains(string(a.body), secret) || len(r.Results) != 3 {
		t.Fatalf("%.600s", a.body)
	}
	files, err := json.Marshal(r.Results[1]["application/vnd.skerry.file+json"])
	if err != nil {
		t.Fatal(err)
	}
	var kept []struct{ Path string }
	if err := json.Unmarshal(files, &kept); err != nil || len(kept) != 1 {
		t.Fatalf("%s, %v", files, err)
	}
	if got := s.ok("s", fmt.Sprintf("grep -c %s %s || true", secret, kept[0].Path)); strings.TrimSpace(got) != "0" {
		t.Errorf("the secret is in %s", kept[0].Path)
	}
	// It is not there for the next run.
	s.shows("s", c.ID, "'PASS' in os.environ", "False")
}

// TestTypeScriptContexts: TypeScript keeps its variables, imports and tools, too.
func TestTypeScriptContexts(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t))})
	s.connect("connects")
	c := s.context("ts", "typescript")
	s.shows("ts", c.ID, "import { echo } from './servers/everything';\nlet n: number = await Promise.resolve(20);\nn + 1", "21")
	for range 2 {
		r := s.in("ts", c.ID, "n += 1; await echo({ message: `n is ${n}` })", 60)
		if len(r.ToolsCalled) != 1 || len(r.Results) != 1 || !strings.Contains(fmt.Sprint(r.Results[0]["text/plain"]), "Echo: n is 2") {
			t.Errorf("%v %v %s", r.ToolsCalled, r.Results, r.Stderr)
		}
	}
	r := s.in("ts", c.ID, "n = 30; while (true) {}", 1)
	if r.Status != "timeout" || r.Context.State != "idle" {
		t.Errorf("%s, context %+v, %s", r.Status, r.Context, r.Stderr)
	}
	s.shows("ts", c.ID, "n", "30")
	r = s.in("ts", c.ID, "const a = 1;\n\nthrow new Error('boom');", 0)
	if *r.ExitCode != 1 || !strings.Contains(r.Stderr, ".ts:3:7") {
		t.Errorf("%v %s", *r.ExitCode, r.Stderr)
	}
	// The template's wish for another runtime is kept.
	s = start(t, options{template: "javascript: bun\n"})
	if a := s.do("POST", "/api/threads/ts/contexts", map[string]any{"language": "typescript"}); a.status != 501 || !strings.Contains(string(a.body), "node") {
		t.Errorf("a template that wants bun: %d %s", a.status, a.body)
	}
}

// TestFigures: matplotlib's figures and tables of pandas come as they are in a notebook. The packages are in
// the image of the template data.
func TestFigures(t *testing.T) {
	need(t, exec.Command("docker", "image", "inspect", "skerry/data:latest").Run() == nil, "the image skerry/data")
	s := start(t, options{driver: "docker", env: []string{"SKERRY_TEMPLATES=" + abs(t, "../../sandbox-templates")}})
	if a := s.do("PUT", "/api/threads/f/sandbox", map[string]any{"template": "data"}); a.status != 200 {
		t.Fatalf("%s", a.body)
	}
	c := s.context("f", "python")
	r := s.in("f", c.ID, "import matplotlib.pyplot as plt\nimport pandas as pd\nplt.plot([1, 3, 2]);", 110)
	if len(r.Results) != 1 {
		t.Fatalf("%+v", r)
	}
	png, err := base64.StdEncoding.DecodeString(fmt.Sprint(r.Results[0]["image/png"]))
	if err != nil || !strings.HasPrefix(string(png), "\x89PNG\r\n") || len(png) < 1000 {
		t.Errorf("a figure of %d bytes, %v", len(png), err)
	}
	r = s.in("f", c.ID, "pd.DataFrame({'a': [1, 2]})", 60)
	if len(r.Results) != 1 || !strings.Contains(fmt.Sprint(r.Results[0]["text/html"]), "<table") || !strings.Contains(fmt.Sprint(r.Results[0]["text/plain"]), "0  1") {
		t.Errorf("%+v", r)
	}
}

// TestContextsDoc runs the example of docs/contexts.md as it stands there.
func TestContextsDoc(t *testing.T) {
	t.Parallel()
	need(t, have("curl"), "curl")
	block := docblock.Marked(t)[0]
	s := start(t, options{})
	s.shell().run(block, `"results":[{"text/plain":"12"}]`, `"stdout":"30\n"`, `"text/latex":"$x^2$"`, `"text/html":"<b>bold`, `"status":"timeout"`, `"state":"idle"`)
	cli := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "skerry"), args...)
		cmd.Env = append(os.Environ(), "SKERRY_SERVER="+s.url)
		cmd.Stdin = strings.NewReader("x = 6\nx * 7")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	id := cli("contexts", "new", "notebook")
	if got := cli("code", "notebook", "--context", id, "-"); got != "42" {
		t.Errorf("skerry code --context: %s", got)
	}
	if got := cli("contexts", "ls", "notebook"); !strings.Contains(got, id) || !strings.Contains(got, "idle") {
		t.Errorf("skerry contexts ls: %s", got)
	}
	cli("contexts", "rm", "notebook", id)
	if got := cli("contexts", "ls", "notebook"); strings.Contains(got, id) {
		t.Errorf("it is still there: %s", got)
	}
}
