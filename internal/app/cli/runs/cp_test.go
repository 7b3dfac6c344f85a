package runs

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

// disk plays the files of a thread.
func disk(t *testing.T, files map[string]string, listing string) *client.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Query().Get("path")
		text, ok := files[path]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPut:
			body, _ := io.ReadAll(r.Body)
			files[path] = string(body)
			_, _ = io.WriteString(w, `{"path":"x","bytes":1}`)
		case strings.HasSuffix(r.URL.Path, "/list"):
			_, _ = io.WriteString(w, listing)
		case !ok:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"not_found","detail":"nothing there"}`)
		case strings.HasSuffix(r.URL.Path, "/stat"):
			_ = json.NewEncoder(w).Encode(map[string]any{"path": path, "is_dir": text == "dir"})
		default:
			_, _ = io.WriteString(w, text)
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return &client.Client{Server: srv.URL}
}

// TestCp: files go in and out, a folder with what is in it. No name of the thread leads out of the target.
func TestCp(t *testing.T) {
	dir := t.TempDir()
	here := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	if err := os.MkdirAll(here("in", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(here("in", "sub", "a"), []byte("A"), 0o600); err != nil {
		t.Fatal(err)
	}
	const work = "/mnt/user-data/workspace"
	files := map[string]string{work: "dir", work + "/b": "B", "/mnt/user-data/outputs": "dir", "/mnt/user-data/outputs/x/y": "Y"}
	api := disk(t, files, `{"items":[{"path":"/mnt/user-data/outputs/x","is_dir":true},{"path":"/mnt/user-data/outputs/x/y"},{"path":"/mnt/user-data/outputs/l","symlink":"/etc"}]}`)
	var out bytes.Buffer
	for _, args := range [][]string{{here("in", "sub", "a"), "t:"}, {"-r", here("in"), "t:new"}, {"t:b", here("b")}, {"t:b", "-"}, {"-r", "t:/mnt/user-data/outputs", here("out")}} {
		if _, err := call(t.Context(), newCp(api), os.Stdin, &out, args...); err != nil {
			t.Fatal(args, err)
		}
	}
	if files[work+"/a"] != "A" || files[work+"/new/sub/a"] != "A" || out.String() != "B" {
		t.Errorf("%v %q", files, out.String())
	}
	for name, want := range map[string]string{"b": "B", filepath.Join("out", "x", "y"): "Y"} {
		if text, err := os.ReadFile(here(name)); err != nil || string(text) != want {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
	hostile := disk(t, map[string]string{"/d": "dir", "/d/../../evil": "E"}, `{"items":[{"path":"/d/../../evil"}]}`)
	if _, err := call(t.Context(), newCp(hostile), os.Stdin, &out, "-r", "t:/d", here("deep", "out")); err == nil {
		t.Error("a name led out")
	}
	for _, args := range [][]string{{"a", "b"}, {"t:a", "u:b"}, {here("in"), "t:"}, {"t:/mnt/user-data/outputs", here("no")}} {
		if _, err := call(t.Context(), newCp(api), os.Stdin, &out, args...); codeOf(err) != exit.Usage {
			t.Errorf("%q: %v", args, err)
		}
	}
}
