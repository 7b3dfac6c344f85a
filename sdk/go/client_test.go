package skerry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

// script is a server that answers each request by the next of its steps, and the last one for ever.
type script struct {
	mu       sync.Mutex
	steps    []http.HandlerFunc
	requests []*http.Request
	bodies   []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	step := s.steps[min(len(s.requests), len(s.steps)-1)]
	s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
	s.mu.Unlock()
	step(w, r)
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func scripted(t *testing.T, o skerry.Options, steps ...http.HandlerFunc) (*skerry.Client, *script) {
	t.Helper()
	s := &script{steps: steps}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return skerry.New(web.URL+"/", o), s
}

func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func problem(status int, code, more string, headers ...string) http.HandlerFunc {
	return says(status, fmt.Sprintf(`{"status":%d,"code":%q,"detail":"what is wrong"%s}`, status, code, more), headers...)
}

// cut ends the connection in the middle of an answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// events is a stream of these; without an exit the connection breaks.
func events(list ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range list {
			_, _ = io.WriteString(w, e+"\n\n")
		}
		_ = http.NewResponseController(w).Flush()
		if !strings.Contains(list[len(list)-1], "event: exit") {
			panic(http.ErrAbortHandler)
		}
	}
}

const (
	started = "id: 1\nevent: started\ndata: {\"exec_id\":\"e1\"}"
	hello   = "id: 2\nevent: stdout\ndata: {\"data\":\"hello \"}"
	world   = "id: 3\nevent: stdout\ndata: {\"data\":\"d29ybGT/\",\"encoding\":\"base64\"}"
	exit    = "id: 4\nevent: exit\ndata: {\"exec_id\":\"e1\",\"status\":\"exited\",\"exit_code\":0,\"stdout\":\"hello world\"}"
)

const result = `{"exec_id":"e1","status":"running"}`

// TestRepeats: what is sent again after what, and what is not.
func TestRepeats(t *testing.T) {
	read := func(c *skerry.Client) error { _, err := c.Thread("t").Info(t.Context()); return err }
	write := func(c *skerry.Client) error { _, err := c.Thread("t").WriteFile(t.Context(), "/a", nil); return err }
	remove := func(c *skerry.Client) error { return c.Thread("t").Delete(t.Context()) }
	edit := func(c *skerry.Client) error {
		_, err := c.Thread("t").EditFile(t.Context(), "/a", "x", "y", false)
		return err
	}
	after := func(c *skerry.Client) error { _, err := c.Thread("t").AppendFile(t.Context(), "/a", nil); return err }
	start := func(c *skerry.Client) error {
		_, err := c.Thread("t").Start(t.Context(), skerry.Command{Command: "x"})
		return err
	}
	run := func(c *skerry.Client) error {
		_, err := c.Thread("t").Exec(t.Context(), skerry.Command{Command: "x"})
		return err
	}
	code := func(c *skerry.Client) error {
		_, err := c.Thread("t").ExecuteCode(t.Context(), skerry.Code{Code: "1"})
		return err
	}
	tool := func(c *skerry.Client) error { _, err := c.Thread("t").CallTool(t.Context(), "a__b", nil); return err }
	ok, stream := says(200, result), events(started, exit)
	busy := problem(503, "capacity_exceeded", "", "Retry-After", "0")
	full := problem(503, "capacity_exceeded", "", "Retry-After", "1")
	slow := problem(429, "quota_exceeded", "", "Retry-After", "1")
	away := problem(503, "unavailable", "", "Retry-After", "1")
	safe := problem(503, "unavailable", `,"not_started":true`, "Retry-After", "1")
	running := problem(409, "conflict", `,"errors":[{"field":"Idempotency-Key","detail":"running"}]`, "Retry-After", "1")
	for _, tc := range []struct {
		name   string
		call   func(*skerry.Client) error
		first  http.HandlerFunc
		then   http.HandlerFunc
		wanted int // requests
	}{
		{"read, cut", read, cut, ok, 2},
		{"read, unavailable", read, away, ok, 2},
		{"read, no such thread", read, problem(404, "not_found", ""), ok, 1},
		{"write, cut", write, cut, ok, 2},
		{"delete, cut, and then gone", remove, cut, problem(404, "not_found", ""), 2},
		{"edit, cut", edit, cut, ok, 2},
		{"edit, its first request runs", edit, running, ok, 2},
		{"edit, conflict", edit, problem(409, "conflict", ""), ok, 1},
		{"append, cut", after, cut, ok, 1},
		{"append, full", after, full, ok, 2},
		{"start, cut", start, cut, ok, 1},
		{"start, unavailable", start, away, ok, 1},
		{"start, not started", start, safe, ok, 2},
		{"start, full", start, full, ok, 2},
		{"start, full, and the server does not say when it is not", start, busy, ok, 1},
		{"exec, cut", run, cut, stream, 1},
		{"exec, unavailable", run, away, stream, 1},
		{"exec, not started", run, safe, stream, 2},
		{"exec, too many", run, slow, stream, 2},
		{"exec, internal", run, problem(500, "internal", ""), stream, 1},
		{"code, cut", code, cut, stream, 1},
		{"code, full", code, full, stream, 2},
		{"tool, cut", tool, cut, ok, 1},
		{"tool, failed", tool, problem(502, "tool_failed", ""), ok, 1},
		{"tool, not started", tool, safe, ok, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, s := scripted(t, skerry.Options{}, tc.first, tc.then)
			err := tc.call(c)
			if n := s.count(); n != tc.wanted || (err == nil) != (tc.wanted == 2) {
				t.Fatalf("%d requests, %v", n, err)
			}
			if strings.HasSuffix(tc.name, ", cut") && tc.wanted == 1 && !errors.As(err, new(*skerry.LostError)) {
				t.Errorf("that it may have been done is not said: %v", err)
			}
			if tc.wanted == 2 && s.bodies[0] != s.bodies[1] {
				t.Errorf("another body: %q, %q", s.bodies[0], s.bodies[1])
			}
		})
	}
}

// TestKey: a second request has the key of the first one and says how old it is.
func TestKey(t *testing.T) {
	c, s := scripted(t, skerry.Options{}, cut, says(200, `{}`))
	if _, err := c.Thread("t").MakeFolder(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	one, two := s.requests[0].Header, s.requests[1].Header
	if key := one.Get("Idempotency-Key"); len(key) < 16 || two.Get("Idempotency-Key") != key {
		t.Errorf("keys %q, %q", key, two.Get("Idempotency-Key"))
	}
	if one.Get("Idempotency-Age") != "" || two.Get("Idempotency-Age") == "" {
		t.Errorf("ages %q, %q", one.Get("Idempotency-Age"), two.Get("Idempotency-Age"))
	}
	c, _ = scripted(t, skerry.Options{}, cut, problem(409, "conflict", `,"errors":[{"field":"Idempotency-Key","detail":"unknown"}]`))
	if _, err := c.Thread("t").MakeFolder(t.Context(), "/a"); !errors.As(err, new(*skerry.LostError)) || !errors.Is(err, skerry.Conflict) {
		t.Errorf("what nobody knows: %v", err)
	}
}

// TestNotConnected: nothing was sent, so that a command is sent again, too.
func TestNotConnected(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c := skerry.New("http://"+address, skerry.Options{Patience: 20 * time.Second})
	done := make(chan error, 1)
	go func() {
		_, err := c.Thread("t").Start(t.Context(), skerry.Command{Command: "x"})
		done <- err
	}()
	time.Sleep(150 * time.Millisecond) // it is refused at least once; if it is not, the test still holds
	if l, err = net.Listen("tcp", address); err != nil {
		t.Skip("the port was taken meanwhile:", err)
	}
	web := &http.Server{Handler: says(200, result), ReadHeaderTimeout: time.Second}
	go web.Serve(l) //nolint:errcheck // it ends with the test
	defer web.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	quick := skerry.New("http://127.0.0.1:1", skerry.Options{Patience: -1})
	if _, err := quick.Thread("t").Start(t.Context(), skerry.Command{Command: "x"}); err == nil || errors.As(err, new(*skerry.LostError)) {
		t.Errorf("nothing was sent: %v", err)
	}
}

// TestTakenUp: a lost stream goes on behind its last event; nothing is missed, nothing comes twice, nothing runs twice.
func TestTakenUp(t *testing.T) {
	c, s := scripted(t, skerry.Options{}, events(started, hello), cut, away(), events(world, exit))
	var got []string
	for e, err := range c.Thread("a/b").StreamExec(t.Context(), skerry.Command{Command: "x"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s %q %s", e.N, e.Type, e.Data, e.ExecID))
	}
	want := []string{`1 started "" e1`, `2 stdout "hello " e1`, `3 stdout "world\xff" e1`, `4 exit "" e1`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i, r := range s.requests {
		if i == 0 && (r.Method != "POST" || r.Header.Get("Idempotency-Key") != "") || i > 0 && (r.Method != "GET" || r.URL.EscapedPath() != "/api/threads/a%2Fb/execs/e1/events" || r.URL.RawQuery != "after=2") {
			t.Errorf("request %d: %s %s", i, r.Method, r.URL)
		}
	}
}

func away() http.HandlerFunc { return problem(503, "unavailable", "") }

// TestStreamLost: what cannot be taken up names the exec that may still run.
func TestStreamLost(t *testing.T) {
	c, s := scripted(t, skerry.Options{}, events(started, hello), problem(404, "not_found", ""))
	if _, err := c.Thread("t").Exec(t.Context(), skerry.Command{Command: "x"}); !errors.Is(err, skerry.NotFound) || s.count() != 2 {
		t.Errorf("%v after %d requests", err, s.count())
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, _ = scripted(t, skerry.Options{}, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		events(started)(w, r)
	}, cut)
	var lost *skerry.LostError
	if _, err := c.Thread("t").Exec(ctx, skerry.Command{Command: "x"}); err == nil {
		t.Errorf("%v", err)
	} else if errors.As(err, &lost) && lost.ExecID != "e1" && lost.ExecID != "" {
		t.Errorf("%+v", lost)
	}
}

// TestSilent: a server that says nothing is given up.
func TestSilent(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	o := skerry.Options{Timeout: 50 * time.Millisecond, Silence: 50 * time.Millisecond, Wait: 50 * time.Millisecond, Patience: -1}
	c, _ := scripted(t, o, hang)
	thread := c.Thread("t")
	for name, call := range map[string]func() error{
		"read":  func() error { _, err := thread.Info(t.Context()); return err },
		"exec":  func() error { _, err := thread.Exec(t.Context(), skerry.Command{Command: "x"}); return err },
		"start": func() error { _, err := thread.Start(t.Context(), skerry.Command{Command: "x"}); return err },
		"get":   func() error { _, err := thread.Get(t.Context(), "/a"); return err },
		"put":   func() error { _, err := thread.Put(t.Context(), "/a", strings.NewReader("x")); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestErrors: an error has its code, its fields and its limit; one of a proxy has a code, too.
func TestErrors(t *testing.T) {
	c, _ := scripted(t, skerry.Options{Patience: -1}, problem(429, "quota_exceeded",
		`,"errors":[{"field":"f","detail":"d"}],"limit":{"limit":"execs","scope":"user","who":"ann","max":16,"used":16,"retry_after_s":42,"free_at":"2026-11-21T10:00:42Z"}`,
		"X-Request-Id", "r1", "Retry-After", "42"))
	_, err := c.Thread("t").Info(t.Context())
	var e *skerry.Error
	if !errors.As(err, &e) || !errors.Is(err, skerry.QuotaExceeded) || errors.Is(err, skerry.NotFound) {
		t.Fatal(err)
	}
	if e.Status != 429 || e.RequestID != "r1" || e.RetryAfter != 42*time.Second || e.Limit == nil || e.Limit.Who != "ann" || err.Error() != "what is wrong\n  f: d (quota_exceeded)" {
		t.Errorf("%+v %q", e, err)
	}
	c, _ = scripted(t, skerry.Options{Patience: -1}, says(502, "<html>"))
	if _, err := c.Thread("t").Info(t.Context()); !errors.Is(err, skerry.Unavailable) || !strings.Contains(err.Error(), "502") {
		t.Errorf("of a proxy: %v", err)
	}
	if _, err := skerry.New("http://a b", skerry.Options{}).Thread("t").Info(t.Context()); err == nil {
		t.Error("an address that is none")
	}
}

// TestPut: an upload is sent again from where it was, if it can be.
func TestPut(t *testing.T) {
	c, s := scripted(t, skerry.Options{Key: "k", OnBehalfOf: "ann"}, away503, says(201, `{"path":"/a","bytes":3}`))
	r := strings.NewReader("0123")
	_, _ = r.ReadByte()
	if w, err := c.Thread("t").Put(t.Context(), "/a b", r); err != nil || w.Bytes != 3 || !slices.Equal(s.bodies, []string{"123", "123"}) {
		t.Errorf("%v %v %q", w, err, s.bodies)
	}
	if h := s.requests[1]; h.Header.Get("Authorization") != "Bearer k" || h.Header.Get("On-Behalf-Of") != "ann" || h.URL.Query().Get("path") != "/a b" {
		t.Errorf("%v %v", h.Header, h.URL)
	}
	c, s = scripted(t, skerry.Options{}, away503, says(201, `{}`))
	if _, err := c.Thread("t").Put(t.Context(), "/a", io.MultiReader(strings.NewReader("x"))); err == nil || s.count() != 1 {
		t.Errorf("what cannot be read again: %v, %d requests", err, s.count())
	}
	c, s = scripted(t, skerry.Options{}, says(200, `{"items":[{"path":"/a","bytes":1},{"path":"/b","bytes":0,"error":"invalid_path"}]}`))
	done, err := c.Thread("t").Upload(t.Context(), []skerry.UploadFile{{"a\"\n/x", strings.NewReader("1")}, {"/b", strings.NewReader("")}})
	if err != nil || len(done) != 2 || done[1].Error != "invalid_path" || !strings.Contains(s.bodies[0], `filename="a\"%0A/x"`) {
		t.Errorf("%v %v %q", done, err, s.bodies)
	}
}

// TestPutConditions: a condition is sent, an empty one is refused, and a write with one is not done twice.
func TestPutConditions(t *testing.T) {
	c, s := scripted(t, skerry.Options{}, says(200, `{"path":"/a","bytes":1,"etag":"\"2\""}`), problem(412, "conflict", ""), cut)
	put := func(only ...skerry.Condition) (*skerry.Written, error) {
		return c.Thread("t").Put(t.Context(), "/a", strings.NewReader("x"), only...)
	}
	if w, err := put(skerry.IfMatch(`"0"`, `"1"`)); err != nil || w.ETag != `"2"` || s.requests[0].Header.Get("If-Match") != `"0", "1"` {
		t.Errorf("%+v %v", w, err)
	}
	if _, err := put(skerry.IfAbsent()); !errors.Is(err, skerry.ErrPreconditionFailed) || !errors.Is(err, skerry.Conflict) || s.requests[1].Header.Get("If-None-Match") != "*" {
		t.Error(err)
	}
	if _, err := put(skerry.IfAbsent()); !errors.As(err, new(*skerry.LostError)) || errors.Is(err, skerry.ErrPreconditionFailed) || s.count() != 3 {
		t.Errorf("%v after %d requests", err, s.count())
	}
	for _, none := range []skerry.Condition{{}, skerry.IfMatch(), skerry.IfMatch("")} {
		if _, err := put(none); err == nil || s.count() != 3 {
			t.Errorf("%+v was sent", none)
		}
	}
}

func away503(w http.ResponseWriter, r *http.Request) { problem(503, "unavailable", "")(w, r) }

// TestPages: a list goes on over its pages, and stops when its reader does.
func TestPages(t *testing.T) {
	c, s := scripted(t, skerry.Options{}, says(200, `{"items":[{"thread_id":"a"},{"thread_id":"b"}],"next_cursor":"n"}`), says(200, `{"items":[{"thread_id":"c"}]}`))
	var got []string
	for i, err := range c.Threads(t.Context(), skerry.ThreadFilter{Labels: map[string]string{"k": "v"}, State: "running"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, i.ThreadID)
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) || s.requests[0].URL.Query().Get("label") != "k=v" || s.requests[1].URL.Query().Get("cursor") != "n" {
		t.Errorf("%v %v", got, s.requests[1].URL)
	}
	c, s = scripted(t, skerry.Options{}, says(200, `{"items":[{"thread_id":"a","usage":{"disk_bytes":7,"measured_at":"2026-01-02T03:04:05Z","execs":2,"exec_seconds":1.5}}]}`))
	for i, err := range c.Threads(t.Context(), skerry.ThreadFilter{User: "*", Largest: true, MinDiskMiB: 100}) {
		if err != nil || i.Usage.DiskBytes != 7 || i.Usage.Execs != 2 {
			t.Errorf("%+v, %v", i, err)
		}
	}
	if q := s.requests[0].URL.Query(); q.Get("sort") != "disk_bytes" || q.Get("min_disk_mib") != "100" || q.Get("user") != "*" {
		t.Errorf("%v", q)
	}
}

// TestSearchTools: what a query says arrives, what it leaves out does not, and what is only named comes back.
func TestSearchTools(t *testing.T) {
	c, s := scripted(t, skerry.Options{}, says(200, `{"query":"x","match_count":3,"showing":1,"tools":[{"name":"a__b"}],"also":["a__c"]}`), says(200, `{"tools":[]}`))
	found, err := c.Thread("t").SearchTools(t.Context(), skerry.ToolQuery{Query: "x", Detail: "full", Limit: 2, OutputSchema: true})
	if err != nil || len(found.Tools) != 1 || !slices.Equal(found.Also, []string{"a__c"}) {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := c.Thread("t").SearchTools(t.Context(), skerry.ToolQuery{}); err != nil {
		t.Error(err)
	}
	if all, none := s.requests[0].URL.RawQuery, s.requests[1].URL.RawQuery; all != "detail=full&limit=2&output_schema=true&query=x" || none != "" {
		t.Errorf("%q and %q", all, none)
	}
}

// TestFollowAudit: records go on behind the last one over connections that break.
func TestFollowAudit(t *testing.T) {
	record := func(id string) string { return "id: " + id + "\nevent: record\ndata: {\"id\":\"" + id + "\"}" }
	c, s := scripted(t, skerry.Options{}, events(record("a"), record("b")), events(record("c")))
	var got []string
	for e, err := range c.FollowAudit(t.Context(), skerry.AuditFilter{Outcome: "denied"}, "") {
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, r.ID); len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) || s.requests[1].Header.Get("Last-Event-ID") != "b" || s.requests[1].URL.RawQuery != "outcome=denied" {
		t.Errorf("%v %v", got, s.requests[1].Header)
	}
	c, _ = scripted(t, skerry.Options{}, problem(403, "forbidden", ""))
	for _, err := range c.FollowAudit(t.Context(), skerry.AuditFilter{}, "") {
		if !errors.Is(err, skerry.Forbidden) {
			t.Error(err)
		}
	}
}

// TestBinaryOutput: what is not text is given as it was written.
func TestBinaryOutput(t *testing.T) {
	var r skerry.Result
	if err := json.Unmarshal([]byte(`{"stdout":"/w==","stderr":"","encoding":"base64","exit_code":0}`), &r); err != nil {
		t.Fatal(err)
	}
	if string(r.StdoutBytes()) != "\xff" || len(r.StderrBytes()) != 0 || !r.OK() {
		t.Errorf("%q %q", r.StdoutBytes(), r.StderrBytes())
	}
}
