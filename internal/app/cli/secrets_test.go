package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The value goes from standard input into the body, without the newline, and is printed nowhere.
func TestSecretsSet(t *testing.T) {
	var asked, path string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Value string `json:"value"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		asked, path = body.Value, r.Method+" "+r.URL.RequestURI()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"name":"TOKEN","scope":"server/crm","source":"stored"}`))
	}))
	defer api.Close()
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("sk-live-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	root := NewRoot()
	root.SetArgs([]string{"--server", api.URL, "secrets", "set", "TOKEN", "--for-server", "crm"})
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&out)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked != "sk-live-0123456789" || path != "PUT /api/secrets/TOKEN?scope=server%2Fcrm" || out.String() != "stored TOKEN (server/crm)\n" {
		t.Errorf("%q %s %q", asked, path, out.String())
	}
	root.SetArgs([]string{"--server", api.URL, "secrets", "set", "TOKEN", "sk-live-0123456789"})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "standard input") || strings.Contains(err.Error(), "sk-live") {
		t.Error(err)
	}
}
