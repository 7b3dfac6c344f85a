package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var thread = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "main"}

// fakeHub has the tools of server "s"; call may be replaced.
type fakeHub struct {
	policy.Hub // what is not below is not called

	call func(ctx context.Context, tool sandbox.Tool, input []byte) (sandbox.ToolResult, error)

	mu    sync.Mutex
	calls int
}

func (h *fakeHub) ResolveAmong(_ context.Context, t sandbox.Thread, ref sandbox.ToolRef, _ func(sandbox.Tool) bool) (sandbox.Tool, error) {
	name, ok := strings.CutPrefix(ref.Printed, "s__")
	if ref.Server == "s" {
		name, ok = ref.Name, true
	}
	if !ok || t != thread {
		return sandbox.Tool{}, sandbox.Errorf(sandbox.NotFound, "there is no tool %.100q", ref.Printed)
	}
	return sandbox.Tool{Server: "s", Name: name, Printed: "s__" + name}, nil
}

func (h *fakeHub) Arguments(_ context.Context, _ sandbox.Thread, _ sandbox.Tool, input []byte) ([]byte, error) {
	return input, nil
}

func (h *fakeHub) CallChecked(ctx context.Context, _ sandbox.Thread, tool sandbox.Tool, input []byte, _ sandbox.ToolWatch) (sandbox.ToolResult, error) {
	h.mu.Lock()
	h.calls++
	h.mu.Unlock()
	if h.call != nil {
		return h.call(ctx, tool, input)
	}
	return sandbox.ToolResult{Result: input}, nil
}

// fakeRecorder remembers records as "attempt s__x", "result s__x ok" and "refused …".
type fakeRecorder struct {
	fail error

	mu      sync.Mutex
	records []string
	last    call.Outcome
}

func (r *fakeRecorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, fmt.Sprintf(format, args...))
}

func (r *fakeRecorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

func (r *fakeRecorder) Attempt(_ context.Context, a call.Attempt) (string, error) {
	if r.fail != nil {
		return "", r.fail
	}
	r.add("attempt %s", a.Tool)
	return "id-" + a.Tool, nil
}

func (r *fakeRecorder) Result(ctx context.Context, id string, o call.Outcome) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.add("result %s %s", strings.TrimPrefix(id, "id-"), o.Status)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = o
	return nil
}

func (r *fakeRecorder) Refused(_ context.Context, t sandbox.Thread, detail string) error {
	r.add("refused %s %s", t.ID, detail)
	return nil
}

// rig is a bridge with one endpoint and a client.
type rig struct {
	testing.TB
	bridge   *Bridge
	hub      *fakeHub
	recorder *fakeRecorder
	keep     SaveResult
	endpoint *Endpoint
	socket   string
	client   *http.Client
}

func newRig(t testing.TB) *rig {
	t.Helper()
	g := &rig{TB: t, hub: &fakeHub{}, recorder: &fakeRecorder{}}
	calls := call.NewMaker(call.MakerOptions{Guard: policy.New(policy.Options{Hub: g.hub}), Records: g.recorder})
	g.bridge = New(Options{Calls: calls, Refusals: g.recorder, Limits: Limits{InlineBytes: 1000, Bytes: 10_000}})
	g.keep = func(_ context.Context, th sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
		if th != thread {
			t.Errorf("kept for %v", th)
		}
		if bytes.Contains(result, []byte("full")) {
			return sandbox.ResultFile{}, sandbox.Errorf(sandbox.QuotaExceeded, "the disk is full")
		}
		return sandbox.ResultFile{Path: "/mnt/user-data/x/" + name, Bytes: int64(len(result)), Format: "json"}, nil
	}
	dir := t.TempDir()
	var err error
	if g.endpoint, err = g.bridge.Serve(dir, os.Getuid(), thread); err != nil {
		t.Fatal(err)
	}
	g.socket = filepath.Join(dir, socketName)
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", g.socket)
	}}
	g.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := g.endpoint.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

type answer struct {
	status int
	body   []byte
	Result json.RawMessage `json:"result"`
	Error  struct{ Code, Message, Tool string }
}

func (g *rig) post(path, token, body string) answer {
	g.Helper()
	req, err := http.NewRequest("POST", "http://bridge"+path, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := g.client.Do(req)
	if err != nil {
		g.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.Error(err)
	}
	a := answer{status: resp.StatusCode, body: text}
	if err := json.Unmarshal(text, &a); err != nil {
		g.Errorf("%v: %.200s", err, text)
	}
	if resp.ContentLength != int64(len(text)) {
		g.Errorf("Content-Length %d of %d bytes", resp.ContentLength, len(text))
	}
	return a
}

func (g *rig) register(id string) string {
	return g.bridge.Register(Exec{ExecID: id, Thread: thread, SaveResult: g.keep})
}

func TestCall(t *testing.T) {
	g := newRig(t)
	token := g.register("e1")
	for path, body := range map[string]string{
		"/call": `{"tool":"s__x","input":{"a":[1,"é"]}}`,
		"/":     `{"tool":"s__x","arguments":{"a":[1,"é"]}}`,
	} {
		if a := g.post(path, token, body); a.status != 200 || string(a.Result) != `{"a":[1,"é"]}` {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if a := g.post("/", token, `{"server":"s","tool":"y","arguments":{}}`); a.status != 200 || string(a.Result) != `{}` {
		t.Errorf("%+v", a)
	}
	if a := g.post("/call", token, `{"tool":"s__z"}`); a.status != 200 || string(a.Result) != `{}` {
		t.Errorf("%+v", a)
	}
	var names []string
	for _, c := range g.bridge.Finish("e1") {
		names = append(names, c.Tool+" "+c.Status+c.Error)
	}
	if got := strings.Join(names, ", "); got != "s__x ok, s__x ok, s__y ok, s__z ok" {
		t.Error(got)
	}
	if got := g.recorder.list(); len(got) != 8 || got[0] != "attempt s__x" || got[1] != "result s__x ok" {
		t.Error(got)
	}
	if g.bridge.Finish("e1") != nil || g.bridge.Finish("none") != nil {
		t.Error("calls of an exec that is not there")
	}
}

func TestTokens(t *testing.T) {
	g := newRig(t)
	ended := g.register("ended")
	g.bridge.Finish("ended")
	foreign := g.bridge.Register(Exec{ExecID: "f", Thread: sandbox.Thread{Owner: thread.Owner, ID: "other"}})
	replaced := g.register("twice")
	good := g.register("twice")
	if len(good) != 64 || good == replaced {
		t.Errorf("tokens %q, %q", good, replaced)
	}
	for name, token := range map[string]string{"none": "", "guess": strings.Repeat("0", 64), "ended": ended, "foreign": foreign, "replaced": replaced, "upper case": strings.ToUpper(good) + "x"} {
		a := g.post("/call", token, `{"tool":"s__x","input":{}}`)
		if a.status != 401 || a.Error.Code != "unauthorized" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if g.hub.calls != 0 || len(g.recorder.list()) != 6 {
		t.Errorf("%d calls, %v", g.hub.calls, g.recorder.list())
	}
	req, err := http.NewRequest("POST", "http://bridge/call", strings.NewReader(`{"tool":"s__x"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Skerry-Exec-Token", good)
	resp, err := g.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("by the other header: %d", resp.StatusCode)
	}
}

// TestRefusalsAreBounded counts by the clock, as a busy machine needs longer for the requests: what has
// no record of its own is named by the next one.
func TestRefusalsAreBounded(t *testing.T) {
	g := newRig(t)
	start := time.Now()
	for range 200 {
		g.post("/call", "x", `{}`)
	}
	atMost := maxRefusals + 1 + int(maxRefusals*time.Since(start).Seconds())
	if n := len(g.recorder.list()); n < maxRefusals || n > atMost {
		t.Errorf("%d records of 200 refusals, want %d to %d", n, maxRefusals, atMost)
	}
	time.Sleep(150 * time.Millisecond)
	g.post("/call", "x", `{}`)
	told := 0
	for _, record := range g.recorder.list() {
		told++
		if _, rest, ok := strings.Cut(record, "; "); ok {
			var n int
			if _, err := fmt.Sscanf(rest, "%d more were refused before", &n); err != nil || n < 1 {
				t.Errorf("%s: %v", record, err)
			}
			told += n
		}
	}
	if told != 201 {
		t.Errorf("the records tell of %d refusals, want 201", told)
	}
}

func TestRefusedBodies(t *testing.T) {
	g := newRig(t)
	token := g.register("e")
	for body, want := range map[string]string{
		``: "ends too early", `{`: "ends too early", `[]`: "must be a JSON object", `null`: "tool:", `{"tool":7}`: "tool:", `{"tool":""}`: "tool:",
		`{"tool":"s__x","input":[]}`: "input:", `{"tool":"s__x","arguments":"x"}`: "arguments:", `{"tool":"s__x","input":{},"arguments":{}}`: "arguments:",
		`{"tool":"s__x","extra":1}`: "extra", `{"tool":"s__x"}{}`: "more than one", `{"tool":"s__x"} x`: "more than one", "{\"tool\":\"s__\xff\"}": "UTF-8",
		`{"tool":"` + strings.Repeat("x", 600) + `"}`: "tool:", `{"server":[],"tool":"x"}`: "server:", `{"tool":"s__x","input":` + strings.Repeat("[", 20000): "not JSON",
	} {
		if a := g.post("/call", token, body); a.status != 400 || a.Error.Code != "invalid" || !strings.Contains(a.Error.Message, want) {
			t.Errorf("%.50q: %+v", body, a)
		}
	}
	if a := g.post("/call", token, `{"tool":"s__x","input":{"a":"`+strings.Repeat("x", MaxBodyBytes)+`"}}`); a.status != 413 || a.Error.Code != "invalid" {
		t.Errorf("too large: %+v", a)
	}
	if a := g.post("/other", token, `{}`); a.status != 404 {
		t.Errorf("%+v", a)
	}
	if a := g.post("/healthz", token, `{}`); a.status != 405 {
		t.Errorf("%+v", a)
	}
	if g.hub.calls != 0 || len(g.bridge.Finish("e")) != 0 {
		t.Errorf("%d calls", g.hub.calls)
	}
	resp, err := g.client.Get("http://bridge/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("healthz: %d", resp.StatusCode)
	}
}

func TestFailures(t *testing.T) {
	secret := errors.New("dial /run/secret.sock")
	for name, c := range map[string]struct {
		result sandbox.ToolResult
		err    error
		panics bool
		status int
		want   sandbox.Kind
		text   string
		kept   string
	}{
		"is error":       {result: sandbox.ToolResult{Result: []byte(`"MCP Error (401): no"`), IsError: true}, status: 502, want: "tool_failed", text: "MCP Error (401): no", kept: "error"},
		"is error, JSON": {result: sandbox.ToolResult{Result: []byte(`{"a":1}`), IsError: true}, status: 502, want: "tool_failed", text: `{"a":1}`, kept: "error"},
		"tool failed":    {err: sandbox.Wrap(sandbox.ToolFailed, secret, "it broke"), status: 502, want: "tool_failed", text: "it broke", kept: "error"},
		"invalid":        {err: &sandbox.Error{Kind: sandbox.Invalid, Detail: "bad", Fields: []sandbox.Field{{Name: "path", Detail: "missing"}}}, status: 400, want: "invalid", text: "bad; path: missing", kept: "error"},
		"timeout":        {err: sandbox.Wrap(sandbox.Timeout, secret, "slow"), status: 504, want: "timeout", text: "slow", kept: "timeout"},
		"deadline":       {err: fmt.Errorf("x: %w", context.DeadlineExceeded), status: 504, want: "timeout", text: "the call took too long", kept: "timeout"},
		"unavailable":    {err: sandbox.Wrap(sandbox.Unavailable, context.DeadlineExceeded, "down"), status: 503, want: "unavailable", text: "down", kept: "error"},
		"forbidden":      {err: sandbox.Errorf(sandbox.Forbidden, "no"), status: 403, want: "forbidden", text: "no", kept: "denied"},
		"unauthorized":   {err: sandbox.Errorf(sandbox.Unauthorized, "no"), status: 502, want: "tool_failed", text: "no", kept: "error"},
		"unknown":        {err: secret, status: 500, want: "internal", text: "internal error", kept: "error"},
		"internal":       {err: sandbox.Wrap(sandbox.Internal, secret, "in /etc"), status: 500, want: "internal", text: "internal error", kept: "error"},
		"panic":          {panics: true, status: 500, want: "internal", text: "internal error", kept: "error"},
		"not kept":       {result: sandbox.ToolResult{Result: []byte(`"full` + strings.Repeat("x", 1000) + `"`)}, status: 413, want: "quota_exceeded", text: "the disk is full", kept: "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.hub.call = func(context.Context, sandbox.Tool, []byte) (sandbox.ToolResult, error) {
				if c.panics {
					panic("boom")
				}
				return c.result, c.err
			}
			a := g.post("/call", g.register("e"), `{"tool":"s__x","input":{}}`)
			if a.status != c.status || a.Error.Code != string(c.want) || a.Error.Message != c.text || a.Error.Tool != "s__x" {
				t.Errorf("%+v", a)
			}
			calls := g.bridge.Finish("e")
			if len(calls) != 1 || calls[0].Status != c.kept || calls[0].Error != c.text {
				t.Errorf("%+v", calls)
			}
			if r := g.recorder.last; r.Status != c.kept || r.Detail != c.text || r.Attempt.Tool != "s__x" || r.BytesOut != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestUnknownTool(t *testing.T) {
	g := newRig(t)
	a := g.post("/call", g.register("e"), `{"tool":"none__x","input":{}}`)
	if a.status != 404 || a.Error.Code != "not_found" || a.Error.Tool != "none__x" || g.hub.calls != 0 {
		t.Errorf("%+v, %d calls", a, g.hub.calls)
	}
	if got := strings.Join(g.recorder.list(), ", "); got != "attempt none__x, result none__x error" {
		t.Error(got)
	}
}

// TestNoRecordNoCall: what cannot be recorded is not done.
func TestNoRecordNoCall(t *testing.T) {
	g := newRig(t)
	g.recorder.fail = errors.New("disk full at /var")
	a := g.post("/call", g.register("e"), `{"tool":"s__x","input":{}}`)
	if a.status != 503 || a.Error.Code != "unavailable" || strings.Contains(a.Error.Message, "/var") || g.hub.calls != 0 {
		t.Errorf("%+v, %d calls", a, g.hub.calls)
	}
	if c := g.bridge.Finish("e"); len(c) != 1 || c[0].Status != "error" || strings.Contains(c[0].Error, "/var") {
		t.Errorf("%+v", c)
	}
}

// TestInterim: a caller who asks for it hears that a long call goes on, and others do not.
func TestInterim(t *testing.T) {
	for _, asks := range []bool{true, false} {
		g := newRig(t)
		g.endpoint.interim = 5 * time.Millisecond
		heard := make(chan struct{})
		g.hub.call = func(context.Context, sandbox.Tool, []byte) (sandbox.ToolResult, error) {
			if asks {
				<-heard
			} else {
				time.Sleep(50 * time.Millisecond)
			}
			return sandbox.ToolResult{Result: json.RawMessage("1")}, nil
		}
		n := 0
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if n++; code != http.StatusProcessing {
				t.Errorf("heard %d", code)
			}
			if n == 2 {
				close(heard)
			}
			return nil
		}}
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bridge/call", strings.NewReader(`{"tool":"s__x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+g.register("e"))
		if asks {
			req.Header.Set("Skerry-Interim", "102")
		}
		resp, err := g.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || string(body) != `{"result":1}` || asks != (n > 0) {
			t.Errorf("asks %v: %d %s, heard %d times, %v", asks, resp.StatusCode, body, n, err)
		}
	}
}
