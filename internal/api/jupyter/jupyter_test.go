package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const key = "sk_test"

// api plays the public API: it keeps the contexts of threads, and answers runs with the events that it is told.
type api struct {
	mu       sync.Mutex
	contexts map[string]sandbox.CodeContext // by thread
	events   string                         // of the next run
	hold     chan struct{}                  // closed when an interrupt came; a run waits for it unless nil
	calls    []string
	noCode   bool // no context can be made
	whole    bool // events come whole
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	problem := func(status int, kind sandbox.Kind, detail string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"code": string(kind), "detail": detail})
	}
	if r.Header.Get("Authorization") != "Bearer "+key {
		problem(http.StatusUnauthorized, sandbox.Unauthorized, "the key is not known")
		return
	}
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := strings.Cut(r.URL.Path, "/api/threads")
	thread, route, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+route+" "+string(body))
	cc, ok := a.contexts[thread]
	switch r.Method + " " + route {
	case "GET ":
		items := []map[string]any{}
		for name, cc := range a.contexts {
			if r.URL.Query().Get("label") == label+"="+defaultName && cc.Language == "python" {
				items = append(items, map[string]any{"thread_id": name})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	case "PUT sandbox":
		_, _ = io.WriteString(w, "{}")
	case "POST contexts":
		if a.noCode {
			problem(http.StatusNotImplemented, sandbox.NotSupported, "the template has no such interpreter")
			return
		}
		var b struct{ Language string }
		_ = json.Unmarshal(body, &b)
		cc = sandbox.CodeContext{ContextID: "c1", Language: b.Language, State: sandbox.ContextIdle}
		a.contexts[thread] = cc
		_ = json.NewEncoder(w).Encode(cc)
	case "GET contexts":
		if !ok {
			problem(http.StatusNotFound, sandbox.NotFound, "there is no such thread")
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": []sandbox.CodeContext{cc}})
	case "POST contexts/c1/interrupt", "POST contexts/c1/restart":
		if a.hold != nil {
			close(a.hold)
			a.hold = nil
		}
		_ = json.NewEncoder(w).Encode(cc)
	case "DELETE ":
		delete(a.contexts, thread)
		w.WriteHeader(http.StatusNoContent)
	case "POST execute_code":
		cc.Runs++
		a.contexts[thread] = cc
		if hold := a.hold; hold != nil {
			a.mu.Unlock()
			<-hold
			a.mu.Lock()
		}
		if strings.HasPrefix(a.events, "{") {
			problem(http.StatusConflict, sandbox.Conflict, a.events)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if a.whole {
			_, _ = io.WriteString(w, a.events)
			return
		}
		for i := range len(a.events) { // one byte at a time: an event does not come whole
			_, _ = io.WriteString(w, a.events[i:i+1])
		}
	default:
		problem(http.StatusNotFound, sandbox.NotFound, r.Method+" "+r.URL.Path)
	}
}

func setup(t *testing.T, template string) (string, *api) {
	t.Helper()
	a := &api{contexts: map[string]sandbox.CodeContext{}}
	h, err := New(Options{API: a, Template: template, Held: held.New()})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL, a
}

func ask(t *testing.T, method, url, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "token "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read
	var out map[string]any
	_ = json.NewDecoder(answer.Body).Decode(&out)
	return answer.StatusCode, out
}

type client struct {
	*testing.T
	*websocket.Conn
}

func join(t *testing.T, url, kernel string) client {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url+"/jupyter/api/kernels/"+kernel+"/channels?token="+key, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = c.CloseNow() })
	return client{t, c}
}

func (c client) ask(channel, kind, content string) {
	c.Helper()
	text := fmt.Sprintf(`{"header": {"msg_id": "m1", "msg_type": %q, "session": "s1", "username": "u", "version": "5.3"}, "parent_header": {}, "metadata": {}, "content": %s, "channel": %q}`, kind, content, channel)
	if err := c.Write(c.Context(), websocket.MessageText, []byte(text)); err != nil {
		c.Fatal(err)
	}
}

// hear reads messages until one says that the kernel is idle, and returns each as its type and content.
func (c client) hear() []string {
	c.Helper()
	var all []string
	for {
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		_, data, err := c.Read(ctx)
		cancel()
		if err != nil {
			c.Fatal(all, err)
		}
		var m struct {
			Type    string                   `json:"msg_type"`
			Header  struct{ Session string } `json:"header"`
			Parent  map[string]string        `json:"parent_header"`
			Content json.RawMessage
		}
		if err := json.Unmarshal(data, &m); err != nil || m.Parent["msg_id"] != "m1" || m.Header.Session != "s1" {
			c.Fatalf("%s: %v", data, err)
		}
		all = append(all, m.Type+" "+string(m.Content))
		if m.Type == "status" && strings.Contains(string(m.Content), "idle") {
			return all
		}
	}
}

func event(name string, data any) string {
	text, _ := json.Marshal(data)
	return "id: 1\nevent: " + name + "\ndata: " + string(text) + "\n\n: \n\n"
}

func exit(code int, status sandbox.Status, results ...sandbox.RichResult) string {
	return event("exit", sandbox.Result{ExecID: "e", Status: status, ExitCode: &code, Results: &results})
}

// TestKernel: a kernel is a thread with a context, from its beginning to its end.
func TestKernel(t *testing.T) {
	url, a := setup(t, "data")
	status, made := ask(t, "POST", url+"/jupyter/api/kernels", "")
	id, _ := made["id"].(string)
	if status != http.StatusCreated || made["name"] != "python3" || made["execution_state"] != "idle" || len(id) != 36 {
		t.Fatalf("%d %v", status, made)
	}
	if want := `PUT sandbox {"labels":{"jupyter-kernel":"python3"},"template":"data","wait_s":60}`; a.calls[1] != want || a.calls[2] != `POST contexts {"language":"python"}` {
		t.Errorf("%q", a.calls)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/api/kernels/" + id, "", 200, id},
		{"POST", "/api/kernels/" + id + "/restart", "", 200, "idle"},
		{"POST", "/api/kernels/" + id + "/interrupt", "", 204, ""},
		{"GET", "/api/kernelspecs", "", 200, "Python 3"},
		{"GET", "/api", "", 200, "2.0"},
		{"POST", "/api/kernels", `{"name": "R"}`, 400, `there is no kernel "R"`},
		{"POST", "/api/kernels", `{`, 400, "the body"},
		{"POST", "/api/kernels", `{"name": "` + strings.Repeat("x", maxBody) + `"}`, 413, "more than 65536 bytes"},
		{"GET", "/api/kernels/..%2f" + id, "", 404, "Kernel does not exist"},
		{"GET", "/api/kernels/" + strings.ToUpper(id), "", 404, "Kernel does not exist"},
		{"GET", "/api/kernels/00000000-0000-4000-8000-000000000000", "", 404, "Kernel does not exist"},
		{"GET", "/api/contents", "", 501, "docs/jupyter.md"},
		{"POST", "/login", "", 501, "docs/jupyter.md"},
		{"DELETE", "/api/kernels/" + id, "", 204, ""},
		{"GET", "/api/kernels/" + id, "", 404, "Kernel does not exist"},
	} {
		status, got := ask(t, c.method, url+"/jupyter"+c.path, c.body)
		text, _ := json.Marshal(got)
		var plain strings.Builder // without the escapes of JSON
		plain.WriteString(strings.ReplaceAll(string(text), `\"`, `"`))
		if status != c.status || !strings.Contains(plain.String(), c.says) {
			t.Errorf("%s %s: %d %s, want %d and %q", c.method, c.path, status, text, c.status, c.says)
		}
	}
	a.noCode = true
	if status, got := ask(t, "POST", url+"/jupyter/api/kernels", `{"name": "typescript"}`); status != http.StatusNotImplemented || got["message"] != "the template has no such interpreter" {
		t.Errorf("%d %v", status, got)
	}
	if last := a.calls[len(a.calls)-1]; last != "DELETE  " {
		t.Errorf("what was begun is left: %q", last)
	}
}

// TestWithoutKey: who has no key of the API learns nothing, and gets no connection.
func TestWithoutKey(t *testing.T) {
	url, a := setup(t, "")
	_, made := ask(t, "POST", url+"/jupyter/api/kernels", "")
	for _, path := range []string{"kernels", "kernelspecs", "kernels/" + made["id"].(string), "kernels/" + made["id"].(string) + "/channels"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/jupyter/api/"+path+"?token=other", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
	if len(a.calls) != 3 { // those of the kernel that was made
		t.Errorf("%q", a.calls)
	}
}

// TestRun: what comes of code are the messages of a kernel, between busy and idle.
func TestRun(t *testing.T) {
	url, a := setup(t, "")
	_, made := ask(t, "POST", url+"/jupyter/api/kernels", "")
	c := join(t, url, made["id"].(string))
	busy, idle := `status {"execution_state":"busy"}`, `status {"execution_state":"idle"}`
	input := func(n int) string { return fmt.Sprintf(`execute_input {"code":"x","execution_count":%d}`, n) }
	reply := func(n int) string {
		return fmt.Sprintf(`execute_reply {"execution_count":%d,"payload":[],"status":"ok","user_expressions":{}}`, n)
	}
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	trace := "KeyError  Traceback (most recent call last)\n----> 1 x\nKeyError: 'x'\n"
	fault := `{"ename":"KeyError","evalue":"'x'",%s"status":"error","traceback":["KeyError  Traceback (most recent call last)","----\u003e 1 x","KeyError: 'x'"]}`
	for name, run := range map[string]struct {
		events string
		want   []string
	}{
		"output": {
			event("started", nil) + event("stdout", output{Data: "a"}) + event("stderr", output{Data: "/4A=", Encoding: "base64"}) + exit(0, sandbox.StatusExited),
			[]string{`stream {"name":"stdout","text":"a"}`, `stream {"name":"stderr","text":"` + "\uFFFD" + `"}`},
		},
		"results": {
			exit(0, sandbox.StatusExited, sandbox.RichResult{"image/png": raw(`"iVBO"`)}, sandbox.RichResult{"text/plain": raw(`"3"`), mainResult: raw("true")}),
			[]string{`display_data {"data":{"image/png":"iVBO"},"metadata":{},"transient":{}}`, `execute_result {"data":{"text/plain":"3"},"execution_count":N,"metadata":{},"transient":{}}`},
		},
		"error":             {event("stderr", output{Data: "warned\n" + trace[:20]}) + event("stderr", output{Data: trace[20:]}) + exit(1, sandbox.StatusExited), nil},
		"only looks like":   {event("stderr", output{Data: trace}) + exit(0, sandbox.StatusExited), []string{`stream {"name":"stderr","text":"KeyError  Traceback (most recent call last)\n----\u003e 1 x\nKeyError: 'x'\n"}`}},
		"timeout":           {exit(0, sandbox.StatusTimeout), nil},
		"ended by an error": {event("error", map[string]string{"code": "sandbox_lost", "detail": "it is gone"}), nil},
		"refused":           {"{the context runs something}", nil},
	} {
		a.mu.Lock()
		a.events = run.events
		n := a.contexts[threadPrefix+made["id"].(string)].Runs + 1
		a.mu.Unlock()
		c.ask("shell", "execute_request", `{"code": "x", "silent": false}`)
		want := slices.Concat([]string{busy, input(n)}, run.want, []string{reply(n), idle})
		failed := func(content string) {
			want = []string{busy, input(n), "error " + content, "execute_reply " + content, idle}
		}
		switch name {
		case "error":
			want = []string{busy, input(n), `stream {"name":"stderr","text":"warned\n"}`, "error " + fmt.Sprintf(fault, ""), "execute_reply " + fmt.Sprintf(fault, fmt.Sprintf(`"execution_count":%d,`, n)), idle}
		case "timeout":
			failed(`{"ename":"TimeoutError","evalue":"the code took longer than 2m0s",N"status":"error","traceback":[]}`)
			want[2], want[3] = strings.Replace(want[2], "N\"", `"`, 1), strings.Replace(want[3], "N\"", fmt.Sprintf(`"execution_count":%d,"`, n), 1)
		case "ended by an error":
			failed(`{"ename":"SkerryError","evalue":"it is gone (sandbox_lost)","status":"error","traceback":["SkerryError: it is gone (sandbox_lost)"]}`)
		case "refused":
			failed(`{"ename":"SkerryError","evalue":"{the context runs something} (conflict)","status":"error","traceback":["SkerryError: {the context runs something} (conflict)"]}`)
		}
		for i := range want {
			want[i] = strings.Replace(want[i], `"execution_count":N`, fmt.Sprintf(`"execution_count":%d`, n), 1)
		}
		if got := c.hear(); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for kind, want := range map[string]string{
		"kernel_info_request": `"protocol_version":"5.3"`, "comm_info_request": `"comms":{}`, "complete_request": "kernels of Skerry answer no complete_request", "is_complete_request": "unknown",
	} {
		c.ask("shell", kind, "{}")
		if got := c.hear(); len(got) != 3 || !strings.Contains(got[1], want) {
			t.Errorf("%s: %q", kind, got)
		}
	}
	c.ask("iopub", "comm_msg", "{}")
	if got := c.hear(); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// TestInterrupt: the control channel is answered while code runs, and ends it.
func TestInterrupt(t *testing.T) {
	url, a := setup(t, "")
	_, made := ask(t, "POST", url+"/jupyter/api/kernels", "")
	id := made["id"].(string)
	c := join(t, url, id)
	a.mu.Lock()
	a.events, a.hold = exit(1, sandbox.StatusKilled), make(chan struct{})
	a.mu.Unlock()
	c.ask("shell", "execute_request", `{"code": "while True: pass"}`)
	c.ask("control", "interrupt_request", "{}")
	got := slices.Concat(c.hear(), c.hear())
	if text := strings.Join(got, "\n"); !strings.Contains(text, `interrupt_reply {"status":"ok"}`) || !strings.Contains(text, `"ename":"KeyboardInterrupt"`) {
		t.Error(text)
	}
	c.ask("control", "shutdown_request", `{"restart": true}`)
	if got := c.hear(); !strings.Contains(got[1], `{"restart":true,"status":"ok"}`) {
		t.Errorf("%q", got)
	}
	c.ask("control", "shutdown_request", `{}`)
	c.hear()
	if status, _ := ask(t, "GET", url+"/jupyter/api/kernels/"+id, ""); status != http.StatusNotFound {
		t.Error(status)
	}
}

// TestHostileClient: what is no message ends the connection, and their number is bounded.
func TestHostileClient(t *testing.T) {
	url, a := setup(t, "")
	_, made := ask(t, "POST", url+"/jupyter/api/kernels", "")
	id := made["id"].(string)
	for _, message := range []struct {
		kind websocket.MessageType
		text string
	}{{websocket.MessageText, "{"}, {websocket.MessageText, "[]"}, {websocket.MessageText, "{}"}, {websocket.MessageBinary, "\x00\x00"}, {websocket.MessageText, strings.Repeat(" ", maxFrame+1)}} {
		c := join(t, url, id)
		_ = c.Write(t.Context(), message.kind, []byte(message.text))
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation && websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
			t.Errorf("%.20q: %v", message.text, err)
		}
	}
	a.mu.Lock()
	a.hold = make(chan struct{})
	a.events = exit(0, sandbox.StatusExited)
	a.mu.Unlock()
	c := join(t, url, id)
	for range maxWaiting + 2 {
		c.ask("shell", "execute_request", `{"code": "x"}`)
	}
	for {
		_, _, err := c.Read(t.Context())
		if err == nil {
			continue
		}
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Error(err)
		}
		break
	}
	ask(t, "POST", url+"/jupyter/api/kernels/"+id+"/interrupt", "")
	_, made = ask(t, "POST", url+"/jupyter/api/kernels", "")
	for range maxOfKernel {
		join(t, url, made["id"].(string))
	}
	conn, answer, err := websocket.Dial(t.Context(), url+"/jupyter/api/kernels/"+made["id"].(string)+"/channels?token="+key, nil)
	if err == nil {
		_ = conn.CloseNow()
		t.Fatal("a connection beyond the most")
	}
	if answer.StatusCode != http.StatusTooManyRequests {
		t.Error(answer.StatusCode)
	}
}

// FuzzRead: a message of a client is read or refused, and an answer to it can be written.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"header": {"msg_id": "m", "msg_type": "execute_request"}, "content": {"code": "1"}, "channel": "shell"}`))
	f.Add([]byte(`{"header": {"msg_type": "x"}, "header": 1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := read(data)
		if err != nil {
			return
		}
		if _, err := json.Marshal(m.answers(iopub, "status", nil)); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}

// TestKeyBeforeBody: a stranger's body is not read.
func TestKeyBeforeBody(t *testing.T) {
	t.Parallel()
	h, err := New(Options{API: &api{contexts: map[string]sandbox.CodeContext{}}, Held: held.New()})
	if err != nil {
		t.Fatal(err)
	}
	body := &counted{}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/jupyter/api/kernels", body)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized || body.reads > 0 {
		t.Errorf("%d after %d reads", w.Code, body.reads)
	}
}

// counted is a body that says how often it was read.
type counted struct{ reads int }

func (c *counted) Read([]byte) (int, error) {
	c.reads++
	return 0, io.EOF
}

// TestHeldMessages: messages that wait for a run take a bounded part of the server's memory.
func TestHeldMessages(t *testing.T) {
	t.Parallel()
	a := &api{contexts: map[string]sandbox.CodeContext{}}
	b := held.New()
	b.Wait = time.Millisecond
	h, err := New(Options{API: a, Held: b})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, made := ask(t, http.MethodPost, s.URL+"/jupyter/api/kernels", "")
	kernel, _ := made["id"].(string)
	others := b.Of("jupyter\x00" + key)
	if err := others.Take(t.Context(), held.OfCaller-100); err != nil {
		t.Fatal(err)
	}
	send := func() error {
		c := join(t, s.URL, kernel)
		if err := c.Write(t.Context(), websocket.MessageText, []byte(`{"header":{"msg_id":"1","msg_type":"kernel_info_request"},"channel":"shell"}`)); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.Read(t.Context())
		return err
	}
	if err := send(); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("one message too many: %v", err)
	}
	others.End()
	if err := send(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestHeldEvents: what a run prints and displays counts as messages do, and a run that finds no room says so.
func TestHeldEvents(t *testing.T) {
	t.Parallel()
	a := &api{contexts: map[string]sandbox.CodeContext{}, whole: true}
	b := held.New()
	b.Wait = time.Millisecond
	h, err := New(Options{API: a, Held: b})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, made := ask(t, http.MethodPost, s.URL+"/jupyter/api/kernels", "")
	kernel, _ := made["id"].(string)
	long := json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`)
	a.events = exit(0, sandbox.StatusExited, sandbox.RichResult{"text/plain": long})
	others := b.Of(holderOf(key))
	if err := others.Take(t.Context(), held.OfCaller-1<<20); err != nil {
		t.Fatal(err)
	}
	c := join(t, s.URL, kernel)
	run := func() string {
		c.ask(shell, "execute_request", `{"code":"x"}`)
		return strings.Join(c.hear(), "\n")
	}
	if heard := run(); !strings.Contains(heard, "send fewer at once") || strings.Contains(heard, "xxx") {
		t.Errorf("a display that is too long: %.500s", heard)
	}
	others.End()
	if heard := run(); !strings.Contains(heard, "xxx") || strings.Contains(heard, "send fewer") {
		t.Errorf("afterwards: %.500s", heard)
	}
	if err := b.Of(holderOf(key)).Take(t.Context(), held.OfCaller); err != nil {
		t.Errorf("when the run has ended: %v", err)
	}
}
