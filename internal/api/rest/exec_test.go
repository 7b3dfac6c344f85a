package rest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/idempotency"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestExec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	rec := send(h, "POST", execURL, `{"command":"ls | head","cwd":"/mnt/user-data/workspace","env":{"K":"v"},"redact_env":true,"stdin":"in","timeout_s":1.5,"max_output_bytes":7,"report_files":true}`)
	m := decodeBody(t, rec)
	if rec.Code != 200 || m["exec_id"] != "e1" || m["status"] != "exited" || m["exit_code"] != 0.0 || m["stdout"] != "hi\n" || m["files"] == nil || m["stdout_path"] != nil {
		t.Errorf("%d %v", rec.Code, m)
	}
	if _, there := m["tools_called"]; there {
		t.Error("a plain exec has tools_called")
	}
	want := sandbox.Command{Shell: "ls | head", Cwd: "/mnt/user-data/workspace", Env: map[string]string{"K": "v"}, RedactEnv: true, Stdin: "in", Timeout: 1500 * time.Millisecond, MaxOutputBytes: 7, ReportFiles: true}
	if fmt.Sprint(w.cmd) != fmt.Sprint(want) {
		t.Errorf("command %+v", w.cmd)
	}
	send(h, "POST", execURL, `{"argv":["ls","-la"],"background":true}`)
	want = sandbox.Command{Argv: []string{"ls", "-la"}, KeepStdin: true, Background: true} // the rest has defaults
	if fmt.Sprint(w.cmd) != fmt.Sprint(want) {
		t.Errorf("command %+v", w.cmd)
	}
	w.result.Status, w.result.ExitCode = sandbox.StatusRunning, nil
	w.wait = func(context.Context) error { return errors.New("a background exec was waited for") }
	if m := decodeBody(t, send(h, "POST", execURL, `{"command":"x","background":true}`)); m["status"] != "running" || m["exit_code"] != nil {
		t.Errorf("background %v", m)
	}
}

func TestExecuteCodeAndSkill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	m := decodeBody(t, send(h, "POST", "/api/threads/t1/execute_code", `{"code":"1"}`))
	if list, ok := m["tools_called"].([]any); !ok || len(list) != 0 || m["files"] == nil {
		t.Errorf("%v", m)
	}
	if c := w.code; !reflect.DeepEqual(c, sandbox.Code{Text: "1"}) { // the rest is for the tenant's settings
		t.Errorf("code %+v", c)
	}
	w.result.ToolsCalled = []sandbox.ToolCall{{Tool: "fs__read", Status: "ok", Millis: 3}}
	m = decodeBody(t, send(h, "POST", "/api/threads/t1/execute_code", `{"code":"1","language":"python","timeout":120,"max_output_chars":5,"env":{"K":"v"}}`))
	if list, ok := m["tools_called"].([]any); !ok || len(list) != 1 || w.code.Timeout != 2*time.Minute || w.code.MaxOutputChars != 5 || w.code.Env["K"] != "v" || w.code.Language != "python" {
		t.Errorf("%v %+v", m, w.code)
	}
	rec := send(h, "POST", "/api/threads/t1/skills/csv/run", `{"script":"scripts/a.py","args":["x"],"env":{"A":"b"}}`)
	if s := w.script; rec.Code != 200 || s.Skill != "csv" || s.Path != "scripts/a.py" || s.Args[0] != "x" || s.Env["A"] != "b" {
		t.Errorf("%d %+v", rec.Code, s)
	}
	wantProblem(t, send(h, "POST", "/api/threads/t1/skills/csv/run", `{"args":["x"]}`), 400, "invalid")
}

func TestExecControl(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	const url = "/api/threads/t1/execs"
	if m := decodeBody(t, send(h, "GET", url, "")); len(m["items"].([]any)) != 0 {
		t.Errorf("execs %v", m)
	}
	if m := decodeBody(t, send(h, "GET", url+"/e1", "")); m["exec_id"] != "e1" {
		t.Errorf("exec %v", m)
	}
	if rec := send(h, "POST", url+"/e1/stdin", `{"data":"aGk=","encoding":"base64","close":true}`); rec.Code != 204 || string(w.stdin) != "hi" || !w.closed {
		t.Errorf("stdin %d %q", rec.Code, w.stdin)
	}
	wantProblem(t, send(h, "POST", url+"/e1/stdin", `{"data":"?","encoding":"base64"}`), 400, "invalid")
	if rec := send(h, "POST", url+"/e1/signal", `{"signal":"TERM"}`); rec.Code != 204 || w.signal != "TERM" {
		t.Errorf("signal %d %q", rec.Code, w.signal)
	}
	wantProblem(t, send(h, "POST", url+"/e1/signal", `{}`), 400, "invalid")
	if rec := send(h, "DELETE", url+"/e1", ""); rec.Code != 204 || rec.Body.Len() != 0 {
		t.Errorf("kill %d", rec.Code)
	}
}

// event is one server-sent event as a client reads it.
type event struct{ id, name, data string }

func parse(t testing.TB, text string) (events []event) {
	t.Helper()
	for _, block := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		var e event
		for _, line := range strings.Split(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				e.name = "comment"
			default:
				t.Errorf("line %q", line)
			}
		}
		events = append(events, e)
	}
	return events
}

func TestStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	rec := send(h, "POST", execURL, `{"command":"x"}`, "Accept: text/event-stream")
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", rec.Code, rec.Header())
	}
	got := parse(t, rec.Body.String())
	if len(got) != 3 || got[0].name != "started" || !strings.Contains(got[0].data, `"exec_id":"e1"`) || got[1] != (event{"2", "stdout", `{"data":"hi\n"}`}) || got[2].name != "exit" || got[2].id != "3" {
		t.Errorf("%+v", got)
	}
	var res map[string]any
	if err := json.Unmarshal([]byte(got[2].data), &res); err != nil || res["exec_id"] != "e1" || res["files"] == nil {
		t.Errorf("exit %v, %v", res, err)
	}
	rec = send(h, "POST", "/api/threads/t1/execute_code", `{"code":"1"}`, "Accept: text/event-stream")
	if !strings.Contains(rec.Body.String(), `"tools_called":[]`) {
		t.Errorf("code: %s", rec.Body)
	}
	for _, headers := range [][]string{{"Last-Event-ID: 1"}, nil} {
		url := "/api/threads/t1/execs/e1/events"
		if headers == nil {
			url += "?after=1"
		}
		got = parse(t, send(h, "GET", url, "", headers...).Body.String())
		if len(got) != 2 || got[0].id != "2" || got[1].id != "3" {
			t.Errorf("resumed: %+v", got)
		}
	}
	if rec := send(h, "GET", "/api/threads/t1/execs/e1/events?after=3", ""); rec.Code != 200 || rec.Body.Len() != 0 {
		t.Errorf("nothing left: %d %q", rec.Code, rec.Body)
	}
	// An error before the first event is a plain answer, one after it an event.
	w.err = sandbox.Errorf(sandbox.NotFound, "no such exec")
	wantProblem(t, send(h, "GET", "/api/threads/t1/execs/e1/events", ""), 404, "not_found")
	w.err = nil
	w.follow = func(_ context.Context, _ uint64, emit func(sandbox.Event) error) error {
		_ = emit(w.events[0])
		return errors.New("disk on fire")
	}
	rec = send(h, "GET", "/api/threads/t1/execs/e1/events", "")
	got = parse(t, rec.Body.String())
	if len(got) != 2 || got[1].name != "error" || !strings.Contains(got[1].data, `"code":"internal"`) || strings.Contains(rec.Body.String(), "fire") {
		t.Errorf("error: %+v", got)
	}
}

// TestStreamText cuts a text in pieces of every size: it always arrives as text, and whole also when
// the stream is taken up again after any event.
func TestStreamText(t *testing.T) {
	t.Parallel()
	const text = "añ€😀 — 終わり\n"
	w := newWorld(t)
	h := handler(t, w)
	for size := 1; size < 6; size++ {
		w.events = []sandbox.Event{{N: 1, Type: sandbox.EventStarted}}
		for i := 0; i < len(text); i += size {
			w.events = append(w.events, sandbox.Event{N: uint64(len(w.events) + 1), Type: sandbox.EventStdout, Data: []byte(text[i:min(i+size, len(text))])})
			w.events = append(w.events, sandbox.Event{N: uint64(len(w.events) + 1), Type: sandbox.EventStderr, Data: []byte("e")})
		}
		w.events = append(w.events, sandbox.Event{N: uint64(len(w.events) + 1), Type: sandbox.EventExit, Result: &w.result})
		for cut := range len(w.events) {
			first := parse(t, send(h, "GET", "/api/threads/t1/execs/e1/events", "").Body.String())[:cut]
			rest := parse(t, send(h, "GET", fmt.Sprintf("/api/threads/t1/execs/e1/events?after=%d", cut), "").Body.String())
			var out strings.Builder
			for _, e := range append(first, rest...) {
				var d struct{ Data, Encoding string }
				if e.name == "stdout" && (json.Unmarshal([]byte(e.data), &d) != nil || d.Encoding != "") {
					t.Fatalf("pieces of %d: %+v", size, e)
				}
				out.WriteString(d.Data)
			}
			if out.String() != text {
				t.Errorf("pieces of %d, cut after %d: %q", size, cut, out.String())
			}
		}
	}
}

func TestStreamBinary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.events = []sandbox.Event{
		{N: 1, Type: sandbox.EventStdout, Data: []byte{0xff, 0xfe}},
		{N: 2, Type: sandbox.EventStdout, Data: []byte("ok \xe2\x82")}, // ends within a character that never comes
		{N: 3, Type: sandbox.EventExit, Result: &w.result},
	}
	got := parse(t, send(handler(t, w), "GET", "/api/threads/t1/execs/e1/events", "").Body.String())
	b64 := func(b string) string { return base64.StdEncoding.EncodeToString([]byte(b)) }
	if len(got) != 4 || got[0].data != `{"data":"`+b64("\xff\xfe")+`","encoding":"base64"}` || got[1].data != `{"data":"ok "}` || got[2].data != `{"data":"`+b64("\xe2\x82")+`","encoding":"base64"}` || got[2].id != "2" {
		t.Errorf("%+v", got)
	}
}

// TestStreamLive holds a stream open over a real connection: events come at once, comments keep it
// alive, and it ends for the use case when the client goes away.
func TestStreamLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	more, gone := make(chan sandbox.Event), make(chan struct{})
	w.follow = func(ctx context.Context, _ uint64, emit func(sandbox.Event) error) error {
		defer close(gone)
		for {
			select {
			case ev := <-more:
				if err := emit(ev); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	o, log := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.heartbeat = 20 * time.Millisecond
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/api/threads/t1/execs/e1/events", nil)
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // test
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || lines.Text() != ": " {
		t.Errorf("no heartbeat: %q", lines.Text())
	}
	more <- sandbox.Event{N: 1, Type: sandbox.EventStdout, Data: []byte("now")}
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			break
		}
	}
	if lines.Text() != `data: {"data":"now"}` {
		t.Errorf("line %q", lines.Text())
	}
	cancel()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Error("the use case goes on after the client")
	}
	srv.CloseClientConnections()
	if strings.Contains(log.String(), "ERROR") {
		t.Errorf("log %s", log)
	}
}

func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	waiting := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.wait = func(running context.Context) error {
		cancel() // the client goes
		<-running.Done()
		waiting <- running.Err()
		return running.Err()
	}
	o, log := w.options(t)
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+execURL, strings.NewReader(`{"command":"x"}`))
	req.Header.Set("Content-Type", "application/json")
	if res, err := srv.Client().Do(req); err == nil {
		_ = res.Body.Close()
		t.Error("an answer came")
	}
	select {
	case err := <-waiting:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the wait goes on after the client")
	}
	srv.Close()
	if strings.Contains(log.String(), "ERROR") {
		t.Errorf("log %s", log)
	}
}

// impatient is a real server that soon closes idle connections.
func impatient(t *testing.T, w *world, idle time.Duration) *httptest.Server {
	t.Helper()
	o, _ := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.idle = idle
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// TestSlowResult: a result may come much later than a client may be idle, and no deadline is left
// over on the connection.
func TestSlowResult(t *testing.T) {
	t.Parallel()
	const idle = 150 * time.Millisecond
	w := newWorld(t)
	w.wait = func(ctx context.Context) error {
		select {
		case <-time.After(3 * idle):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	srv := impatient(t, w, idle)
	for range 2 {
		res, err := srv.Client().Post(srv.URL+execURL, "application/json", strings.NewReader(`{"command":"x"}`))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("a slow exec: %v %v", res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	time.Sleep(2 * idle)
	res, err := srv.Client().Do(mustRequest(t, http.MethodDelete, srv.URL+"/api/threads/t1")) // a 204 writes nothing itself
	if err != nil || res.StatusCode != http.StatusNoContent {
		t.Errorf("a 204: %v %v", res, err)
	}
}

// TestIdleClients: a client that stops to send or to read is given up.
func TestIdleClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv := impatient(t, w, 150*time.Millisecond)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // test
	start := time.Now()
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", execURL)
	_ = conn.SetDeadline(start.Add(10 * time.Second))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), " 408 ") || time.Since(start) > 5*time.Second {
		t.Errorf("a slow body: %v after %v: %s", err, time.Since(start), answer)
	}
	gone := make(chan error, 1)
	w.follow = func(_ context.Context, _ uint64, emit func(sandbox.Event) error) (err error) {
		for n := uint64(1); err == nil; n++ {
			err = emit(sandbox.Event{N: n, Type: sandbox.EventStdout, Data: make([]byte, 64<<10)})
		}
		gone <- err
		return err
	}
	deaf, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close() //nolint:errcheck // test
	_, _ = fmt.Fprint(deaf, "GET /api/threads/t1/execs/e1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("a stream that nobody reads goes on")
	}
}

func mustRequest(t testing.TB, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w, func(o *Options) { o.Keys = w })
	post := func(body string, headers ...string) *httptest.ResponseRecorder {
		return send(h, "POST", execURL, body, append([]string{"Idempotency-Key: k1"}, headers...)...)
	}
	first := post(`{"command":"x"}`)
	w.result.Stdout = "other"
	again := post(`{"command":"x"}`)
	if first.Code != 200 || again.Code != 200 || first.Body.String() != again.Body.String() || w.runs != 1 || again.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d runs, %s, %s", w.runs, first.Body, again.Body)
	}
	if first.Header().Get("Idempotent-Replayed") != "" || again.Header().Get("Idempotent-Replayed") != "true" || first.Header().Get("X-Request-Id") == again.Header().Get("X-Request-Id") {
		t.Errorf("headers %v, %v", first.Header(), again.Header())
	}
	wantProblem(t, post(`{"command":"y"}`), 400, "invalid")
	if post(`{"command":"x"}`, "X-API-Key: bob"); w.runs != 2 {
		t.Error("another user got the first one's answer")
	}
	// A key of the same user without the capabilities of the first one gets no answer that needed them.
	before := w.runs
	if first := post(`{"command":"x"}`, "Idempotency-Key: k9", "X-API-Key: ann2"); first.Code != 200 || w.runs != before+1 {
		t.Errorf("with a capability: %d", first.Code)
	}
	if again := post(`{"command":"x"}`, "Idempotency-Key: k9", "X-API-Key: ann2"); again.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("with the same capability: %s", again.Body)
	}
	wantProblem(t, post(`{"command":"x"}`, "Idempotency-Key: k9"), 400, "invalid")
	for _, bad := range []string{strings.Repeat("k", 256), "a b", "é"} {
		wantProblem(t, post(`{"command":"x"}`, "Idempotency-Key: "+bad), 400, "invalid")
	}
	// An answer that says "try again" is not remembered; an answer that says "you are wrong" is.
	w.err = sandbox.Errorf(sandbox.CapacityExceeded, "full")
	wantProblem(t, post(`{"command":"x"}`, "Idempotency-Key: k2"), 503, "capacity_exceeded")
	w.err = nil
	if rec := post(`{"command":"x"}`, "Idempotency-Key: k2"); rec.Code != 200 {
		t.Errorf("after a 503: %d", rec.Code)
	}
	wantProblem(t, post(`{}`, "Idempotency-Key: k3"), 400, "invalid")
	rec := post(`{}`, "Idempotency-Key: k3")
	if wantProblem(t, rec, 400, "invalid"); rec.Header().Get("Idempotent-Replayed") != "true" {
		t.Error("a refusal was not remembered")
	}
	// Of a large answer only the fact is remembered: nothing runs twice.
	w.result.Stdout = strings.Repeat("a", idempotency.MaxRememberedBytes)
	if rec := post(`{"command":"x"}`, "Idempotency-Key: k5"); rec.Code != 200 || rec.Body.Len() < idempotency.MaxRememberedBytes {
		t.Errorf("large: %d", rec.Code)
	}
	before = w.runs
	if wantProblem(t, post(`{"command":"x"}`, "Idempotency-Key: k5"), 409, "conflict"); w.runs != before {
		t.Error("a large answer made the request run twice")
	}
	// A retry says how old it is: what this memory may have missed is not run.
	before = w.runs
	rec = post(`{"command":"x"}`, "Idempotency-Key: k6", "Idempotency-Age: 4000")
	if wantProblem(t, rec, 409, "conflict"); w.runs != before || !strings.Contains(rec.Body.String(), `{"field":"Idempotency-Key","detail":"unknown"}`) {
		t.Errorf("a retry from before: %d runs, %s", w.runs-before, rec.Body)
	}
	if rec := post(`{"command":"x"}`, "Idempotency-Key: k6", "Idempotency-Age: 0.5"); rec.Code != 200 {
		t.Errorf("a retry of what never came: %d", rec.Code)
	}
	for _, bad := range []string{"0", "-1", "soon", "NaN", "7201"} {
		wantProblem(t, post(`{"command":"x"}`, "Idempotency-Key: k7", "Idempotency-Age: "+bad), 400, "invalid")
	}
	// What began and then failed is not run again either.
	w.wait = func(context.Context) error {
		return sandbox.Errorf(sandbox.Unavailable, "its record could not be written")
	}
	wantProblem(t, post(`{"command":"x"}`, "Idempotency-Key: k8"), 503, "unavailable")
	w.wait = nil
	before = w.runs
	rec = post(`{"command":"x"}`, "Idempotency-Key: k8")
	if wantProblem(t, rec, 409, "conflict"); w.runs != before || !strings.Contains(rec.Body.String(), "exec e1 began") {
		t.Errorf("what began ran again: %d runs, %s", w.runs-before, rec.Body)
	}
	// A stream is not remembered.
	runs := w.runs
	post(`{"command":"x"}`, "Idempotency-Key: k4", "Accept: text/event-stream")
	post(`{"command":"x"}`, "Idempotency-Key: k4", "Accept: text/event-stream")
	if w.runs != runs+2 {
		t.Error("a stream was remembered")
	}
}

// TestIdempotentGoesOn: the client goes away, the request does not, and the retry finds its answer.
func TestIdempotentGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release, runs := make(chan struct{}), make(chan struct{})
	began := sync.OnceFunc(func() { close(runs) })
	w.wait = func(ctx context.Context) error {
		began()
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	srv := httptest.NewServer(handler(t, w))
	defer srv.Close()
	post := func(ctx context.Context) (*http.Response, error) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+execURL, strings.NewReader(`{"command":"x"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "k")
		return srv.Client().Do(req)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-runs
		cancel()
	}()
	if res, err := post(ctx); err == nil {
		_ = res.Body.Close()
		t.Fatal("an answer came")
	}
	res, err := post(t.Context())
	if err != nil || res.StatusCode != http.StatusConflict || res.Header.Get("Retry-After") == "" {
		t.Fatalf("while it runs: %v %v", res, err)
	}
	_ = res.Body.Close()
	close(release)
	for range 100 {
		if res, err = post(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			if !strings.Contains(string(text), `"exec_id":"e1"`) || w.runs != 1 {
				t.Errorf("%d runs, %s", w.runs, text)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the answer was never remembered")
}

func BenchmarkExec(b *testing.B) {
	w := newWorld(b)
	h := handler(b, w)
	const body = `{"command":"true"}`
	req := httptest.NewRequest(http.MethodPost, execURL, nil)
	req.Host = "localhost:8080"
	req.Header.Set("Content-Type", "application/json")
	req.ContentLength = int64(len(body))
	reader := strings.NewReader(body)
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		req.Body = io.NopCloser(reader)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if rec.Code != 200 {
			b.Fatal(rec.Body)
		}
		w.callers = w.callers[:0]
	}
}

// TestNotStarted: an error says whether something ran, because a client may repeat an exec only when nothing did.
func TestNotStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	said := func(path, body string) bool {
		t.Helper()
		rec := send(h, "POST", path, body)
		p := decodeBody(t, rec)
		if rec.Code != http.StatusServiceUnavailable {
			t.Fatalf("%s: %d %v", path, rec.Code, p)
		}
		is, _ := p["not_started"].(bool)
		return is
	}
	away := sandbox.Errorf(sandbox.Unavailable, "away")
	routes := map[string]string{execURL: `{"command":"x"}`, "/api/threads/t1/execute_code": `{"code":"1"}`, "/api/threads/t1/skills/s/run": `{"script":"a.py"}`}
	w.err = away
	for path, body := range routes {
		if !said(path, body) {
			t.Errorf("%s: an exec that did not begin may be repeated", path)
		}
	}
	w.err, w.wait = nil, func(context.Context) error { return away }
	for path, body := range routes {
		if said(path, body) {
			t.Errorf("%s: one that began may not", path)
		}
	}
}
