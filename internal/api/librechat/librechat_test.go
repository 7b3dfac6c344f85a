package librechat

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// api plays the public API: it keeps the files of threads, and answers runs as it is told.
type api struct {
	files  map[string]string // by thread and path
	result sandbox.Result    // of the next run
	runs   []string          // thread, route and body of each
	starts []string
	// program answers the events of an exec, by the mark of its code and the event after which they are asked for.
	program func(mark, after string) string
	mark    string
	lists   int // of files
}

const key = "sk_test"

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	problem := func(status int, kind sandbox.Kind, detail string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"code": string(kind), "detail": detail})
	}
	if r.Header.Get("Authorization") != "Bearer "+key {
		problem(http.StatusUnauthorized, sandbox.Unauthorized, "the key is not known")
		return
	}
	if r.URL.String() == "/api/threads?limit=1" {
		return
	}
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := strings.Cut(r.URL.Path, "/api/threads/")
	thread, route, _ := strings.Cut(rest, "/")
	at := thread + " " + r.URL.Query().Get("path")
	if r.URL.Query().Has("path") && !strings.Contains(at, "..") {
		at = thread + " " + path.Clean(r.URL.Query().Get("path")) // as the API does
	}
	switch r.Method + " " + route {
	case "PUT files/content":
		if strings.Contains(at, "..") {
			problem(http.StatusBadRequest, sandbox.Invalid, "path: leads out")
			return
		}
		a.files[at] = string(body)
		w.WriteHeader(http.StatusCreated)
	case "GET files/content":
		text, ok := a.files[at]
		if !ok {
			problem(http.StatusNotFound, sandbox.NotFound, "there is no such file")
			return
		}
		_, _ = io.WriteString(w, text)
	case "DELETE files":
		delete(a.files, at)
	case "GET files/list":
		items := []map[string]any{}
		for name, text := range a.files {
			if at, ok := strings.CutPrefix(name, thread+" "); ok {
				items = append(items, map[string]any{"path": at, "bytes": len(text), "modified_at": "2026-11-28T03:00:00Z"})
			}
		}
		if len(items) == 0 {
			problem(http.StatusNotFound, sandbox.NotFound, "there is no such thread")
			return
		}
		a.lists++
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	case "GET ":
		for name := range a.files {
			if strings.HasPrefix(name, thread+" ") {
				return
			}
		}
		problem(http.StatusNotFound, sandbox.NotFound, "there is no such thread")
	case "PUT sandbox":
		a.starts = append(a.starts, thread+" "+string(body))
	case "GET execs/e/events":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, a.program(a.mark, r.URL.Query().Get("after")))
	case "POST execs/e/stdin":
		a.runs = append(a.runs, thread+" "+route+" "+string(body))
		w.WriteHeader(http.StatusNoContent)
	case "POST execute_code", "POST exec":
		if _, rest, ok := strings.Cut(string(body), `\"mark\":\"`); ok {
			a.mark = rest[:markLength]
			_ = json.NewEncoder(w).Encode(sandbox.Result{ExecID: "e", Status: sandbox.StatusRunning})
			return
		}
		a.runs = append(a.runs, thread+" "+route+" "+string(body))
		_ = json.NewEncoder(w).Encode(a.result)
	default:
		problem(http.StatusNotFound, sandbox.NotFound, r.Method+" "+r.URL.Path)
	}
}

func setup(t *testing.T, template string) (http.Handler, *api) {
	t.Helper()
	zero := 0
	a := &api{files: map[string]string{}, result: sandbox.Result{Status: sandbox.StatusExited, ExitCode: &zero, Stdout: "hi\n"}}
	h, err := New(Options{API: a, Template: template, Held: held.New()})
	if err != nil {
		t.Fatal(err)
	}
	return h, a
}

func send(t *testing.T, h http.Handler, method, path string, body io.Reader, header map[string]string) (int, map[string]any, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, body)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var got map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &got) // a list, or the text of a file, is read from the text
	return w.Code, got, w.Body.String()
}

var (
	asKey  = map[string]string{"X-API-Key": key}
	asJSON = map[string]string{"Authorization": "Bearer " + key, "Content-Type": "application/json"}
)

func upload(t *testing.T, h http.Handler, path string, files map[string]string) (int, map[string]any) {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	if err := form.WriteField("kind", "user"); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		part, err := form.CreatePart(map[string][]string{"Content-Disposition": {`form-data; name="file"; filename="` + name + `"`}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, text)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	status, got, _ := send(t, h, http.MethodPost, path, &b, map[string]string{"X-API-Key": key, "Content-Type": form.FormDataContentType()})
	return status, got
}

// TestConversation: what LibreChat does with a file: it uploads it, runs code on it, and fetches what the code wrote.
func TestConversation(t *testing.T) {
	t.Parallel()
	h, a := setup(t, "data")
	status, got := upload(t, h, prefix+"/upload", map[string]string{"in/a.csv": "1,2\n"})
	session, _ := got["storage_session_id"].(string)
	if status != http.StatusOK || got["message"] != "success" || got["session_id"] != session || !validID.MatchString(session) {
		t.Fatalf("%d %v", status, got)
	}
	in := got["files"].([]any)[0].(map[string]any)
	if in["filename"] != "in/a.csv" || !validID.MatchString(in["fileId"].(string)) || a.files[session+" "+sandbox.WorkspaceDir+"/in/a.csv"] != "1,2\n" {
		t.Fatalf("%v %v", in, a.files)
	}
	a.files[session+" "+sandbox.WorkspaceDir+"/plot.png"] = "PNG"
	a.result.Files = []sandbox.FileChange{
		{Path: sandbox.WorkspaceDir + "/plot.png", Bytes: 3, Change: "created"}, {Path: sandbox.WorkspaceDir + "/old", Change: "deleted"},
		{Path: "/mnt/user-data/uploads/x", Change: "created"},
	}
	ref := `{"id":"` + in["fileId"].(string) + `","storage_session_id":"` + session + `","name":"in/a.csv","kind":"user","resource_id":"ann"}`
	status, got, text := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(`{"lang":"py","code":"print('hi')","user_id":"ann","files":[`+ref+`]}`), asJSON)
	if status != http.StatusOK || got["stdout"] != "hi\n" || got["stderr"] != "" || got["session_id"] != session || got["code"] != 0.0 {
		t.Fatalf("%d %s", status, text)
	}
	if len(a.runs) != 1 || !strings.HasPrefix(a.runs[0], session+" execute_code ") || !strings.Contains(a.runs[0], `"language":"python"`) || len(a.starts) != 1 || !strings.Contains(a.starts[0], `"template":"data"`) {
		t.Errorf("%q %q", a.runs, a.starts)
	}
	out := got["files"].([]any)
	if len(out) != 1 || out[0].(map[string]any)["name"] != "plot.png" || out[0].(map[string]any)["storage_session_id"] != session {
		t.Fatalf("%v", out)
	}
	id := out[0].(map[string]any)["id"].(string)
	if status, _, text := send(t, h, http.MethodGet, prefix+"/download/"+session+"/"+id+"?kind=user&id=ann", nil, asKey); status != http.StatusOK || text != "PNG" {
		t.Errorf("%d %s", status, text)
	}
	if status, got, _ := send(t, h, http.MethodGet, prefix+"/sessions/"+session+"/objects/"+id, nil, asKey); status != http.StatusOK || got["lastModified"] != "2026-11-28T03:00:00Z" {
		t.Errorf("%d %v", status, got)
	}
	if status, _, text := send(t, h, http.MethodGet, prefix+"/files/"+session+"?detail=full", nil, asKey); status != http.StatusOK || !strings.Contains(text, session+"/"+id+".png") || !strings.Contains(text, `"original-filename":"in/a.csv"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _, _ := send(t, h, http.MethodDelete, prefix+"/files/"+session+"/"+id, nil, asKey); status != http.StatusOK || a.files[session+" "+sandbox.WorkspaceDir+"/plot.png"] != "" {
		t.Errorf("%d %v", status, a.files)
	}
	if status, got, _ := send(t, h, http.MethodGet, prefix+"/download/"+session+"/"+id, nil, asKey); status != http.StatusNotFound || got["error"] == "" {
		t.Errorf("deleted: %d %v", status, got)
	}
}

// TestSession: the code runs where most of its files are, and those of other sessions are copied there.
func TestSession(t *testing.T) {
	t.Parallel()
	h, a := setup(t, "")
	one, two := strings.Repeat("a", idLength), strings.Repeat("b", idLength)
	ref := func(session, name string) string {
		return `{"id":"` + fileID(name) + `","session_id":"` + session + `","name":"` + name + `"}`
	}
	at := func(session, name string) string { return session + " " + sandbox.WorkspaceDir + "/" + name }
	for _, name := range []string{at(one, "x"), at(two, "y"), at(two, "z")} {
		a.files[name] = name
	}
	exec := func(body string) (int, map[string]any) {
		t.Helper()
		status, got, _ := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(body), asJSON)
		return status, got
	}
	if status, got := exec(`{"lang":"bash","code":"ls","files":[` + ref(one, "x") + `,` + ref(two, "y") + `,` + ref(two, "z") + `]}`); status != http.StatusOK || got["session_id"] != two || a.files[at(two, "x")] != at(one, "x") {
		t.Errorf("%d %v %v", status, got, a.files)
	}
	// Renamed by LibreChat since.
	renamed := `{"id":"` + fileID("x") + `","storage_session_id":"` + one + `","name":"new"}`
	if status, got := exec(`{"lang":"bash","code":"ls","session_id":"` + two + `","files":[` + renamed + `]}`); status != http.StatusOK || got["session_id"] != two || a.files[at(two, "new")] != at(one, "x") {
		t.Errorf("%d %v %v", status, got, a.files)
	}
	_, first := exec(`{"lang":"bash","code":"ls","runtime_session_hint":"talk"}`)
	if _, again := exec(`{"lang":"bash","code":"ls","runtime_session_hint":"talk"}`); again["session_id"] != first["session_id"] || !validID.MatchString(first["session_id"].(string)) {
		t.Errorf("a conversation has the sessions %v and %v", first, again)
	}
	if _, got := exec(`{"lang":"bash","code":"ls"}`); got["session_id"] == first["session_id"] {
		t.Errorf("%v", got)
	}
	if status, got := exec(`{"lang":"bash","code":"ls","files":[` + ref(one, "gone") + `],"session_id":"` + two + `"}`); status != http.StatusNotFound || !strings.Contains(got["error"].(string), "upload it again") {
		t.Errorf("%d %v", status, got)
	}
	if status, got := exec(`{"lang":"bash","code":"ls","files":[` + ref(strings.Repeat("c", idLength), "x") + `]}`); status != http.StatusNotFound || !strings.Contains(got["error"].(string), "upload it again") {
		t.Errorf("a thread that is gone: %d %v", status, got)
	}
	if _, got := exec(`{"lang":"bash","code":"echo $1","args":["a b"]}`); got["stdout"] != "hi\n" || !strings.Contains(a.runs[len(a.runs)-1], `["bash","-c","echo $1","bash","a b"]`) {
		t.Errorf("%v %q", got, a.runs)
	}
}

// TestNames: a file is found by the id that its upload answered, however its name was written.
func TestNames(t *testing.T) {
	t.Parallel()
	h, a := setup(t, "")
	other := strings.Repeat("b", idLength)
	for name, want := range map[string]string{
		"/etc/x": "etc/x", "a//b": "a/b", "./c": "c", "d/./e": "d/e", "//f": "f", "g/": "g", " ": " ",
	} {
		for _, route := range []string{"/upload", "/upload/batch"} {
			status, got := upload(t, h, prefix+route, map[string]string{name: "text"})
			if status != http.StatusOK {
				t.Fatalf("%q: %d %v", name, status, got)
			}
			session := got["storage_session_id"].(string)
			file := got["files"].([]any)[0].(map[string]any)
			id := file["fileId"].(string)
			if file["filename"] != want || a.files[session+" "+sandbox.WorkspaceDir+"/"+want] != "text" {
				t.Errorf("%q is %v, among %v", name, file, a.files)
			}
			if status, _, text := send(t, h, http.MethodGet, prefix+"/download/"+session+"/"+id, nil, asKey); status != http.StatusOK || text != "text" {
				t.Errorf("%q: %d %s", name, status, text)
			}
			body := `{"lang":"bash","code":"ls","session_id":"` + other + `","files":[{"id":"` + id + `","session_id":"` + session + `","name":"` + name + `"}]}`
			if status, _, text := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(body), asJSON); status != http.StatusOK || a.files[other+" "+sandbox.WorkspaceDir+"/"+want] != "text" {
				t.Errorf("%q in another session: %d %s", name, status, text)
			}
			if status, _, text := send(t, h, http.MethodDelete, prefix+"/files/"+session+"/"+id, nil, asKey); status != http.StatusOK {
				t.Errorf("%q: %d %s", name, status, text)
			}
		}
	}
}

// TestNoKey: a request without a key ends before its body is read, so that bodies of strangers take no memory.
func TestNoKey(t *testing.T) {
	t.Parallel()
	h, a := setup(t, "")
	for _, path := range []string{"/exec", "/upload", "/upload/batch"} {
		body := &counted{r: strings.NewReader(strings.Repeat("x", 1<<20))}
		status, got, _ := send(t, h, http.MethodPost, prefix+path, body, map[string]string{"Content-Type": "application/json", "X-API-Key": "other"})
		if status != http.StatusUnauthorized || got["error"] != "the key is not known" || body.n > 0 {
			t.Errorf("%s: %d %v after %d bytes", path, status, got, body.n)
		}
	}
	if len(a.runs)+len(a.files) > 0 {
		t.Errorf("%v %v", a.runs, a.files)
	}
}

type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// TestManyFiles: renamed files of a session cost one list of it, and a file is copied as it comes.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	h, a := setup(t, "")
	one, two := strings.Repeat("a", idLength), strings.Repeat("b", idLength)
	large := strings.Repeat("x", 65<<20) // more than is kept of an answer
	a.files[one+" "+sandbox.WorkspaceDir+"/0"], a.files[one+" "+sandbox.WorkspaceDir+"/1"], a.files[one+" "+sandbox.WorkspaceDir+"/2"] = large, "", "y"
	var refs []string
	for _, name := range []string{"0", "1", "2"} {
		refs = append(refs, `{"id":"`+fileID(name)+`","session_id":"`+one+`","name":"new`+name+`"}`)
	}
	status, _, text := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(`{"lang":"bash","code":"ls","session_id":"`+two+`","files":[`+strings.Join(refs, ",")+`]}`), asJSON)
	at := func(name string) string { return a.files[two+" "+sandbox.WorkspaceDir+"/new"+name] }
	if status != http.StatusOK || at("0") != large || at("1") != "" || at("2") != "y" || a.lists != 1 {
		t.Errorf("%d %.200s, %d bytes, %q, %q, %d lists", status, text, len(at("0")), at("1"), at("2"), a.lists)
	}
	if _, there := a.files[two+" "+sandbox.WorkspaceDir+"/new1"]; !there {
		t.Error("an empty file was not copied")
	}
}

// TestSessionNeedsKey: with one key for all users, who knows a conversation does not know its session. With
// tokens the session stays the same when the token is another.
func TestSessionNeedsKey(t *testing.T) {
	t.Parallel()
	if a, b := sessionOf("talk", "sk_one"), sessionOf("talk", "sk_two"); a == b || !validID.MatchString(a) || !validID.MatchString(b) {
		t.Errorf("%s, %s", a, b)
	}
	if a, b := sessionOf("talk", "ey.first.token"), sessionOf("talk", "ey.second.token"); a != b || a == sessionOf("other", "ey.second.token") {
		t.Errorf("%s, %s", a, b)
	}
}

// TestWords: what a model has to know of a run is in the two streams, which are all that it sees.
func TestWords(t *testing.T) {
	t.Parallel()
	three := 3
	for name, c := range map[string]struct {
		r      sandbox.Result
		out, e string
	}{
		"failed":  {sandbox.Result{Status: sandbox.StatusExited, ExitCode: &three}, "", "The exit code is 3.\n"},
		"timeout": {sandbox.Result{Status: sandbox.StatusTimeout, Stdout: "a", Stderr: "b"}, "a", "b\nThe run did not end by itself: timeout.\n"},
		"binary":  {sandbox.Result{Status: sandbox.StatusKilled, Detail: "by its caller", Stdout: "/w==", Encoding: "base64", Truncated: true}, "\uFFFD", "The run did not end by itself: killed (by its caller).\nThe output is cut.\n"},
	} {
		if out, e := texts(c.r); out != c.out || e != c.e {
			t.Errorf("%s: %q %q", name, out, e)
		}
	}
}

// TestRefused: bad input has one answer that says what would be right, and starts nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	h, a := setup(t, "")
	many := `[` + strings.TrimSuffix(strings.Repeat(`{"id":"x"},`, maxFiles+1), ",") + `]`
	for body, want := range map[string]string{
		`{"lang":"cobol","code":"x"}`:                                    `"cobol" does not run here; bash, js, py`,
		`{"lang":"py"}`:                                                  "code: is missing",
		`{"lang":"js","code":"x","args":["a"]}`:                          "args: work with bash and py",
		`{"lang":"py","code":"x","session_id":"../../x"}`:                "session_id",
		`{"lang":"py","code":"x","files":[{"id":"a"}]}`:                  "files[0]",
		`{"lang":"py","code":"x","files":` + many + `}`:                  "at most 200",
		`{"lang":"py"`:                                                   "the body",
		`{"lang":"py","code":"x","files":` + strings.Repeat("[", 20_000): "values",
	} {
		status, got, text := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(body), asJSON)
		if status != http.StatusBadRequest || !strings.Contains(text, want) && !strings.Contains(got["error"].(string), want) {
			t.Errorf("%.60s: %d %s", body, status, text)
		}
	}
	for path, want := range map[string]int{
		"/v2": http.StatusNotImplemented, "/files/" + url.PathEscape("..%2f"): http.StatusNotFound,
		"/download/short/short": http.StatusNotFound,
	} {
		method := http.MethodGet
		if status, got, text := send(t, h, method, prefix+path, nil, asKey); status != want || got["error"] == nil {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, _, _ := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(`{"lang":"py","code":"x"}`), map[string]string{"Content-Type": "application/json"}); status != http.StatusUnauthorized {
		t.Errorf("without a key %d", status)
	}
	if status, got, _ := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(`{"lang":"py","code":"x"}`), map[string]string{"X-API-Key": "other", "Content-Type": "application/json"}); status != http.StatusUnauthorized || got["error"] != "the key is not known" {
		t.Errorf("with another key %d %v", status, got)
	}
	if len(a.runs) != 0 {
		t.Errorf("%q", a.runs)
	}
	if status, got := upload(t, h, prefix+"/upload", map[string]string{"../../a": "x"}); status != http.StatusBadRequest || got["error"] == nil {
		t.Errorf("%d %v", status, got)
	}
	if status, got := upload(t, h, prefix+"/upload", nil); status != http.StatusBadRequest || !strings.Contains(got["error"].(string), "no file") {
		t.Errorf("%d %v", status, got)
	}
	if status, got := upload(t, h, prefix+"/upload/batch", map[string]string{"a": "x", "../b": "y"}); status != http.StatusOK || got["message"] != "partial_success" || got["succeeded"] != 1.0 || got["failed"] != 1.0 {
		t.Errorf("%d %v", status, got)
	}
	if status, _, _ := send(t, h, http.MethodGet, prefix+"/health", nil, nil); status != http.StatusOK {
		t.Errorf("health %d", status)
	}
}

// FuzzExec: no body of a request makes a run with a session or a file that is no id, and none panics.
func FuzzExec(f *testing.F) {
	f.Add(`{"lang":"py","code":"x","files":[{"id":"a","session_id":"b","name":"c"}],"args":["x"],"session_id":"d","runtime_session_hint":"e"}`)
	f.Add(`{"lang":"bash","code":"ls"}`)
	f.Fuzz(func(t *testing.T, body string) {
		var b execBody
		if json.Unmarshal([]byte(body), &b) != nil || b.check() != nil {
			return
		}
		if s := b.session(key); !validID.MatchString(s) {
			t.Errorf("the session is %q", s)
		}
		if q := b.run(b.session(key)); strings.Count(q.Path, "/") != 4 {
			t.Errorf("the path is %q", q.Path)
		}
	})
}

// FuzzForm: no form brings more files than it may, or hangs. What a file is called is the API's to judge.
func FuzzForm(f *testing.F) {
	f.Add("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b\"\r\n\r\n1\r\n--x--\r\n")
	f.Add("--x\r\nContent-Disposition: form-data; name=\"entity_id\"\r\n\r\n1\r\n--x\r\n\r\n--x--")
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prefix+"/upload", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		files := 0
		c := &call{Caller: inprocess.Caller{R: r, W: httptest.NewRecorder()}}
		err := c.parts(func(_ string, content io.Reader) error {
			files++
			_, err := io.Copy(io.Discard, content)
			return err
		})
		if files > maxFiles || err == nil && files == 0 {
			t.Errorf("%d files, %v", files, err)
		}
	})
}

// TestHeld: bodies take a bounded part of the server's memory; one that finds no room is refused for now.
func TestHeld(t *testing.T) {
	t.Parallel()
	zero := 0
	a := &api{files: map[string]string{}, result: sandbox.Result{Status: sandbox.StatusExited, ExitCode: &zero}}
	b := held.New()
	b.Wait = time.Millisecond
	h, err := New(Options{API: a, Held: b})
	if err != nil {
		t.Fatal(err)
	}
	others := b.Of("librechat\x00" + key)
	if err := others.Take(t.Context(), held.OfCaller-10); err != nil {
		t.Fatal(err)
	}
	run := func() int {
		status, _, _ := send(t, h, http.MethodPost, prefix+"/exec", strings.NewReader(`{"lang":"py","code":"x"}`), asJSON)
		return status
	}
	if status := run(); status != http.StatusTooManyRequests || len(a.runs) > 0 {
		t.Errorf("%d, %q", status, a.runs)
	}
	others.End()
	if status := run(); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
}
