package hub

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/breaker"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

func TestMain(m *testing.M) {
	os.Exit(serveOr(func() int {
		code := m.Run()
		if code == 0 {
			if err := goleak.Find(goleak.IgnoreTopFunction("testing.(*T).Parallel")); err != nil {
				println(err.Error())
				code = 1
			}
		}
		return code
	}))
}

var alice = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "alice"}, ID: "one"}

// testWriter sends the log to the test's own.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

type rig struct {
	*Hub
	t       *testing.T
	path    string
	program string // of the test server, "" until a configuration names it
}

// bin returns the test server's program, the same one each time.
func (r *rig) bin() string {
	r.t.Helper()
	if r.program == "" {
		r.program = testBinary(r.t)
	}
	return r.program
}

// open returns a hub with a configuration; %BIN% in it is the test server's program.
func open(t *testing.T, config string, change ...func(*Options)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, path: filepath.Join(dir, "extensions_config.json")}
	if config != "" {
		r.write(config)
	}
	o := Options{
		ConfigPath: r.path, Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo})),
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"PATH": os.Getenv("PATH"), "SECRET": "open-sesame-42", "EMPTY": ""}[name]
			return v, ok
		},
		Version: "test", CallTimeout: 2 * time.Minute, ConnectTimeout: 2 * time.Minute,
	}
	for _, f := range change {
		f(&o)
	}
	h, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Hub = h
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) write(config string) {
	r.t.Helper()
	if strings.Contains(config, "%BIN%") {
		config = strings.ReplaceAll(config, "%BIN%", r.bin())
	}
	if err := os.WriteFile(r.path, []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

const testServer = `{"command":"%BIN%","args":["test-server"],"description":"for tests"}`

func withServers(servers string) string { return `{"mcpServers":{` + servers + `}}` }

func (r *rig) call(tool, input string) (sandbox.ToolResult, error) {
	r.t.Helper()
	return r.callAs(alice, tool, input)
}

func (r *rig) callAs(t sandbox.Thread, tool, input string) (sandbox.ToolResult, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	found, err := r.Catalog.Resolve(ctx, t, sandbox.ToolRef{Printed: tool})
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	return r.Catalog.Call(ctx, t, found, []byte(input))
}

// ok makes a call that has to work and returns its result.
func (r *rig) ok(tool, input string) string {
	r.t.Helper()
	res, err := r.call(tool, input)
	if err != nil || res.IsError {
		r.t.Fatalf("%s: %v %s", tool, err, res.Result)
	}
	return string(res.Result)
}

// fails makes a call that has to fail with kind and a text that has every one of want.
func (r *rig) fails(tool, input string, kind sandbox.Kind, want ...string) {
	r.t.Helper()
	_, err := r.call(tool, input)
	if sandbox.KindOf(err) != kind {
		r.t.Fatalf("%s: %v (%s), want %s", tool, err, sandbox.KindOf(err), kind)
	}
	for _, w := range want {
		if !strings.Contains(excerpt.Detail(err), w) {
			r.t.Errorf("%s: %q does not say %q", tool, excerpt.Detail(err), w)
		}
	}
}

func (r *rig) state(server string) sandbox.ToolServer {
	r.t.Helper()
	list, err := r.Catalog.Servers(context.Background(), alice)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == server {
			return s
		}
	}
	r.t.Fatalf("no server %s in %+v", server, list)
	return sandbox.ToolServer{}
}

// eventually waits for what happens in the background.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"my-test":`+testServer))
	for tool, want := range map[string]string{
		"blocks":     `[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AQ=="}]`,
		"json":       `{"b": 1, "a": [true, null]}`,
		"structured": `{"z":9007199254740993,"a":"\u003c\u0026\u003e"}`,
	} {
		if got := r.ok("my_test__"+tool, ""); got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
	}
	if got := r.ok("my-test.echo", `{"message":"</a> & \"b\""}`); got != `"</a> & \"b\""` {
		t.Errorf("echo: %s", got)
	}
	res, err := r.call("my_test__fail", "{}")
	if err != nil || !res.IsError || string(res.Result) != `"it did not work"` {
		t.Errorf("fail: %v %+v", err, res)
	}
}

func TestToolsAsTheyAre(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"my-test":`+testServer))
	set, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil || len(set.Tools) != 12 || set.Hash == "" {
		t.Fatalf("%v: %d tools", err, len(set.Tools))
	}
	tool, err := r.Catalog.Resolve(context.Background(), alice, sandbox.ToolRef{Server: "my-test", Name: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	// The server's order of parameters is kept.
	if z, m := strings.Index(string(tool.Input), "zulu"), strings.Index(string(tool.Input), "message"); z < 0 || z > m {
		t.Errorf("input %s", tool.Input)
	}
	if tool.Printed != "my_test__echo" || tool.WrapperPath != "/mnt/code-api/servers/my-test/echo.ts" {
		t.Errorf("%+v", tool)
	}
	if s := r.state("my-test"); s.State != "ready" || s.ToolCount != 12 || s.Transport != "stdio" || s.Description != "for tests" {
		t.Errorf("%+v", s)
	}
}

// TestReadyHasTools: a server that connects between the view of a thread and the question for its state is not shown as
// ready with no tools.
func TestReadyHasTools(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"late":`+testServer))
	before := r.Catalog.view(alice)
	if _, err := r.Catalog.Tools(context.Background(), alice); err != nil {
		t.Fatal(err)
	}
	if s := r.Catalog.server(r.Catalog.configs.of(alice.Owner).ByName["late"], before, alice); s.State != "ready" || s.ToolCount != 12 {
		t.Errorf("%+v", s)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer))
	for input, want := range map[string][]string{
		`{"message":7}`:               {"input.message", "string"},
		`{}`:                          {"input.message is missing"},
		``:                            {"input.message is missing"},
		`{"message":"a","alpha":0}`:   {"input.alpha"},
		`{"message":"a","alhpa":1}`:   {"input.alhpa is not a parameter"},
		`[1]`:                         {"input is not an object"},
		`{"message":`:                 {"input is not JSON"},
		`{"message":"a"} {}`:          {"input is not JSON"},
		`{"message":{"a":"b"},"b":1}`: {"input.message", "input.b"},
	} {
		r.fails("x__echo", input, sandbox.Invalid, append(want, "x__echo")...)
	}
	// A parameter that is null where its schema does not allow it counts as left out.
	if got := r.ok("x__echo", `{"alpha":null,"message":"a","zulu":null}`); got != `"a"` {
		t.Error(got)
	}
	r.fails("x__echo", `{"message":null}`, sandbox.Invalid, "input.message")
	_, err := r.call("x__echo", `{"message":7}`)
	var e *sandbox.Error
	if !asError(err, &e) || len(e.Fields) != 1 || e.Fields[0].Name != "input.message" {
		t.Errorf("fields %+v", e)
	}
}

func TestNamesThatAreNotThere(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer))
	r.fails("x__ecko", "", sandbox.NotFound, "x__ecko", "did you mean x__echo?")
	r.fails("echo", "", sandbox.NotFound, "x__echo")
	r.fails("y.echo", "", sandbox.NotFound, "y.echo")
	_, err := r.Catalog.Resolve(context.Background(), alice, sandbox.ToolRef{Server: "xx", Name: "echo"})
	if sandbox.KindOf(err) != sandbox.NotFound || !strings.Contains(err.Error(), `server "xx"; did you mean x?`) {
		t.Error(err)
	}
	_, err = r.Catalog.Search(context.Background(), alice, sandbox.ToolQuery{Server: "zz"})
	if sandbox.KindOf(err) != sandbox.NotFound {
		t.Error(err)
	}
}

// TestOneBadServerHidesNothing: whatever is wrong with a server, the others work, soon.
func TestOneBadServerHidesNothing(t *testing.T) {
	t.Setenv("SKERRY_TEST_SECRET", "must not be seen")
	config := withServers(`"good":` + testServer + `,
		"hangs":{"command":"%BIN%","args":["test-server","hang"]},
		"exits":{"command":"%BIN%","args":["test-server","exit"]},
		"absent":{"command":"no-such-program"},
		"unset":{"command":"%BIN%","env":{"A":"${NOT_SET}"}},
		"typed":{"command":["a"]},
		"nowhere":{"type":"http","url":"http://127.0.0.1:1/mcp"},
		"empty":{"type":"http","url":""},
		"odd":{"type":"carrier-pigeon"},
		"go-od":{"command":"true"},"go_od":{"command":"true"},
		"off":{"command":"true","enabled":false}`)
	r := open(t, config, func(o *Options) { o.FirstWait, o.ConnectTimeout = 3*time.Second, 8*time.Second })
	began := time.Now()
	set, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil || len(set.Tools) != 12 {
		t.Fatalf("%v: %d tools", err, len(set.Tools))
	}
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("the first answer took %s", took)
	}
	began = time.Now()
	if _, err := r.Catalog.Tools(context.Background(), alice); err != nil || time.Since(began) > 2500*time.Millisecond {
		t.Errorf("the second answer took %s: %v", time.Since(began), err)
	}
	for server, want := range map[string]string{
		"exits": "xx… I end", "absent": `"no-such-program" is not on PATH`, "unset": `"NOT_SET" is not set`,
		"typed": "command", "nowhere": "does not accept connections", "empty": "url: is empty", "odd": "carrier-pigeon", "go_od": "go-od",
	} {
		if s := r.state(server); s.State != "failed" || !strings.Contains(s.Error, want) {
			t.Errorf("%s: %+v, want %q", server, s, want)
		}
	}
	if s := r.state("exits"); !strings.Contains(s.Error, "ended before it answered: exit status 3; its standard error ends in: …x") || len(s.Error) > maxWords+200 {
		t.Errorf("%+v", s)
	}
	if s := r.state("hangs"); s.State == "ready" {
		t.Errorf("%+v", s)
	}
	r.fails("exits__x", "", sandbox.Unavailable, "exits")
	r.fails("hangs__x", "", sandbox.Unavailable, "hangs")
	if r.ok("good__echo", `{"message":"still"}`) != `"still"` {
		t.Error("no echo")
	}
}

// TestCallWaitsForItsServer: a list does without a server that starts slowly; a call of its tool waits.
func TestCallWaitsForItsServer(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"late":{"command":"sh","args":["-c","sleep 1; exec \"$0\" test-server","%BIN%"]}`), func(o *Options) { o.FirstWait = 10 * time.Millisecond })
	set, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil || len(set.Tools) != 0 {
		t.Fatalf("%v: %d tools", err, len(set.Tools))
	}
	if r.ok("late__echo", `{"message":"here"}`) != `"here"` {
		t.Error("no echo")
	}
}

// pid returns the process of a server.
func (r *rig) pid(server string) int {
	r.t.Helper()
	var w struct{ Pid int }
	if err := json.Unmarshal([]byte(r.ok(server+"__whoami", "")), &w); err != nil {
		r.t.Fatal(err)
	}
	return w.Pid
}

func TestCrashFloodAndHang(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server","noisy"],"timeout":30000},"slow":{"command":"%BIN%","args":["test-server"],"timeout":4000},"all":{"command":"%BIN%","args":["test-server"],"scope":"shared"}`))
	pid := r.pid("x")
	r.fails("x__flood", `{"bytes":20000000}`, sandbox.ToolFailed, "16777216 bytes")
	slow := r.pid("slow")
	r.fails("slow__sleep", `{"ms":60000}`, sandbox.Timeout, "no answer within 4s")
	if r.pid("slow") != slow {
		t.Error("the server was started anew after one slow call")
	}
	if len(r.ok("x__flood", `{"bytes":10000000}`)) != 10000002 {
		t.Error("ten million bytes are allowed")
	}
	if r.pid("x") != pid {
		t.Error("the server was started anew, after a flood and a slow call")
	}
	r.fails("x__crash", "", sandbox.Unavailable, "ended before it answered: exit status 7; its standard error ends in: ")
	// What one that several users have wrote may be about another one's call.
	if _, err := r.call("all__crash", ""); sandbox.KindOf(err) != sandbox.Unavailable || !strings.HasPrefix(err.Error(), `the MCP server "all" ended before it answered: exit status 7: `) {
		t.Errorf("a crash of a server that all share: %v", err)
	}
	eventually(t, "the server is there again", func() bool {
		_, err := r.call("x__echo", `{"message":"again"}`)
		return err == nil
	})
	if r.pid("x") == pid {
		t.Error("the same process after its crash")
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"],"timeout":100},"y":`+testServer))
	for range breaker.After {
		r.fails("x__sleep", `{"ms":60000}`, sandbox.Timeout)
	}
	best := time.Minute // of several: on a busy machine any one of them may wait for a core
	for range 10 {
		began := time.Now()
		r.fails("x__echo", `{"message":"a"}`, sandbox.Unavailable, "left alone")
		best = min(best, time.Since(began))
	}
	if best > 50*time.Millisecond {
		t.Errorf("a quick refusal took %s", best)
	}
	r.ok("y__echo", `{"message":"a"}`)
}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer), func(o *Options) { o.MaxParallel = 4 })
	r.ok("x__echo", `{"message":"a"}`)
	began := time.Now()
	errs := make(chan error, 12)
	for range cap(errs) {
		go func() {
			_, err := r.call("x__sleep", `{"ms":200}`)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("12 calls of 200 ms, 4 at a time, took %s", took)
	}
}

// TestScopes: each user has a process of its own, and so a state of its own.
func TestScopes(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"u":`+testServer+`,"t":{"command":"%BIN%","args":["test-server"],"scope":"thread"},"s":{"command":"%BIN%","args":["test-server"],"scope":"shared"}`))
	who := func(user, id, server string) string {
		th := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: user}, ID: id}
		res, err := r.callAs(th, server+"__whoami", "")
		if err != nil {
			t.Fatal(err)
		}
		var w struct {
			Pid int
			Cwd string
		}
		if err := json.Unmarshal(res.Result, &w); err != nil {
			t.Fatal(err)
		}
		return w.Cwd
	}
	same := func(server, user, id string) bool { return who("alice", "one", server) == who(user, id, server) }
	for _, c := range []struct {
		server, user, id string
		same             bool
	}{
		{"u", "alice", "two", true}, {"u", "bob", "one", false},
		{"t", "alice", "one", true}, {"t", "alice", "two", false}, {"t", "bob", "one", false},
		{"s", "bob", "two", true},
	} {
		if same(c.server, c.user, c.id) != c.same {
			t.Errorf("%+v", c)
		}
	}
	r.Catalog.ForgetThread(alice)
	eventually(t, "the thread's own server is gone", func() bool {
		r.pool.mu.Lock()
		defer r.pool.mu.Unlock()
		return r.pool.conns[connKey{"t", serverconfig.ScopeOf(serverconfig.ScopeThread, alice)}] == nil
	})
}

func TestProcessOfAServer(t *testing.T) {
	t.Setenv("SKERRY_TEST_SECRET", "must not be seen")
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"],"env":{"TOKEN":"Bearer ${SECRET}","D":"${NONE:-fall back}","E":"${EMPTY:-e}","F":"${HOME}/f"}}`))
	var w struct {
		UID, GID, Pid int
		Cwd, Status   string
	}
	if err := json.Unmarshal([]byte(r.ok("x__whoami", "")), &w); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && (w.UID != 65534 || w.GID != 65534 || !strings.Contains(w.Status, "Groups:\t \n")) {
		t.Errorf("uid %d, gid %d\n%s", w.UID, w.GID, w.Status)
	}
	if !strings.Contains(w.Status, "NoNewPrivs:\t1") {
		t.Error("no_new_privs is not set")
	}
	var env string
	if err := json.Unmarshal([]byte(r.ok("x__env", "{}")), &env); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, line := range strings.Split(env, "\n") {
		k, v, _ := strings.Cut(line, "=")
		got[k] = v
	}
	for k, v := range map[string]string{"TOKEN": "[redacted]", "D": "fall back", "E": "e", "F": w.Cwd + "/f", "HOME": w.Cwd, "LANG": "C.UTF-8", "PATH": os.Getenv("PATH")} {
		if got[k] != v {
			t.Errorf("%s=%q, want %q", k, got[k], v)
		}
		delete(got, k)
	}
	if len(got) > 0 {
		t.Errorf("inherited: %v", got)
	}
}

// TestNothingIsLeft: a closed hub leaves no process, not even a server's child.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer))
	pid := r.pid("x")
	var child int
	if err := json.Unmarshal([]byte(r.ok("x__spawn", "")), &child); err != nil {
		t.Fatal(err)
	}
	home := r.homes.dir
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{pid, child} {
		eventually(t, "the process is gone", func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("home folders: %v", err)
	}
	if _, err := r.call("x__echo", `{"message":"a"}`); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a call after the end: %v", err)
	}
}

func zombie(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	return err != nil || strings.Contains(string(text), ") Z ")
}

func TestToolsThatChange(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer))
	before, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil {
		t.Fatal(err)
	}
	changed, version := r.Changed(), r.Version()
	r.ok("x__grow", "")
	select {
	case <-changed:
	case <-time.After(5 * time.Second):
		t.Fatal("no word of the change")
	}
	after, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil || len(after.Tools) != len(before.Tools)+1 || after.Hash == before.Hash || r.Version() == version {
		t.Errorf("%v: %d tools, version %d", err, len(after.Tools), r.Version())
	}
	if r.ok("x__grown", "") != `"new"` {
		t.Error("the new tool does not work")
	}
}

func TestSilentOnDiscover(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server","legacy"]}`))
	if r.ok("x__echo", `{"message":"a"}`) != `"a"` {
		t.Error("no echo")
	}
}

// TestLateOnDiscover: a server of the stateless protocol that starts slower than the hub waits is reached all the same.
func TestLateOnDiscover(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server","late"]}`))
	r.pool.dialer.patience = time.Millisecond
	if r.ok("x__echo", `{"message":"a"}`) != `"a"` {
		t.Error("no echo")
	}
}

func TestDisabledTools(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"],"disabledTools":["crash","echo"]}`))
	set, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil || len(set.Tools) != 10 {
		t.Errorf("%v: %d tools", err, len(set.Tools))
	}
	r.fails("x__crash", "", sandbox.NotFound)
	if _, err := r.Catalog.Call(context.Background(), alice, sandbox.Tool{Server: "x", Name: "crash"}, nil); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a call past Resolve: %v", err)
	}
}

// TestPrintedNamesThatCollide: a tool "b__c" of a, a tool "c" of a__b.
func TestPrintedNamesThatCollide(t *testing.T) {
	t.Parallel()
	mk := func(server string, names ...string) (*conn, *toolList) {
		c := &conn{key: connKey{server: server}, cfg: &serverconfig.Server{Name: server}}
		var list []*tool
		for _, n := range names {
			tl, why := newTool(server, listed{Name: n})
			if why != "" {
				t.Fatal(why)
			}
			list = append(list, tl)
		}
		c.tools = newToolList(list)
		return c, c.tools
	}
	a, _ := mk("a", "b__c", "x")
	ab, _ := mk("a__b", "c", "y")
	v := newView(1, []*conn{a, ab})
	if len(v.set.Tools) != 2 || v.refused["a__b"] == nil || !strings.Contains(v.refused["a__b"].Error(), `"b__c" of the server "a"`) {
		t.Errorf("%+v", v.refused)
	}
	if _, ok := v.find(sandbox.ToolRef{Server: "a__b", Name: "y"}); ok {
		t.Error("a refused server has tools")
	}
}

func TestWrapperPathFollowsCodeAPI(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"read_file", "a.b", "x.d"} {
		tl, _ := newTool("my server", listed{Name: name})
		tree, err := codeapi.Generate(sandbox.ToolSet{Tools: []sandbox.Tool{tl.Tool}})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := tree[strings.TrimPrefix(tl.WrapperPath, "/mnt/code-api/")]; !ok {
			t.Errorf("%s is not among the wrappers", tl.WrapperPath)
		}
	}
}
