package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/summary"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is all use cases of a server, as fakes: err, when set, is what each of them answers.
type world struct {
	watched    chan error // ends a watch of files
	mu         sync.Mutex
	err        error
	callers    []sandbox.Caller
	forced     bool // Hibernate was
	cmd        sandbox.Command
	code       sandbox.Code
	script     sandbox.Script
	acquire    sandbox.AcquireOptions
	filter     sandbox.ThreadFilter
	auditPages int
	remembers  time.Duration // how long ago its memory of answers began
	streamsEnd bool          // a stream of records or events ends, in place of waiting for the next one
	audited    audit.Filter
	buckets    int // that a summary was asked for
	input      json.RawMessage
	ref        sandbox.ToolRef
	runs       int
	state      sandbox.State
	result     sandbox.Result
	events     []sandbox.Event
	follow     func(ctx context.Context, after uint64, emit func(sandbox.Event) error) error
	wait       func(ctx context.Context) error
	stdin      []byte
	closed     bool
	signal     string
	resized    chan sandbox.TerminalSize
	typed      chan []byte // gets what is sent to stdin, when it is not nil
	dir        string      // the thread's folder
	quota      int64
	changes    []string
	answers    map[string]stored
	configs    map[string]json.RawMessage
	login      string // what was done to a login

	// of /mcp
	mode     string
	disclose sandbox.Disclosure
	active   bool // guarded by mu: fs__rare is
	// activeChanged gets a value when active is another one.
	activeChanged chan struct{}
	noCode        bool
	noSkills      bool
	virtual       sandbox.VirtualSkill
	skillText     string // "": it cannot be read
	asked         sandbox.UpstreamRequest
	changed       chan struct{}
	others        map[sandbox.UpstreamKind]chan struct{}
	hang          chan struct{} // a call of a tool waits until its context ends, and closes it
	release       chan struct{} // or until this is closed
	killed        chan string
	watching      chan watching
	revoked       bool // the key of ann
}

func (w *world) UserSkills(_ context.Context, c sandbox.Caller) ([]sandbox.Skill, error) {
	return []sandbox.Skill{
		{Name: "broken", Category: "custom", Broken: true, Findings: []sandbox.Finding{{Rule: "yaml", Severity: "error", File: "SKILL.md", Line: 3, Message: "no"}}},
		{Name: "pdf", Description: "reads", License: "MIT", Compatibility: "Python 3", AllowedTools: []string{"Read", "Bash(git:*)"}, Metadata: json.RawMessage(`{"version":"1"}`), Category: "public", Enabled: true, Trusted: true, Location: "/mnt/skills/public/pdf/SKILL.md", Digest: "sha256:00", Defaults: &sandbox.ScriptDefaults{Template: "data"}},
	}, w.see(c)
}

func (w *world) UserSkill(ctx context.Context, c sandbox.Caller, name string) (sandbox.Skill, error) {
	if name != "pdf" {
		return sandbox.Skill{}, sandbox.Errorf(sandbox.NotFound, "there is no skill")
	}
	list, err := w.UserSkills(ctx, c)
	return list[1], err
}

func (w *world) SwitchSkill(ctx context.Context, c sandbox.Caller, name string, enabled, everybody bool) (sandbox.Skill, error) {
	w.changes = append(w.changes, fmt.Sprint("switch ", name, " ", enabled, " ", everybody))
	sk, err := w.UserSkill(ctx, c, name)
	sk.Enabled = enabled
	return sk, err
}

func (w *world) SkillText(_ context.Context, c sandbox.Caller, _ string) ([]byte, error) {
	return []byte("---\r\nraw"), w.see(c)
}

func (w *world) ReadSkill(_ context.Context, c sandbox.Caller, name string) ([]byte, error) {
	if w.skillText == "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "no text")
	}
	return []byte(w.skillText), w.see(c)
}

func (w *world) WriteSkillText(ctx context.Context, c sandbox.Caller, name string, text []byte) (sandbox.Skill, error) {
	w.changes = append(w.changes, fmt.Sprint("write ", name, " ", string(text)))
	return w.UserSkill(ctx, c, name)
}

func (w *world) DeleteSkill(_ context.Context, c sandbox.Caller, name string) error {
	w.changes = append(w.changes, "delete "+name)
	return w.see(c)
}

type stored struct {
	fingerprint string
	answer      []byte
}

func newWorld(t testing.TB) *world {
	code := 0
	w := &world{
		watched: make(chan error, 1), activeChanged: make(chan struct{}, 1),
		state: sandbox.Running, dir: t.TempDir(), remembers: time.Hour, answers: map[string]stored{}, configs: map[string]json.RawMessage{"fs": json.RawMessage(`{"command":"x","env":{"K":"***"}}`)},
		result: sandbox.Result{ExecID: "e1", Status: sandbox.StatusExited, ExitCode: &code, Stdout: "hi\n"},
	}
	w.events = []sandbox.Event{
		{N: 1, Type: sandbox.EventStarted, Time: time.Unix(1, 0)},
		{N: 2, Type: sandbox.EventStdout, Data: []byte("hi\n")},
		{N: 3, Type: sandbox.EventExit, Result: &w.result},
	}
	return w
}

// see notes the caller of a use case and returns its error.
func (w *world) see(c sandbox.Caller) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.callers = append(w.callers, c)
	return w.err
}

func (w *world) last() sandbox.Caller {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.callers[len(w.callers)-1]
}

func (w *world) info() sandbox.Info { return sandbox.Info{ID: "skerry-1", State: w.state} }

func (w *world) Acquire(_ context.Context, c sandbox.Caller, _ string, o sandbox.AcquireOptions) (sandbox.Info, error) {
	w.acquire = o
	return w.info(), w.see(c)
}

// Thread knows only the threads of one user.
func (w *world) Thread(_ context.Context, c sandbox.Caller, thread string) (sandbox.ThreadView, error) {
	if c.User != "ann" {
		return sandbox.ThreadView{}, sandbox.Errorf(sandbox.NotFound, "no such thread")
	}
	return sandbox.ThreadView{ThreadInfo: sandbox.ThreadInfo{Thread: sandbox.Thread{Owner: c.Owner, ID: thread}}}, w.see(c)
}

func (w *world) Threads(_ context.Context, c sandbox.Caller, f sandbox.ThreadFilter) (sandbox.ThreadList, error) {
	w.filter = f
	return sandbox.ThreadList{Items: []sandbox.ThreadView{{}}, Next: "next", Total: 7}, w.see(c)
}
func (w *world) ReleaseSandbox(_ context.Context, c sandbox.Caller, _ string) error { return w.see(c) }
func (w *world) DeleteThread(_ context.Context, c sandbox.Caller, _ string) error   { return w.see(c) }
func (w *world) Pause(_ context.Context, c sandbox.Caller, _ string) (sandbox.Info, error) {
	return w.info(), w.see(c)
}
func (w *world) Resume(_ context.Context, c sandbox.Caller, _ string) (sandbox.Info, error) {
	return w.info(), w.see(c)
}
func (w *world) SandboxLoad(_ context.Context, c sandbox.Caller, _ string) (sandbox.Load, error) {
	return sandbox.Load{CPU: 1500 * time.Millisecond, Memory: 7 << 20, PIDs: 3, Disk: &sandbox.DiskUsage{Bytes: 5 << 20}, Limits: sandbox.Limits{CPUMillis: 2000, MemoryBytes: 1 << 30, PIDs: 256, DiskBytes: 2 << 30}}, w.see(c)
}

func (w *world) Hibernate(_ context.Context, c sandbox.Caller, _ string, force bool) (sandbox.Info, error) {
	w.forced = force
	return w.info(), w.see(c)
}
func (w *world) Templates() []sandbox.Template {
	return []sandbox.Template{{Name: "base", Image: "image-of-base"}}
}

func (w *world) RunCommand(_ context.Context, c sandbox.Caller, _ string, cmd sandbox.Command) (string, error) {
	if err := cmd.Validate(); err != nil { // as the real one does
		return "", err
	}
	w.cmd = cmd
	w.runs++
	return "e1", w.see(c)
}
func (w *world) RunCode(_ context.Context, c sandbox.Caller, _ string, code sandbox.Code) (string, error) {
	checked := code
	checked.Language = cmp.Or(code.Language, "typescript")
	if err := checked.Validate(); err != nil {
		return "", err
	}
	w.code = code
	return "e1", w.see(c)
}
func (w *world) RunScript(_ context.Context, c sandbox.Caller, _ string, s sandbox.Script) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	w.script = s
	return "e1", w.see(c)
}
func (w *world) Wait(ctx context.Context, _ sandbox.Caller, _, _ string) (sandbox.Result, error) {
	if w.wait != nil {
		return w.result, w.wait(ctx)
	}
	return w.result, nil
}
func (w *world) Exec(_ context.Context, c sandbox.Caller, _, _ string) (sandbox.Result, error) {
	return w.result, w.see(c)
}
func (w *world) Execs(_ context.Context, c sandbox.Caller, _ string) ([]sandbox.ExecInfo, error) {
	return nil, w.see(c)
}
func (w *world) Events(ctx context.Context, _ sandbox.Caller, _, _ string, after uint64, emit func(sandbox.Event) error) error {
	if w.err != nil {
		return w.err
	}
	if w.follow != nil {
		return w.follow(ctx, after, emit)
	}
	for _, ev := range w.events {
		if ev.N > after {
			if err := emit(ev); err != nil {
				return err
			}
		}
	}
	return nil
}
func (w *world) SendStdin(_ context.Context, c sandbox.Caller, _, _ string, data []byte, closeIt bool) error {
	if w.typed != nil {
		w.typed <- data
		return nil
	}
	w.stdin, w.closed = data, closeIt
	return w.see(c)
}
func (w *world) Signal(_ context.Context, c sandbox.Caller, _, _, signal string) error {
	w.signal = signal
	return w.see(c)
}
func (w *world) Kill(_ context.Context, c sandbox.Caller, _, exec string) error {
	if w.killed != nil {
		w.killed <- exec
	}
	return w.see(c)
}

func (w *world) JoinTerminal(_ context.Context, c sandbox.Caller, _, exec string) error {
	if exec != "tty" {
		return sandbox.Errorf(sandbox.Conflict, "no terminal")
	}
	return w.see(c)
}
func (w *world) Processes(context.Context, sandbox.Caller, string, bool) ([]sandbox.Process, error) {
	return []sandbox.Process{{PID: 12, ExecID: "e1", Command: "python3 -m http.server", RSSBytes: 1 << 20}}, nil
}

func (w *world) KillProcess(_ context.Context, _ sandbox.Caller, _ string, pid int) error {
	if pid != 12 {
		return sandbox.Errorf(sandbox.NotFound, "no command of this thread left a process %d", pid)
	}
	return nil
}

func (w *world) Resize(_ context.Context, _ sandbox.Caller, _, _ string, size sandbox.TerminalSize) error {
	w.resized <- size
	return nil
}

func (w *world) fs(uid int) (*paths.FS, error) {
	return paths.New(paths.Options{Mounts: []paths.Mount{{Virtual: sandbox.UserDataDir, Host: w.dir, Writable: true}}, DiskBytes: w.quota})
}
func (w *world) ReadSandbox(context.Context, sandbox.Caller, string, func(paths.Tree) error) error {
	return sandbox.Errorf(sandbox.NotSupported, "there is no sandbox")
}

func (w *world) ChangeSandbox(context.Context, sandbox.Caller, string, string, string, func(paths.Tree) (int64, error)) error {
	return sandbox.Errorf(sandbox.NotSupported, "there is no sandbox")
}

func (w *world) ReadFiles(_ context.Context, c sandbox.Caller, _ string, read func(*paths.FS) error) error {
	if err := w.see(c); err != nil {
		return err
	}
	f, err := w.fs(0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // test
	return read(f)
}
func (w *world) ChangeFiles(ctx context.Context, c sandbox.Caller, _, action, path string, change func(*paths.FS) (int64, error)) error {
	if err := w.see(c); err != nil {
		return err
	}
	f, err := w.fs(0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // test
	n, err := change(f)
	w.changes = append(w.changes, action+" "+path+" "+strconv.FormatInt(n, 10))
	return err
}

// FollowEvents tells of the start, or of a reset, and of an exec, until the test ends it, well or with an error.
func (w *world) FollowEvents(ctx context.Context, c sandbox.Caller, _, after string, emit func(string, sandbox.ThreadEventKind, []byte) error) error {
	if err := w.see(c); err != nil {
		return err
	}
	kind := sandbox.EventFollowing
	if after == "gone" {
		kind = sandbox.EventReset
	}
	if err := emit("1", kind, []byte(`{"kind":"`+string(kind)+`"}`)); err != nil {
		return err
	}
	if err := emit("2", sandbox.EventExecStarted, []byte(`{"kind":"exec.started"}`)); err != nil || w.streamsEnd {
		return err
	}
	select {
	case err := <-w.watched:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WatchFiles tells of one file until the test ends it, well or with an error.
func (w *world) WatchFiles(ctx context.Context, c sandbox.Caller, _, path string, recursive bool, emit func([]paths.Change) error) error {
	if err := w.see(c); err != nil {
		return err
	}
	if err := emit(nil); err != nil {
		return err
	}
	if err := emit([]paths.Change{{Path: path + "/a", Change: "created", IsDir: recursive}, {Path: path + "/b", Change: "deleted"}}); err != nil {
		return err
	}
	select {
	case err := <-w.watched:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *world) ToolServers(_ context.Context, c sandbox.Caller, _ string) ([]sandbox.ToolServer, error) {
	return []sandbox.ToolServer{{Name: "fs", ToolCount: 3}, {Name: "mem", ToolCount: 4}}, w.see(c)
}
func (w *world) SearchTools(_ context.Context, c sandbox.Caller, _ string, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	return sandbox.ToolSearch{Query: q.Query, ServerFilter: q.Server, MatchCount: 1, Showing: 1, Tools: []sandbox.ToolFound{{Name: "fs__read:" + q.Detail}}}, w.see(c)
}
func (w *world) ToolsOf(_ context.Context, c sandbox.Caller, _, server string) ([]sandbox.Tool, error) {
	return []sandbox.Tool{{Server: server, Name: "read", Printed: "fs__read", Input: json.RawMessage(`{"type":"object"}`)}}, w.see(c)
}
func (w *world) CallTool(_ context.Context, c sandbox.Caller, _ string, ref sandbox.ToolRef, input json.RawMessage) (sandbox.ToolResult, error) {
	w.ref, w.input = ref, input
	raw := json.RawMessage(`{"content":[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}],"structuredContent":{"a":1}}`)
	return sandbox.ToolResult{Result: json.RawMessage(`{"a":1}`), CallID: "c1", Raw: raw}, w.see(c)
}
func (w *world) Prompt(_ context.Context, c sandbox.Caller, _ string) (prompt.Prompt, error) {
	return prompt.Prompt{Text: "t", Mode: "code", Version: "abc"}, w.see(c)
}
func (w *world) ServerConfigs(context.Context) (map[string]json.RawMessage, error) {
	return w.configs, w.err
}
func (w *world) PutServer(_ context.Context, name string, config json.RawMessage) error {
	w.configs[name] = config
	return w.err
}
func (w *world) DeleteServer(_ context.Context, name string) error {
	delete(w.configs, name)
	return w.err
}
func (w *world) InstallServer(_ context.Context, c sandbox.Caller, _ string) (int, error) {
	return 3, w.see(c)
}
func (w *world) ReconnectServer(context.Context, string) error { return w.err }
func (w *world) ServerTools(_ context.Context, c sandbox.Caller, name string) ([]sandbox.Tool, error) {
	return []sandbox.Tool{{Server: name, Name: "read", Printed: name + "__read", Input: json.RawMessage(`{"type":"object"}`)}}, w.see(c)
}
func (w *world) ServerStates(sandbox.Caller) []sandbox.ToolServer {
	return []sandbox.ToolServer{{Name: "crm", State: "needs_login", Error: "wants a login"}}
}
func (w *world) BeginLogin(_ context.Context, c sandbox.Caller, name, redirect string) (sandbox.ToolLogin, error) {
	return sandbox.ToolLogin{URL: "https://as.example/?for=" + name + "+" + c.User, RedirectURI: redirect}, w.see(c)
}
func (w *world) FinishLogin(_ context.Context, c sandbox.Caller, name, redirected string) error {
	w.login = name + " " + redirected
	return w.see(c)
}
func (w *world) Logout(_ context.Context, c sandbox.Caller, name string) error {
	w.login = "out " + name
	return w.see(c)
}
func (w *world) Follow(ctx context.Context, f audit.Filter, after string, emit func(audit.Record, string) error) error {
	if after == "bad" {
		return sandbox.Errorf(sandbox.Invalid, "cursor: use another")
	}
	for i := 1; i <= 3; i++ {
		if cursor := fmt.Sprint(i, "-0"); cursor > after {
			if err := emit(audit.Record{ID: fmt.Sprint("r", i), Tenant: f.Tenant, User: f.User}, cursor); err != nil {
				return err
			}
		}
	}
	if !w.streamsEnd {
		<-ctx.Done()
	}
	return nil
}
func (w *world) List(_ context.Context, f audit.Filter) ([]audit.Record, string, error) {
	w.audited = f
	if w.auditPages > 0 {
		n := 1
		if f.Cursor != "" {
			_, _ = fmt.Sscan(f.Cursor, &n)
		}
		if n < w.auditPages {
			return []audit.Record{{ID: fmt.Sprint("r", n), Subject: "=1+1"}}, fmt.Sprint(n + 1), nil
		}
		return []audit.Record{{ID: fmt.Sprint("r", n)}}, "", w.err
	}
	return []audit.Record{{ID: "r1"}}, "", w.err
}

func (w *world) Summarize(_ context.Context, f audit.Filter, buckets int) (audit.Summary, error) {
	w.audited, w.buckets = f, buckets
	t := summary.Tally{Count: 3}
	return audit.Summary{Tally: t, Users: summary.Facet{Values: []summary.FacetValue{{Value: f.User, Tally: t}}}}, w.err
}

// Authenticate knows the keys ann, bob (no administration), root (may act for others).
func (w *world) Authenticate(_ context.Context, cred auth.Credential) (sandbox.Caller, error) {
	secret, onBehalfOf := cred.Secret, cred.OnBehalfOf
	c := sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: secret}, Actor: secret, Role: sandbox.RoleDeveloper, KeyID: "k-" + secret}
	w.mu.Lock()
	defer w.mu.Unlock()
	if secret == "ann2" { // a second key of the same user
		c.User, secret, c.Capabilities = "ann", "ann", []string{"mail"}
	} else if secret == "ann" && w.revoked {
		secret = ""
	}
	switch secret {
	case "guess":
		return c, &auth.TooMany{Wait: 2500 * time.Millisecond}
	case "ann", "bob":
		if onBehalfOf != "" {
			return c, sandbox.Errorf(sandbox.Forbidden, "this key may not act for others")
		}
	case "root":
		c.Role = sandbox.RoleAdmin
		if onBehalfOf != "" {
			c.User = onBehalfOf
		}
	default:
		return c, sandbox.Errorf(sandbox.Unauthorized, "no such key")
	}
	return c, nil
}
func (w *world) CreateKey(_ context.Context, c sandbox.Caller, k auth.Key) (auth.Key, string, error) {
	k.ID = "k9"
	return k, "secret", w.see(c)
}
func (w *world) ListKeys(_ context.Context, c sandbox.Caller) ([]auth.Key, error) {
	return []auth.Key{{ID: "k1", Hash: "deadbeef"}}, w.see(c)
}
func (w *world) RevokeKey(_ context.Context, c sandbox.Caller, _ string) error { return w.see(c) }

func (w *world) Begin(_ context.Context, o sandbox.Owner, key, fingerprint string, age time.Duration) (bool, []byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := o.User + "/" + key
	s, ok := w.answers[k]
	switch {
	case !ok && age >= w.remembers:
		return false, nil, sandbox.KeyConflict(sandbox.KeyUnknown, "that is older than what is remembered")
	case !ok:
		w.answers[k] = stored{fingerprint: fingerprint}
		return true, nil, nil
	case s.fingerprint != fingerprint:
		return false, nil, sandbox.Errorf(sandbox.Invalid, "that Idempotency-Key was used for another request")
	case s.answer == nil:
		return false, nil, sandbox.KeyConflict(sandbox.KeyRunning, "the first request with that Idempotency-Key is still running")
	}
	return false, s.answer, nil
}
func (w *world) Finish(_ context.Context, o sandbox.Owner, key string, answer []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := o.User + "/" + key
	if answer == nil {
		delete(w.answers, k)
		return nil
	}
	w.answers[k] = stored{fingerprint: w.answers[k].fingerprint, answer: answer}
	return nil
}

// options wires a world to a server without authentication.
func (w *world) options(t testing.TB) (Options, *bytes.Buffer) {
	var log bytes.Buffer
	return Options{
		Service:        service.Service{Threads: w, Sandboxes: w, Runs: w, Execs: w, Terminals: w, Processes: w, Contexts: w, Files: w, Events: w, Tools: w, ActiveTools: w, Upstream: w, Prompts: w, Skills: w, ThreadSkills: w},
		Administration: Administration{MCPServers: w, MCPLogins: w, Audit: w},
		Clients:        Clients{OperatorTenant: "acme", Anonymous: &sandbox.Owner{Tenant: "default", User: "ann"}},
		Idempotency:    w, Version: "1.2.3", Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

func handler(t testing.TB, w *world, change ...func(*Options)) http.Handler {
	t.Helper()
	o, _ := w.options(t)
	for _, c := range change {
		c(&o)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// send makes a request with a JSON body ("" = none); headers are "Name: value".
func send(h http.Handler, method, url, body string, headers ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, url, r)
	req.Host = "localhost:8080"
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			req.Host = value
		} else if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func decodeBody(t testing.TB, rec *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil {
		t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
	}
	return m
}

// wantProblem checks an error's whole form.
func wantProblem(t testing.TB, rec *httptest.ResponseRecorder, status int, code string) map[string]any {
	t.Helper()
	if rec.Code != status || rec.Header().Get("Content-Type") != "application/problem+json" || rec.Header().Get("X-Request-Id") == "" {
		t.Errorf("%d %s %s, want %d %s", rec.Code, rec.Header().Get("Content-Type"), rec.Body, status, code)
		return map[string]any{}
	}
	m := decodeBody(t, rec)
	if m["code"] != code || m["status"] != float64(status) || m["type"] != "urn:skerry:error:"+code || m["title"] == "" || m["detail"] == "" {
		t.Errorf("problem %v, want %d %s", m, status, code)
	}
	return m
}
