package e2b

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem/filesystemconnect"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process/processconnect"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// create makes a sandbox and returns its id.
func create(t *testing.T, url, body string) string {
	t.Helper()
	status, answer := call(t, "POST", url+"/sandboxes", "", body, "X-API-Key: "+keyPrefix+hex.EncodeToString([]byte("sk_1")))
	var got struct{ SandboxID, EnvdAccessToken, EnvdVersion string }
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusCreated || got.EnvdVersion == "" {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	if credential(got.EnvdAccessToken) != "sk_1" {
		t.Errorf("the token %q is not the credential", got.EnvdAccessToken)
	}
	return got.SandboxID
}

// TestSandboxes: a sandbox is a thread that was made here, from its creation to its end.
func TestSandboxes(t *testing.T) {
	h, srv := start(t)
	id := create(t, srv.URL, `{"templateID":"code-interpreter-v1","timeout":60,"metadata":{"a b":"1&2"},"network":{"allowPublicTraffic":false}}`)
	one := srv.URL + "/sandboxes/" + id
	expect := func(method, url, body string, status int, text string) {
		t.Helper()
		if got, answer := call(t, method, url, id, body); got != status || !strings.Contains(answer, text) {
			t.Errorf("%s %s: %d %s, want %d with %q", method, url, got, answer, status, text)
		}
	}
	if h.threads[id].Sandbox.Template != "data" {
		t.Errorf("made of %q", h.threads[id].Sandbox.Template)
	}
	expect("GET", one, "", 200, `"metadata":{"a b":"1\u00262"}`)
	expect("GET", one, "", 200, `"state":"running"`)
	twice := url.QueryEscape(url.QueryEscape("a b") + "=" + url.QueryEscape(url.QueryEscape("1&2")))
	expect("GET", srv.URL+"/v2/sandboxes?metadata="+twice, "", 200, id)
	expect("GET", srv.URL+"/v2/sandboxes?metadata=a%3Db", "", 200, "[]\n")
	expect("GET", srv.URL+"/v2/sandboxes?state=paused", "", 200, "[]\n")
	expect("GET", srv.URL+"/health", "", 204, "")
	expect("POST", one+"/timeout", `{"timeout":3600}`, 204, "")
	if left := time.Until(ends(h.threads[id].Labels)); left < 50*time.Minute {
		t.Errorf("%s left", left)
	}
	expect("POST", one+"/connect", `{"timeout":10}`, 200, id)
	if left := time.Until(ends(h.threads[id].Labels)); left < 50*time.Minute {
		t.Errorf("connect made the time shorter: %s left", left)
	}
	expect("POST", one+"/refreshes", `{"duration":10}`, 204, "")
	expect("POST", one+"/refreshes", `{"duration":3601}`, 400, "0 to 3600 seconds")
	if left := time.Until(ends(h.threads[id].Labels)); left < 50*time.Minute {
		t.Errorf("a refresh made the time shorter: %s left", left)
	}
	expect("POST", one+"/timeout", `{"timeout":1}`, 204, "")
	expect("POST", one+"/refreshes", "", 204, "")
	if left := time.Until(ends(h.threads[id].Labels)); left < 10*time.Second || left > 15*time.Second {
		t.Errorf("after a refresh without a duration: %s left", left)
	}
	expect("POST", one+"/refreshes", `{"duration":3600}`, 204, "")
	if left := time.Until(ends(h.threads[id].Labels)); left < 50*time.Minute {
		t.Errorf("a refresh did not make the time longer: %s left", left)
	}
	h.list = []sandbox.ExecInfo{{ExecID: "x"}}
	expect("POST", one+"/pause", "", 400, "cannot be paused")
	h.list = nil
	expect("POST", one+"/pause", "{}", 204, "")
	expect("POST", one+"/pause", "", 409, "paused already")
	expect("GET", srv.URL+"/health", "", 502, "not found")
	expect("POST", one+"/timeout", `{"timeout":3600}`, 409, "connect resumes it")
	expect("POST", one+"/refreshes", `{"duration":60}`, 409, "connect resumes it")
	expect("POST", one+"/connect", `{"timeout":10}`, 201, id)
	expect("POST", one+"/resume", `{"timeout":10}`, 409, "runs already")
	expect("POST", srv.URL+"/v2/sandboxes/"+id+"/connect", `{"memory":false}`, 501, "without memory")
	expect("POST", srv.URL+"/v2/sandboxes/"+id+"/connect", `{}`, 200, id)
	_, first := call(t, "POST", srv.URL+"/v2/sandboxes", "", `{"templateID":"base"}`, "Idempotency-Key: k")
	if _, again := call(t, "POST", srv.URL+"/v2/sandboxes", "", `{"templateID":"base"}`, "Idempotency-Key: k"); again != first {
		t.Errorf("repeated: %s, then %s", first, again)
	}
	expect("DELETE", one, "", 204, "")
	expect("DELETE", one, "", 404, "not found")
	expect("GET", srv.URL+"/files?path=x", "", 502, "not found")

	// No caller reaches a thread through E2B that was not made there.
	h.threads["mine"] = sandbox.ThreadView{Sandbox: &sandbox.Info{}}
	id = "mine"
	expect("DELETE", srv.URL+"/sandboxes/mine", "", 404, "not found")
	expect("GET", srv.URL+"/health", "", 502, "not found")
	expect("POST", srv.URL+"/execute", `{"code":"1"}`, 502, "not found")

	// A command does not make a sandbox anew that was deleted otherwise.
	id = create(t, srv.URL, `{"timeout":60}`)
	expect("GET", srv.URL+"/contexts", "", 200, `[{"id":"default","language":"python","cwd":"/home/user"},{"id":"default-javascript","language":"javascript","cwd":"/home/user"}]`)
	h.mu.Lock()
	delete(h.threads, id)
	h.mu.Unlock()
	expect("POST", srv.URL+"/execute", `{"code":"1"}`, 502, "not found")

	for body, text := range map[string]string{
		`{"timeout":-1}`: "timeout: want", `{"timeout":90000}`: "timeout: want", `{`: "not the JSON",
		`{"metadata":{"skerry.e2b/ends":"x"}}`: "are the server's", `{"metadata":{"a=b":"x"}}`: "labels",
	} {
		expect("POST", srv.URL+"/sandboxes", body, 400, text)
	}
	expect("POST", srv.URL+"/sandboxes", `{"templateID":"nosuch"}`, 404, "not found")
}

// TestTime: a sandbox whose time is over is deleted, or paused when that was asked for.
func TestTime(t *testing.T) {
	h, srv := start(t)
	gone, paused := create(t, srv.URL, `{"timeout":0}`), create(t, srv.URL, `{"timeout":0,"autoPause":true}`)
	for now := ""; now != statePaused; {
		h.mu.Lock()
		if v, ok := h.threads[paused]; ok && slices.Contains(h.deleted, gone) {
			now = state(v)
		}
		h.mu.Unlock()
		if t.Context().Err() != nil {
			t.Fatal("nothing became of them")
		}
		time.Sleep(time.Millisecond)
	}
	if slices.Contains(h.deleted, paused) {
		t.Error("one that was to be paused was deleted")
	}
}

// TestRefused: what there is not is 501, and the answer names it.
func TestRefused(t *testing.T) {
	_, srv := start(t)
	id := create(t, srv.URL, `{"timeout":60}`)
	one := "/sandboxes/" + id
	for _, c := range [][3]string{
		{"POST " + one + "/snapshots", "", "snapshots"},
		{"POST " + one + "/fork", "", "fork"},
		{"PUT " + one + "/network", "", "network rules"},
		{"GET /sandboxes/metrics", "", "metrics of many sandboxes"},
		{"GET /v2" + one + "/logs", "", "logs"},
		{"GET /templates/x/builds/y/status", "", "templates"},
		{"POST /v3/templates", "", "templates"},
		{"PATCH /v2/templates/x/y", "", "templates"},
		{"POST /volumes", "", "volumes"},
		{"DELETE /secrets/x", "", "secrets"},
		{"POST /sandboxes", `{"network":{"denyOut":["1.1.1.1"]}}`, "network"},
		{"POST /sandboxes", `{"network":{"allowPublicTraffic":false,"denyOut":[]}}`, "network"},
		{"POST /sandboxes", `{"mcp":{"x":{}}}`, "mcp"},
		{"POST /sandboxes", `{"iam":{"tokens":{"x":1}}}`, "iam"},
		{"POST /sandboxes", `{"volumeMounts":[{}]}`, "volumeMounts"},
		{"GET /files?path=a&username=root", "", "user root"},
		{"POST /execute", `{"code":"1","language":"r"}`, `language "r"`},
		{"POST /contexts", `{"language":"bash"}`, "contexts of bash"},
	} {
		method, path, _ := strings.Cut(c[0], " ")
		status, body := call(t, method, srv.URL+path, id, c[1])
		var got struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 501 || got.Code != 501 || !strings.Contains(got.Message, c[2]) {
			t.Errorf("%s: %d %s, want 501 with %q", c[0], status, body, c[2])
		}
	}
}

// about adds the headers that name a sandbox.
func about(r connect.AnyRequest, id string) { r.Header().Set(sandboxHeader, id) }

// TestProcess: processes are execs, by a number that is made of their id.
func TestProcess(t *testing.T) {
	h, srv := start(t)
	id := create(t, srv.URL, `{"timeout":60}`)
	c := processconnect.NewProcessClient(http.DefaultClient, srv.URL, connect.WithProtoJSON())
	no := false
	run := func(m *process.StartRequest) (events []*process.ProcessEvent, err error) {
		r := connect.NewRequest(m)
		about(r, id)
		s, err := c.Start(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // test
		for s.Receive() {
			events = append(events, s.Msg().GetEvent())
		}
		return events, s.Err()
	}
	dir := "/home/user/sub"
	m := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", "x"}, Cwd: &dir, Envs: map[string]string{"A": "b"}}, Stdin: &no}
	h.events = []sandbox.Event{
		{N: 1, Type: sandbox.EventStarted}, {N: 2, Type: sandbox.EventStdout, Data: []byte{0xff, 'a'}}, {N: 3, Type: sandbox.EventStderr, Data: []byte("e")}, exited(3),
	}
	events, err := run(m)
	if err != nil || len(events) != 4 {
		t.Fatal(events, err)
	}
	if events[0].GetStart().GetPid() != pid("ex1") || string(events[1].GetData().GetStdout()) != "\xffa" || string(events[2].GetData().GetStderr()) != "e" {
		t.Error(events)
	}
	if end := events[3].GetEnd(); end.GetExitCode() != 3 || !end.GetExited() || end.GetStatus() != "exit status 3" || end.GetError() != "exit status 3" {
		t.Error(end)
	}
	if h.cmd.Cwd != "/home/user/sub" || h.cmd.KeepStdin || !h.cmd.Background || h.cmd.Timeout != sandbox.MaxExecTimeout || strings.Join(h.cmd.Argv, " ") != "/bin/bash -l -c x" {
		t.Errorf("%+v", h.cmd)
	}

	m.Stdin, m.Pty = nil, &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	if events, err = run(m); err != nil || string(events[1].GetData().GetPty()) != "\xffa" || *h.cmd.Terminal != (sandbox.TerminalSize{Cols: 80, Rows: 24}) || !h.cmd.KeepStdin {
		t.Error(events, err, h.cmd)
	}
	m.Pty.Size.Cols = 70000
	if _, err = run(m); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Error(err)
	}
	m.Pty = nil
	for status, want := range map[sandbox.Status]connect.Code{sandbox.StatusTimeout: connect.CodeDeadlineExceeded, sandbox.StatusLost: connect.CodeUnavailable} {
		h.events = []sandbox.Event{{N: 2, Type: sandbox.EventExit, Result: &sandbox.Result{Status: status}}}
		if _, err = run(m); connect.CodeOf(err) != want {
			t.Errorf("%s: %v", status, err)
		}
	}
	tag := "x"
	m.Tag = &tag
	if _, err = run(m); connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "by tag") {
		t.Error(err)
	}

	h.list = []sandbox.ExecInfo{{ExecID: "ended", Action: "exec", Status: sandbox.StatusExited}, {ExecID: "lives", Action: "exec", Status: sandbox.StatusRunning, Subject: "sleep 9"}}
	list := connect.NewRequest(&process.ListRequest{})
	about(list, id)
	if all, err := c.List(t.Context(), list); err != nil || len(all.Msg.GetProcesses()) != 1 || all.Msg.GetProcesses()[0].GetConfig().GetCmd() != "sleep 9" {
		t.Error(all, err)
	}
	signal := func(name string, s process.Signal) error {
		r := connect.NewRequest(&process.SendSignalRequest{Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid(name)}}, Signal: s})
		about(r, id)
		_, err := c.SendSignal(t.Context(), r)
		return err
	}
	if err := errors.Join(signal("lives", process.Signal_SIGNAL_SIGKILL), signal("lives", process.Signal_SIGNAL_SIGTERM)); err != nil {
		t.Error(err)
	}
	if err := signal("ended", process.Signal_SIGNAL_SIGKILL); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
	input := connect.NewRequest(&process.SendInputRequest{
		Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid("lives")}}, Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("hi")}},
	})
	about(input, id)
	if _, err := c.SendInput(t.Context(), input); err != nil {
		t.Error(err)
	}
	if want := []string{"kill lives", "TERM lives", "stdin lives hi"}; !slices.Equal(h.did, want) {
		t.Error(h.did)
	}
	root := connect.NewRequest(&process.ListRequest{})
	about(root, id)
	root.Header().Set("Authorization", "Basic cm9vdDo=")
	if _, err := c.List(t.Context(), root); connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "user root") {
		t.Error(err)
	}
	about(list, "e2bgone")
	if _, err := c.List(t.Context(), list); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Error(err)
	}
}

// TestFiles: paths of E2B are below the workspace; what is written is recorded, watched and read again.
func TestFiles(t *testing.T) {
	h, srv := start(t)
	id := create(t, srv.URL, `{"timeout":60}`)
	c := filesystemconnect.NewFilesystemClient(http.DefaultClient, srv.URL, connect.WithProtoJSON())
	watch := connect.NewRequest(&filesystem.CreateWatcherRequest{Path: ".", IncludeEntry: true})
	about(watch, id)
	w, err := c.CreateWatcher(t.Context(), watch)
	if err != nil {
		t.Fatal(err)
	}
	status, body := call(t, "POST", srv.URL+"/files?path=a/b.txt", id, "hello", "Content-Type: application/octet-stream")
	if status != 200 || body != `[{"name":"b.txt","path":"/home/user/a/b.txt","type":"file"}]`+"\n" {
		t.Error(status, body)
	}
	form := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/home/user/a/c.txt\"\r\n\r\nfrom a form\r\n--x--\r\n"
	if status, body = call(t, "POST", srv.URL+"/files", id, form, "Content-Type: multipart/form-data; boundary=x"); status != 200 {
		t.Error(status, body)
	}
	if status, body = call(t, "GET", srv.URL+"/files?path=/home/user/a/c.txt", id, ""); status != 200 || body != "from a form" {
		t.Error(status, body)
	}
	if status, body = call(t, "GET", srv.URL+"/files?path=nosuch", id, ""); status != 404 {
		t.Error(status, body)
	}
	if status, body = call(t, "GET", srv.URL+"/files?path=/mnt/user-data/../../etc/passwd", id, ""); status != 501 { // the sandbox's own file: there is none here
		t.Error(status, body)
	}
	if status, body = call(t, "POST", srv.URL+"/files?path=z", id, "no gzip", "Content-Type: application/octet-stream", "Content-Encoding: gzip"); status != 400 {
		t.Error(status, body)
	}
	if !slices.Contains(h.did, "file_write /mnt/user-data/workspace/a/b.txt") {
		t.Error(h.did)
	}
	get := connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: w.Msg.GetWatcherId()})
	about(get, id)
	events, err := c.GetWatcherEvents(t.Context(), get)
	if err != nil || len(events.Msg.GetEvents()) != 1 || events.Msg.GetEvents()[0].GetName() != "a" || events.Msg.GetEvents()[0].GetEntry().GetPath() != "/home/user/a" {
		t.Error(events, err)
	}
	other := create(t, srv.URL, `{"timeout":60}`)
	about(get, other)
	if _, err := c.GetWatcherEvents(t.Context(), get); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another sandbox's watcher: %v", err)
	}
	list := connect.NewRequest(&filesystem.ListDirRequest{Path: "/home/user", Depth: 2})
	about(list, id)
	l, err := c.ListDir(t.Context(), list)
	if err != nil || len(l.Msg.GetEntries()) != 3 {
		t.Fatal(l, err)
	}
	for _, e := range l.Msg.GetEntries() {
		want := "-rw-r--r--"
		if e.GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY {
			want = "drwxr-xr-x"
		}
		if e.GetPermissions() != want {
			t.Errorf("%s: %s", e.GetPath(), e.GetPermissions())
		}
	}
	for name, to := range map[string]string{"link": "b.txt", "up": "../a", "none": "nosuch"} {
		if err := os.Symlink(to, h.dir+"/workspace/a/"+name); err != nil {
			t.Fatal(err)
		}
	}
	list = connect.NewRequest(&filesystem.ListDirRequest{Path: "a"})
	about(list, id)
	l, err = c.ListDir(t.Context(), list)
	shown := map[string]string{}
	for _, e := range l.Msg.GetEntries() {
		shown[e.GetName()] = fmt.Sprint(strings.TrimPrefix(e.GetType().String(), "FILE_TYPE_"), " ", e.GetSize(), " ", strings.TrimPrefix(e.GetSymlinkTarget(), homeDir), " ", e.GetIsSymlink())
	}
	for name, want := range map[string]string{"b.txt": "FILE 5  false", "link": "FILE 5 /a/b.txt true", "up": "DIRECTORY 4096 /a true"} {
		if err != nil || shown[name] != want {
			t.Errorf("%s: %s, want %s; %v", name, shown[name], want, err)
		}
	}
	if !strings.HasSuffix(shown["none"], " /a/nosuch true") {
		t.Error(shown["none"])
	}
	mkdir := connect.NewRequest(&filesystem.MakeDirRequest{Path: "a"})
	about(mkdir, id)
	if _, err := c.MakeDir(t.Context(), mkdir); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Error(err)
	}
	move := connect.NewRequest(&filesystem.MoveRequest{Source: "a/b.txt", Destination: "b.txt"})
	about(move, id)
	if m, err := c.Move(t.Context(), move); err != nil || m.Msg.GetEntry().GetPath() != "/home/user/b.txt" {
		t.Error(m, err)
	}
	remove := connect.NewRequest(&filesystem.RemoveRequest{Path: "a"})
	about(remove, id)
	if _, err := c.Remove(t.Context(), remove); err != nil {
		t.Error(err)
	}
	if _, err := c.Remove(t.Context(), remove); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := os.Stat(h.dir + "/workspace/a"); err == nil {
		t.Error("the folder is still there")
	}
	stat := connect.NewRequest(&filesystem.StatRequest{Path: "a"})
	about(stat, id)
	if _, err := c.Stat(t.Context(), stat); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
}

// TestExecute: code runs in one context per language, which is found again, and its end is told line by line.
func TestExecute(t *testing.T) {
	h, srv := start(t)
	id := create(t, srv.URL, `{"timeout":60}`)
	one := 1
	results := []sandbox.RichResult{{"image/png": json.RawMessage(`"AA"`), "x/y": json.RawMessage(`1`)}, {"text/plain": json.RawMessage(`"'four'"`), "application/vnd.e2b.data+json": json.RawMessage(`{"a":[1]}`), "application/vnd.e2b.chart+json": json.RawMessage(`{"type":"bar"}`), mainResult: json.RawMessage(`true`)}}
	h.events = []sandbox.Event{
		{N: 1, Type: sandbox.EventStarted}, {N: 2, Type: sandbox.EventStdout, Data: []byte("gr\xc3")}, {N: 3, Type: sandbox.EventStdout, Data: []byte("\xbcn")},
		{N: 4, Type: sandbox.EventStderr, Data: []byte("----\nKeyError      Traceback (most recent call last)\nCell In[1], line 1\nKeyError: 'x'\n")},
		{N: 5, Type: sandbox.EventExit, Result: &sandbox.Result{Status: sandbox.StatusExited, ExitCode: &one, Results: &results}},
	}
	run := func(body string) (out []map[string]any) {
		t.Helper()
		status, answer := call(t, "POST", srv.URL+"/execute", id, body)
		if status != 200 {
			t.Fatal(status, answer)
		}
		for line := range strings.Lines(answer) {
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(line, err)
			}
			out = append(out, v)
		}
		return out
	}
	out := run(`{"code":"x","env_vars":{"A":"b"}}`)
	var kinds, text []string
	for _, v := range out {
		kinds = append(kinds, v["type"].(string))
		if v["type"] == "stdout" {
			text = append(text, v["text"].(string))
		}
	}
	if want := "stdout stdout stderr result result error number_of_executions end_of_execution"; strings.Join(kinds, " ") != want || strings.Join(text, "") != "grün" {
		t.Fatal(kinds, text)
	}
	if out[3]["png"] != "AA" || out[3]["is_main_result"] != false || out[3]["extra"] == nil || out[4]["text"] != "four" || out[4]["is_main_result"] != true {
		t.Error(out[3], out[4])
	}
	if fmt.Sprint(out[4]["data"], out[4]["chart"], out[4]["extra"]) != "map[a:[1]] map[type:bar] <nil>" || fmt.Sprint(h.code.Env) != "map[A:b E2B_RESULTS:data]" {
		t.Error(out[4], h.code.Env)
	}
	if out[5]["name"] != "KeyError" || out[5]["value"] != "'x'" {
		t.Error(out[5])
	}
	run(`{"code":"y"}`)
	if len(h.contexts) != 1 || h.code.ContextID != "cpython" || h.code.Language != "" || h.threads[id].Labels[labelContext+"python"] != "cpython" {
		t.Error(h.contexts, h.code)
	}
	h.contexts[0].State = sandbox.ContextLost
	run(`{"code":"z"}`)
	if !slices.Contains(h.did, "restart cpython") {
		t.Error(h.did)
	}
	run(`{"code":"ls","language":"bash"}`)
	if h.code.ContextID != "" || h.code.Language != "bash" || h.code.Env["PWD"] != homeDir {
		t.Error(h.code)
	}
	run(`{"code":"d","context_id":"default"}`)
	if h.code.ContextID != "cpython" || len(h.contexts) != 1 {
		t.Error(h.code, h.contexts)
	}
	run(`{"code":"d","context_id":"default-javascript"}`)
	if h.code.ContextID != "cjavascript" || len(h.contexts) != 2 || h.code.Env != nil {
		t.Error(h.code, h.contexts)
	}
	if status, body := call(t, "POST", srv.URL+"/contexts/default/restart", id, ""); status != 200 || h.did[len(h.did)-1] != "restart cpython" {
		t.Error(status, body, h.did)
	}
	if status, body := call(t, "POST", srv.URL+"/execute", id, `{"code":"1","context_id":"nosuch"}`); status != 404 {
		t.Error(status, body)
	}
	if status, body := call(t, "GET", srv.URL+"/contexts", id, ""); status != 200 || strings.Contains(body, "cpython") || !strings.Contains(body, `"id":"default",`) {
		t.Error(status, body) // the lost one is not shown, but what is begun anew with the next code
	}
	if status, body := call(t, "DELETE", srv.URL+"/contexts/cpython", id, ""); status != 200 || h.did[len(h.did)-1] != "delete cpython" {
		t.Error(status, body)
	}
}
