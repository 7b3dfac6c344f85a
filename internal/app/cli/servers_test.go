package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestServers: servers are listed, or the one that has a thread; whose thread it is needs the thread.
func TestServers(t *testing.T) {
	var asked string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"items":[{"id":"r1","state":"serving","started_at":"2026-01-02T03:04:05Z","report":{"version":"9.9","threads":7,"sandboxes":{"running":3}}},{"id":"r2","state":"silent"}]}`))
	}))
	defer api.Close()
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := NewRoot()
		root.SetArgs(append([]string{"--server", api.URL, "servers"}, args...))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run()
	if lines := strings.Split(out, "\n"); err != nil || len(lines) < 3 || !strings.Contains(lines[1], "9.9") || !strings.Contains(lines[2], "silent") {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := run("--thread", "t1", "--user", "ada"); err != nil || asked != "/api/servers?thread=t1&user=ada" {
		t.Errorf("%s, %v", asked, err)
	}
	asked = ""
	if _, err := run("--user", "ada"); err == nil || asked != "" {
		t.Errorf("asked %q, %v", asked, err)
	}
}
