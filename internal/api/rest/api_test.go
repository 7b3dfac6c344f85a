package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestThreads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	rec := send(h, "PUT", "/api/threads/t1/sandbox", `{"template":"base","labels":{"a":"b"},"env":{"K":"v"},"skills":["csv"],"mode":"code","wait_s":0}`)
	m := decodeBody(t, rec)
	if rec.Code != 200 || m["thread_id"] != "t1" || m["sandbox"].(map[string]any)["state"] != "running" {
		t.Errorf("%d %v", rec.Code, m)
	}
	if o := w.acquire; o.Template != "base" || o.Labels["a"] != "b" || o.Env["K"] != "v" || o.Skills[0] != "csv" || o.Mode != "code" || o.Wait != time.Millisecond {
		t.Errorf("options %+v", o)
	}
	w.state = sandbox.Starting
	for _, body := range []string{"", "{}"} {
		if rec = send(h, "PUT", "/api/threads/t1/sandbox", body); rec.Code != 202 || w.acquire.Wait != 30*time.Second || w.acquire.Labels != nil || w.acquire.Skills != nil {
			t.Errorf("%d %+v", rec.Code, w.acquire)
		}
	}
	wantProblem(t, send(h, "PUT", "/api/threads/t1/sandbox", `{"mode":"x"}`), 400, "invalid")
	wantProblem(t, send(h, "PUT", "/api/threads/t1/sandbox", `{"labels":{"a=b":"c"}}`), 400, "invalid")
	m = decodeBody(t, send(h, "GET", "/api/threads/t1", ""))
	if m["thread_id"] != "t1" || m["user"] != "ann" || m["labels"] == nil || m["workspace"] == nil {
		t.Errorf("thread %v", m)
	}
	m = decodeBody(t, send(h, "GET", "/api/threads?label=a%3Db&label=c%3Dd%3De&state=running&limit=7&cursor=x", ""))
	if f := w.filter; m["next_cursor"] != "next" || m["total"] != 7.0 || len(m["items"].([]any)) != 1 || f.Latest || f.Labels["a"] != "b" || f.Labels["c"] != "d=e" || f.State != "running" || f.Limit != 7 || f.Cursor != "x" {
		t.Errorf("list %v %+v", m, f)
	}
	decodeBody(t, send(h, "GET", "/api/threads?user=*&template=data&q=Report&active_after=2026-01-02T03:04:05Z&active_before=2026-02-02T03:04:05%2B01:00", ""))
	if f := w.filter; f.User != sandbox.AllUsers || f.Template != "data" || f.Text != "Report" || !f.Latest || f.ActiveAfter.Month() != time.January || f.ActiveBefore.UTC().Hour() != 2 {
		t.Errorf("filter %+v", f)
	}
	decodeBody(t, send(h, "GET", "/api/threads?user=ann&sort=last_active_at", ""))
	if f := w.filter; f.User != "ann" || !f.Latest {
		t.Errorf("filter %+v", f)
	}
	decodeBody(t, send(h, "GET", "/api/threads?user=*&sort=disk_bytes&min_disk_mib=1073741824", ""))
	if f := w.filter; f.Latest || !f.Largest || f.MinDisk != 1<<50 {
		t.Errorf("filter %+v", f)
	}
	for _, bad := range []string{"sort=usage", "min_disk_mib=-1", "min_disk_mib=1.5", "min_disk_mib=1073741825", "min_disk_mib=much"} {
		wantProblem(t, send(h, "GET", "/api/threads?"+bad, ""), http.StatusBadRequest, "invalid")
	}
	if m := decodeBody(t, send(h, "GET", "/api/threads/t1/sandbox/metrics", "")); m["cpu_ms"] != 1500.0 || m["memory_limit_bytes"] != float64(1<<30) || m["pids"] != 3.0 || m["disk"].(map[string]any)["bytes"] != float64(5<<20) || m["disk"].(map[string]any)["limit_bytes"] != float64(2<<30) {
		t.Errorf("metrics %v", m)
	}
	for _, verb := range []string{"pause", "resume", "hibernate"} {
		if m := decodeBody(t, send(h, "POST", "/api/threads/t1/sandbox/"+verb, "")); m["sandbox"] == nil {
			t.Errorf("%s %v", verb, m)
		}
	}
	for _, url := range []string{"/api/threads/t1/sandbox", "/api/threads/t1"} {
		if rec := send(h, "DELETE", url, ""); rec.Code != 204 {
			t.Errorf("DELETE %s: %d", url, rec.Code)
		}
	}
	if m := decodeBody(t, send(h, "GET", "/api/templates", "")); m["items"].([]any)[0].(map[string]any)["name"] != "base" {
		t.Errorf("templates %v", m)
	}
}

const filesURL = "/api/threads/t1/files"

func filesWorld(t *testing.T) *world {
	w := newWorld(t)
	for _, d := range []string{"workspace", "uploads", "outputs"} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func at(path string) string { return "?path=" + url.QueryEscape("/mnt/user-data/"+path) }

func TestFiles(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	h := handler(t, w)
	rec := send(h, "PUT", filesURL, `{"path":"/mnt/user-data/workspace/d/a.txt","content":"one\ntwo\n"}`)
	if m := decodeBody(t, rec); rec.Code != 201 || m["bytes"] != 8.0 || m["path"] != "/mnt/user-data/workspace/d/a.txt" {
		t.Errorf("%d %v", rec.Code, m)
	}
	if rec = send(h, "PUT", filesURL, `{"path":"/mnt/user-data/workspace/d/a.txt","content":"dGhyZWU=","encoding":"base64","append":true}`); rec.Code != 200 {
		t.Errorf("append %d %s", rec.Code, rec.Body)
	}
	m := decodeBody(t, send(h, "GET", filesURL+at("workspace/d/a.txt")+"&offset=1&limit=1", ""))
	if m["content"] != "two\n" || m["encoding"] != "utf-8" || m["total_lines"] != 3.0 || m["start_line"] != 2.0 || m["end_line"] != 2.0 || m["next_offset"] != 2.0 || m["bytes"] != 13.0 || m["modified_at"] == nil {
		t.Errorf("read %v", m)
	}
	m = decodeBody(t, send(h, "POST", filesURL+"/edit", `{"path":"/mnt/user-data/workspace/d/a.txt","old":"two","new":"2"}`))
	if m["occurrences"] != 1.0 {
		t.Errorf("edit %v", m)
	}
	wantProblem(t, send(h, "POST", filesURL+"/edit", `{"path":"/mnt/user-data/workspace/d/a.txt","old":"two","new":"2"}`), 409, "conflict")
	m = decodeBody(t, send(h, "GET", filesURL+"/list"+at("workspace")+"&depth=2", ""))
	if items := m["items"].([]any); len(items) != 2 || m["truncated"] != false || items[0].(map[string]any)["is_dir"] != true || items[1].(map[string]any)["mode"] != "0644" {
		t.Errorf("list %v", m)
	}
	m = decodeBody(t, send(h, "GET", filesURL+"/glob"+at("")+"&pattern=**/*.txt", ""))
	if items := m["items"].([]any); len(items) != 1 {
		t.Errorf("glob %v", m)
	}
	m = decodeBody(t, send(h, "GET", filesURL+"/grep"+at("workspace")+"&pattern=ONE&ignore_case=true&context=1&max=5&regex=&glob=*.txt", ""))
	if items := m["items"].([]any); len(items) != 1 || items[0].(map[string]any)["line"] != 1.0 || items[0].(map[string]any)["text"] != "one" {
		t.Errorf("grep %v", m)
	}
	m = decodeBody(t, send(h, "POST", filesURL+"/move", `{"from":"/mnt/user-data/workspace/d/a.txt","to":"/mnt/user-data/outputs/b.txt"}`))
	if m["path"] != "/mnt/user-data/outputs/b.txt" {
		t.Errorf("move %v", m)
	}
	if m = decodeBody(t, send(h, "GET", filesURL+"/stat"+at("outputs/b.txt"), "")); m["is_dir"] != false || m["bytes"] != 11.0 {
		t.Errorf("stat %v", m)
	}
	if m = decodeBody(t, send(h, "POST", filesURL+"/mkdir", `{"path":"/mnt/user-data/workspace/x/y"}`)); m["is_dir"] != true {
		t.Errorf("mkdir %v", m)
	}
	wantProblem(t, send(h, "DELETE", filesURL+at("workspace/x"), ""), 409, "conflict")
	if rec = send(h, "DELETE", filesURL+at("workspace/x")+"&recursive=true", ""); rec.Code != 204 {
		t.Errorf("delete %d %s", rec.Code, rec.Body)
	}
	wantProblem(t, send(h, "GET", filesURL+at("workspace/x"), ""), 404, "not_found")
	want := []string{
		"file_write /mnt/user-data/workspace/d/a.txt 8", "file_write /mnt/user-data/workspace/d/a.txt 5", "file_edit /mnt/user-data/workspace/d/a.txt 11",
		"file_edit /mnt/user-data/workspace/d/a.txt 0", "file_move /mnt/user-data/workspace/d/a.txt -> /mnt/user-data/outputs/b.txt 0",
		"file_mkdir /mnt/user-data/workspace/x/y 0", "file_delete /mnt/user-data/workspace/x 0", "file_delete /mnt/user-data/workspace/x 0",
	}
	if strings.Join(w.changes, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded:\n%s", strings.Join(w.changes, "\n"))
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	w.quota = 1 << 20
	h := handler(t, w)
	u := filesURL + "/content" + at("outputs/page.html")
	rec := send(h, "PUT", u, "0123456789", "Content-Type: text/html")
	if m := decodeBody(t, rec); rec.Code != 201 || m["bytes"] != 10.0 {
		t.Errorf("%d %v", rec.Code, m)
	}
	if rec = send(h, "PUT", u, "<script>0", "Content-Type: "); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec = send(h, "GET", u, "")
	tag := rec.Header().Get("ETag")
	if rec.Code != 200 || rec.Body.String() != "<script>0" || tag == "" || !strings.HasPrefix(rec.Header().Get("Content-Disposition"), "attachment") ||
		!strings.HasPrefix(rec.Header().Get("Content-Security-Policy"), "sandbox") || rec.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	if rec = send(h, "GET", u, "", "Range: bytes=1-6"); rec.Code != 206 || rec.Body.String() != "script" || rec.Header().Get("Content-Range") != "bytes 1-6/9" {
		t.Errorf("range %d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	wantProblem(t, send(h, "GET", u, "", "Range: bytes=100-"), 416, "invalid")
	if rec = send(h, "GET", u, "", "If-None-Match: "+tag); rec.Code != 304 || rec.Body.Len() != 0 {
		t.Errorf("not changed: %d", rec.Code)
	}
	if rec = send(h, "HEAD", u, ""); rec.Code != 200 || rec.Header().Get("Content-Length") != "9" || rec.Body.Len() != 0 {
		t.Errorf("head %d %v", rec.Code, rec.Header())
	}
	wantProblem(t, send(h, "GET", filesURL+"/content"+at("outputs"), ""), 400, "invalid")
	wantProblem(t, send(h, "PUT", u, strings.Repeat("a", 1<<20+1), "Content-Type: application/octet-stream"), 413, "quota_exceeded")
	if rec = send(h, "GET", u, ""); rec.Body.String() != "<script>0" {
		t.Error("a failed upload changed the file")
	}
}

// TestPutContentConditions writes only when the file is what the caller knows.
func TestPutContentConditions(t *testing.T) {
	t.Parallel()
	h := handler(t, filesWorld(t))
	u := filesURL + "/content" + at("workspace/notes.txt")
	if rec := send(h, "PUT", u, "mine", "If-None-Match: *"); rec.Code != 201 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	tag := send(h, "GET", u, "").Header().Get("ETag")
	wantProblem(t, send(h, "PUT", u, "another", "If-None-Match: *"), 412, "conflict")
	wantProblem(t, send(h, "PUT", u, "another", `If-None-Match: "x"`), 400, "invalid")
	wantProblem(t, send(h, "PUT", u, "another", `If-Match: "x", "y"`), 412, "conflict")
	rec := send(h, "PUT", u, "edited", `If-Match: "x", `+tag)
	next := rec.Header().Get("ETag")
	if rec.Code != 200 || next == "" || decodeBody(t, rec)["etag"] != next {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	wantProblem(t, send(h, "PUT", u, "from the version before", "If-Match: "+tag), 412, "conflict")
	wantProblem(t, send(h, "PUT", filesURL+"/content"+at("workspace/none"), "x", "If-Match: "+tag), 412, "conflict")
	if rec := send(h, "GET", u, ""); rec.Body.String() != "edited" || rec.Header().Get("ETag") != next {
		t.Errorf("%q %s was written all the same", rec.Body, rec.Header().Get("ETag"))
	}
	if rec := send(h, "PUT", u, "edited again", "If-Match: "+next); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// TestUploadBeyondJSON streams more than a JSON body may have, over a real connection, and a body that
// breaks off.
func TestUploadBeyondJSON(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	srv := httptest.NewServer(handler(t, w))
	defer srv.Close()
	u := srv.URL + filesURL + "/content" + at("uploads/big")
	req, _ := http.NewRequest(http.MethodPut, u, io.LimitReader(zeros{}, route.MaxJSONBytes+5))
	res, err := srv.Client().Do(req)
	if err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("%v %v", res, err)
	}
	_ = res.Body.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf", filesURL+"/content"+at("uploads/half"))
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	_ = conn.Close()
	if !bytes.Contains(answer, []byte("400 Bad Request")) || !bytes.Contains(answer, []byte("ended too early")) {
		t.Errorf("broken off: %s", answer)
	}
	if e, _ := os.ReadDir(filepath.Join(w.dir, "uploads")); len(e) != 1 || e[0].Name() != "big" {
		t.Errorf("left over: %v", e)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestUploadDownload(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	w.quota = 1000
	h := handler(t, w)
	var form bytes.Buffer
	mw := multipart.NewWriter(&form)
	add := func(name, content string) {
		part, err := mw.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name="files"; filename="%s"`, name)}})
		if err == nil {
			_, err = part.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("a.txt", "A")
	add("sub/b.txt", "B")
	add("/mnt/user-data/workspace/c.txt", "C")
	add("/etc/passwd", "x")
	add("../../x", "x")
	add("/mnt/user-data/workspace", "x")
	add("", "x")
	add("big", strings.Repeat("x", 1001))
	if err := mw.WriteField("path", "/mnt/user-data/outputs"); err != nil {
		t.Fatal(err)
	}
	add("d.txt", "D")
	_ = mw.Close()
	rec := send(h, "POST", filesURL+"/upload", form.String(), "Content-Type: "+mw.FormDataContentType())
	got := results(t, rec)
	want := "/mnt/user-data/uploads/a.txt|/mnt/user-data/uploads/sub/b.txt|/mnt/user-data/workspace/c.txt|/etc/passwd permission_denied|/mnt/user-data/uploads/../../x invalid_path|" +
		"/mnt/user-data/workspace is_directory|/mnt/user-data/uploads/ invalid_path|/mnt/user-data/uploads/big quota_exceeded|/mnt/user-data/outputs/d.txt"
	if got != want {
		t.Errorf("upload %s", got)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "outputs/bin"), []byte{0xff, 0}, 0o644); err != nil {
		t.Fatal(err)
	}
	rec = send(h, "POST", filesURL+"/download", `{"paths":["/mnt/user-data/outputs/d.txt","/mnt/user-data/nope","/mnt/user-data/workspace","/etc/passwd","x","/mnt/user-data/outputs/bin"]}`)
	if got = results(t, rec); got != "/mnt/user-data/outputs/d.txt|/mnt/user-data/nope file_not_found|/mnt/user-data/workspace is_directory|/etc/passwd permission_denied|x invalid_path|/mnt/user-data/outputs/bin" {
		t.Errorf("download %s", got)
	}
	items := decodeBody(t, rec)["items"].([]any)
	if a, b := items[0].(map[string]any), items[5].(map[string]any); a["content"] != "D" || a["encoding"] != "utf-8" || b["content"] != "/wA=" || b["encoding"] != "base64" {
		t.Errorf("content %v %v", a, b)
	}
	wantProblem(t, send(h, "POST", filesURL+"/download", `{"paths":[]}`), 400, "invalid")
	wantProblem(t, send(h, "POST", filesURL+"/upload", "nonsense", "Content-Type: multipart/form-data"), 400, "invalid")
	wantProblem(t, send(h, "POST", filesURL+"/upload", "nonsense", "Content-Type: multipart/form-data; boundary=x"), 400, "invalid")
	// With an Idempotency-Key the form is read twice, and written once.
	for range 2 {
		rec = send(h, "POST", filesURL+"/upload", form.String(), "Content-Type: "+mw.FormDataContentType(), "Idempotency-Key: up")
		if results(t, rec) != want {
			t.Errorf("upload again %s", rec.Body)
		}
	}
	if rec.Header().Get("Idempotent-Replayed") != "true" {
		t.Error("not replayed")
	}
}

// results sums up an answer with one result per file.
func results(t *testing.T, rec *httptest.ResponseRecorder) string {
	t.Helper()
	if rec.Code != 200 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	var out []string
	for _, item := range decodeBody(t, rec)["items"].([]any) {
		m := item.(map[string]any)
		line := m["path"].(string)
		if m["error"] != nil {
			line += " " + m["error"].(string)
		}
		out = append(out, line)
	}
	return strings.Join(out, "|")
}

func TestTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	m := decodeBody(t, send(h, "GET", "/api/threads/t1/servers", ""))
	if m["total_tools"] != 7.0 || len(m["servers"].([]any)) != 2 {
		t.Errorf("servers %v", m)
	}
	m = decodeBody(t, send(h, "GET", "/api/threads/t1/tools?query=read&server=fs", ""))
	if m["query"] != "read" || m["server_filter"] != "fs" || m["tools"].([]any)[0].(map[string]any)["name"] != "fs__read:desc" {
		t.Errorf("search %v", m)
	}
	wantProblem(t, send(h, "GET", "/api/threads/t1/tools?detail=x", ""), 400, "invalid")
	m = decodeBody(t, send(h, "GET", "/api/threads/t1/servers/a%20b/tools", ""))
	if tool := m["items"].([]any)[0].(map[string]any); tool["server"] != "a b" || tool["short_name"] != "read" || tool["parameters"] == nil {
		t.Errorf("tools of a server %v", m)
	}
	m = decodeBody(t, send(h, "POST", "/api/threads/t1/tools/call", `{"tool":"fs__read","input":{"p":1}}`))
	if m["result"].(map[string]any)["a"] != 1.0 || m["call_id"] != "c1" || w.ref != (sandbox.ToolRef{Printed: "fs__read"}) || string(w.input) != `{"p":1}` {
		t.Errorf("call %v %+v %s", m, w.ref, w.input)
	}
	if m["content"] != nil || m["structured_content"] != nil {
		t.Errorf("content that nobody asked for: %v", m)
	}
	m = decodeBody(t, send(h, "POST", "/api/threads/t1/tools/call", `{"tool":"fs__read","content":true}`))
	if blocks := m["content"].([]any); len(blocks) != 1 || blocks[0].(map[string]any)["type"] != "image" || m["structured_content"].(map[string]any)["a"] != 1.0 || m["result"] == nil {
		t.Errorf("call with content %v", m)
	}
	send(h, "POST", "/api/threads/t1/tools/call", `{"server":"fs","tool":"read"}`)
	if w.ref != (sandbox.ToolRef{Server: "fs", Name: "read"}) || string(w.input) != "{}" {
		t.Errorf("call %+v %s", w.ref, w.input)
	}
	if m = decodeBody(t, send(h, "GET", "/api/threads/t1/prompt", "")); m["text"] != "t" || m["sections"] == nil || m["tools"] == nil {
		t.Errorf("prompt %v", m)
	}
}

// bearer adds a key and a thread to the requests of an MCP client.
type bearer struct{ key, thread string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	if b.thread != "" {
		r.Header.Set("Skerry-Thread", b.thread)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestMCP(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	srv := httptest.NewServer(handler(t, w, func(o *Options) { o.Keys, o.Anonymous = w, nil }))
	defer srv.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, way := range []struct {
		url string
		b   bearer
	}{{"/mcp/t1", bearer{key: "ann"}}, {"/mcp", bearer{key: "ann", thread: "t1"}}} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: srv.URL + way.url, HTTPClient: &http.Client{Transport: way.b}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := session.ListTools(ctx, nil)
		if err != nil || len(tools.Tools) != 14 {
			t.Fatalf("%d tools, %v", len(tools.Tools), err)
		}
		call := func(name string, args any) (string, bool) {
			t.Helper()
			res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
			if err != nil {
				t.Fatal(err)
			}
			return res.Content[0].(*mcp.TextContent).Text, res.IsError
		}
		for _, c := range []struct {
			name string
			args map[string]any
			want string
		}{
			{"execute_code", map[string]any{"code": "1", "language": "python"}, `"tools_called":[]`},
			{"bash", map[string]any{"command": "ls"}, `"stdout":"hi\n"`},
			{"search_tools", map[string]any{"query": "x"}, "fs__read:desc"},
			{"list_servers", map[string]any{}, `"total_tools":7`},
			{"write_file", map[string]any{"path": "/mnt/user-data/workspace/m.txt", "content": "one two"}, `"bytes":7`},
			{"str_replace", map[string]any{"path": "/mnt/user-data/workspace/m.txt", "old_str": "one", "new_str": "1"}, `"occurrences":1`},
			{"read_file", map[string]any{"path": "/mnt/user-data/workspace/m.txt"}, "1 two"},
			{"ls", map[string]any{"path": "/mnt/user-data/workspace"}, "m.txt"},
			{"glob", map[string]any{"pattern": "**/*.txt"}, "m.txt"},
			{"grep", map[string]any{"pattern": "two"}, `"line":1`},
		} {
			if text, isErr := call(c.name, c.args); isErr || !strings.Contains(text, c.want) {
				t.Errorf("%s: %v %s", c.name, isErr, text)
			}
		}
		if text, isErr := call("read_file", map[string]any{"path": "/etc/passwd"}); !isErr || !strings.HasPrefix(text, "forbidden: ") {
			t.Errorf("forbidden: %v %s", isErr, text)
		}
		if w.last().User != "ann" {
			t.Errorf("caller %+v", w.last())
		}
		_ = session.Close()
	}
	h := handler(t, w)
	wantProblem(t, send(h, "POST", "/mcp", "{}"), 400, "invalid")
	wantProblem(t, send(h, "POST", "/mcp/a%2Fb", "{}"), 400, "invalid")
	wantProblem(t, send(h, "POST", "/mcp/t1", "{}", "Content-Type: text/plain"), 415, "invalid")
}

// TestErrorsAreBrief: what is wrong with a request is not said in the request's own length.
func TestErrorsAreBrief(t *testing.T) {
	t.Parallel()
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf(`"unknown%d":1`, i)
	}
	for what, body := range map[string]string{"a long name": `{"` + strings.Repeat("k", 1<<20) + `":1}`, "many names": "{" + strings.Join(many, ",") + "}"} {
		p := problem.FromHuma(http.StatusUnprocessableEntity, "x", detailsOf(body)...)
		raw, err := json.Marshal(p)
		if err != nil || len(raw) > 32<<10 {
			t.Errorf("%s: %d bytes, %v", what, len(raw), err)
		}
	}
}

// detailsOf is what huma finds in an object of unknown fields.
func detailsOf(body string) []error {
	var fields map[string]any
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		return []error{err}
	}
	var errs []error
	for name := range fields {
		errs = append(errs, &huma.ErrorDetail{Message: "unexpected property " + name, Location: "body." + name})
	}
	return errs
}
