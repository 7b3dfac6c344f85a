package deerflow

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const exited = `{"exec_id":"e1","status":"exited","exit_code":0,"stdout":"hello\n","stderr":"","truncated":false}`

// TestSandbox: what DeerFlow sends to a sandbox, as its client of 0.0.30 writes it, becomes requests of the API, and the answers are read back.
func TestSandbox(t *testing.T) {
	h, a, key := setup(t, "")
	at := address(t, h, key)
	const files = "/api/threads/talk/files"
	for _, c := range []struct {
		name, method, target, body string
		answers                    map[string]string
		asked, sent                string
		data                       string // of the answer, as JSON
	}{
		{
			"a command", http.MethodPost, "/v1/shell/exec", `{"command":"echo hello","no_change_timeout":600}`, map[string]string{"POST /api/threads/talk/exec": exited},
			"POST /api/threads/talk/exec", `{"command":"exec 2\u003e\u00261\necho hello","timeout_s":590}`,
			`{"session_id":"e1","command":"echo hello","status":"completed","output":"hello\n","console":null,"exit_code":0}`,
		},
		{
			"one that took too long", http.MethodPost, "/v1/shell/exec", `{"command":"sleep 9","hard_timeout":2,"id":"s"}`,
			map[string]string{"POST /api/threads/talk/exec": `{"exec_id":"e1","status":"timeout","exit_code":null,"stdout":"aGn/","encoding":"base64","truncated":true,"stdout_path":"/mnt/user-data/x"}`},
			"POST /api/threads/talk/exec", `{"command":"exec 2\u003e\u00261\nsleep 9","timeout_s":2}`,
			`{"session_id":"s","command":"sleep 9","status":"hard_timeout","console":null,"exit_code":null,
			  "output":"hi\ufffd\n[The command was ended: it took too long.]\n[All of the output is in /mnt/user-data/x.]"}`,
		},
		{
			"a command with secrets", http.MethodPost, "/v1/bash/exec", `{"command":"env","env":{"TOKEN":"t"},"hard_timeout":600.0}`, map[string]string{"POST /api/threads/talk/exec": exited},
			"POST /api/threads/talk/exec", `{"command":"env","env":{"TOKEN":"t"},"timeout_s":590}`,
			`{"session_id":"e1","command_id":"e1","command":"env","status":"completed","stdout":"hello\n","stderr":"","exit_code":0,"offset":6,"stderr_offset":0}`,
		},
		{"a session", http.MethodPost, "/v1/shell/sessions/create", `{"id":"b7"}`, nil, "", "", `{"session_id":"b7","working_dir":"/mnt/user-data/workspace"}`},
		{"its end", http.MethodDelete, "/v1/shell/sessions/b7", "", nil, "", "", `null`},
		{
			"a file", http.MethodPost, "/v1/file/read", `{"file":"/mnt/user-data/a"}`, map[string]string{"GET " + files + "/content": "a\nb\n"},
			"GET " + files + "/content?path=%2Fmnt%2Fuser-data%2Fa", "", `{"content":"a\nb\n","file":"/mnt/user-data/a"}`,
		},
		{
			"lines of a file", http.MethodPost, "/v1/file/read", `{"file":"/mnt/user-data/a","start_line":1,"end_line":3}`, map[string]string{"GET " + files + "/content": "a\nb\nc\nd\n"},
			"GET " + files + "/content?path=%2Fmnt%2Fuser-data%2Fa", "", `{"content":"b\nc","file":"/mnt/user-data/a"}`,
		},
		{
			"a new file", http.MethodPost, "/v1/file/write", `{"file":"/mnt/user-data/a","content":"héllo"}`, map[string]string{"PUT " + files + "/content": `{}`},
			"PUT " + files + "/content?path=%2Fmnt%2Fuser-data%2Fa", "héllo", `{"file":"/mnt/user-data/a","bytes_written":6}`,
		},
		{
			"bytes", http.MethodPost, "/v1/file/write", `{"file":"/mnt/user-data/a","content":"AP8=","encoding":"base64"}`, map[string]string{"PUT " + files + "/content": `{}`},
			"PUT " + files + "/content?path=%2Fmnt%2Fuser-data%2Fa", "\x00\xff", `{"file":"/mnt/user-data/a","bytes_written":2}`,
		},
		{
			"more of a file", http.MethodPost, "/v1/file/write", `{"file":"/mnt/user-data/a","content":"x","append":true}`, map[string]string{"PUT " + files: `{}`},
			"PUT " + files, `{"append":true,"content":"x","encoding":"utf-8","path":"/mnt/user-data/a"}`, `{"file":"/mnt/user-data/a","bytes_written":1}`,
		},
		{
			"names", http.MethodPost, "/v1/file/find", `{"path":"/mnt/user-data","glob":"*.py"}`,
			map[string]string{"GET " + files + "/glob": `{"items":[{"path":"/mnt/user-data/d.py","is_dir":true},{"path":"/mnt/user-data/d.py/a.py"}]}`},
			"GET " + files + "/glob?path=%2Fmnt%2Fuser-data&pattern=%2A%2A%2F%2A.py", "", `{"path":"/mnt/user-data","files":["/mnt/user-data/d.py/a.py"]}`,
		},
		{
			"a folder", http.MethodPost, "/v1/file/list", `{"path":"/mnt/user-data","recursive":true,"show_hidden":false}`,
			map[string]string{"GET " + files + "/list": `{"items":[{"path":"/mnt/user-data/d","is_dir":true,"mode":"0755","modified_at":"2026-01-02T03:04:05Z"},{"path":"/mnt/user-data/.git/x"}]}`},
			"GET " + files + "/list?depth=64&path=%2Fmnt%2Fuser-data", "",
			`{"path":"/mnt/user-data","files":[{"name":"d","path":"/mnt/user-data/d","is_directory":true,"size":0,"modified_time":"2026-01-02T03:04:05Z","permissions":"0755","extension":""}],
			  "total_count":1,"directory_count":1,"file_count":0}`,
		},
		{
			"lines that match", http.MethodPost, "/v1/file/grep",
			`{"path":"/mnt/user-data","pattern":"TODO","case_insensitive":true,"fixed_strings":true,"max_results":5000,"max_file_size":"1M","recursive":true}`,
			map[string]string{"GET " + files + "/grep": `{"items":[{"path":"/mnt/user-data/a","line":3,"text":"todo"}],"truncated":true}`},
			"GET " + files + "/grep?ignore_case=true&max=1000&path=%2Fmnt%2Fuser-data&pattern=TODO&regex=false", "",
			`{"path":"/mnt/user-data","pattern":"TODO","matches":[{"file":"/mnt/user-data/a","line_number":3,"line_content":"todo"}],"match_count":1,"files_matched":1,"truncated":true}`,
		},
	} {
		a.asked, a.bodies, a.answers = nil, nil, c.answers
		status, got := send(t, h, "", c.method, at+c.target, c.body)
		var want any
		if err := json.Unmarshal([]byte(c.data), &want); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if status != http.StatusOK || got["success"] != true || !reflect.DeepEqual(got["data"], want) {
			t.Errorf("%s: %d %v, want %v", c.name, status, got, want)
		}
		if asked, sent := a.last(); asked != c.asked || sent != c.sent {
			t.Errorf("%s: asked %s %s, want %s %s", c.name, asked, sent, c.asked, c.sent)
		}
	}

	a.answers = map[string]string{"GET " + files + "/content": "\xff\x00"}
	if status, got := send(t, h, "", http.MethodGet, at+"/v1/file/download?path=/mnt/user-data/a", ""); status != http.StatusOK || got["raw"] != "\xff\x00" {
		t.Errorf("download: %d %v", status, got)
	}
	if status, got := send(t, h, "", http.MethodPost, at+"/v1/file/read", `{"file":"/mnt/user-data/a"}`); status != http.StatusBadRequest || !strings.Contains(got["detail"].(string), "download") {
		t.Errorf("read of bytes: %d %v", status, got)
	}
	a.answers = nil
	if status, got := send(t, h, "", http.MethodPost, at+"/v1/file/read", `{"file":"/mnt/user-data/a"}`); status != http.StatusNotFound || got["code"] != "not_found" {
		t.Errorf("no file: %d %v", status, got)
	}
	a.answers = map[string]string{"GET " + files + "/list": `{"items":[],"truncated":true}`}
	if status, _ := send(t, h, "", http.MethodPost, at+"/v1/file/list", `{"path":"/mnt/user-data"}`); status != http.StatusBadRequest {
		t.Errorf("half a list: %d", status)
	}
}

// FuzzSandbox: whatever a body is, no route of a sandbox fails for it, or asks for another thread than its own.
func FuzzSandbox(f *testing.F) {
	routes := []string{"shell/exec", "shell/sessions/create", "bash/exec", "file/read", "file/write", "file/find", "file/list", "file/grep"}
	for i := range routes {
		f.Add(uint8(i), `{"command":"id","path":"/mnt/user-data","file":"/mnt/user-data/a","pattern":"a"}`)
		f.Add(uint8(i), `{"id":"x","glob":"../*","start_line":-1,"end_line":9,"max_results":-1,"env":{"A":"b"}}`)
	}
	h, a, key := setup(f, "")
	at := address(f, h, key)
	const text = "a\nb\n"
	answer := `{"items":[{"path":"/mnt/user-data/a","is_dir":false}],"exec_id":"e","status":"exited","stdout":"` + "a" + `"}`
	a.answers = map[string]string{
		"POST /api/threads/talk/exec": answer, "GET /api/threads/talk/files/content": text, "PUT /api/threads/talk/files/content": `{}`, "PUT /api/threads/talk/files": `{}`,
		"GET /api/threads/talk/files/glob": answer, "GET /api/threads/talk/files/list": answer, "GET /api/threads/talk/files/grep": answer,
	}
	f.Fuzz(func(t *testing.T, route uint8, body string) {
		a.asked, a.bodies, a.users = nil, nil, nil
		status, got := send(t, h, "", http.MethodPost, at+"/v1/"+routes[int(route)%len(routes)], body)
		if status >= 500 && status != http.StatusNotImplemented || (status == http.StatusOK) != (got["success"] == true) {
			t.Errorf("%d %v", status, got)
		}
		for _, asked := range a.asked {
			if _, path, _ := strings.Cut(asked, " "); !strings.HasPrefix(path, "/api/threads/talk/") {
				t.Errorf("asked %s", asked)
			}
		}
	})
}

// FuzzLines: lines that are asked for are those of the text, as cut at each newline.
func FuzzLines(f *testing.F) {
	f.Add("a\nb\nc", 1, 2)
	f.Add("", 0, 0)
	f.Add("\n\n", 1, 5)
	f.Fuzz(func(t *testing.T, text string, from, to int) {
		got, err := lines(text, &from, &to)
		if (err != nil) != (from < 0 || to < 0) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		all := strings.Split(text, "\n")
		want := ""
		if from < to && from < len(all) {
			want = strings.Join(all[from:min(to, len(all))], "\n")
		}
		if to >= len(all) {
			want = strings.TrimSuffix(want, "\n")
		}
		if got != want {
			t.Errorf("lines %d to %d of %q: %q, want %q", from, to, text, got, want)
		}
	})
}
