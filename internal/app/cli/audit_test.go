package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAuditTail: records are shown once each over a lost connection, and hostile text in them does nothing.
func TestAuditTail(t *testing.T) {
	var asked []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		if r.URL.Query().Get("outcome") != "denied" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": \n\n")
		switch len(asked) {
		case 1:
			fmt.Fprintf(w, "id: 1-0\nevent: record\ndata: %s\n\n", `{"time":"2026-01-02T03:04:05Z","action":"exec","subject":"evil\u001b[2J\r\u202etxt\u009b31m","outcome":"denied","user":"ann"}`)
		case 2:
			fmt.Fprintf(w, "id: 2-0\nevent: record\ndata: %s\n\n", `{"time":"2026-01-02T03:04:06Z","action":"exec","subject":"second","outcome":"denied","user":"ann"}`)
		default:
			cancel() // as a user does
		}
	}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var out bytes.Buffer
	root := NewRoot()
	root.SetArgs([]string{"audit", "tail", "--server", srv.URL, "--outcome", "denied"})
	root.SetOut(&out)
	root.SetErr(&out)
	if err := root.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked[:3], []string{"", "1-0", "2-0"}) {
		t.Errorf("asked from %v on", asked)
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "second") || strings.ContainsAny(got, "\x1b\r\u202e\u009b") {
		t.Errorf("shown: %q", got)
	}
}

// TestAuditExportFile: an export goes to a new file, and an export that breaks off is an error.
func TestAuditExportFile(t *testing.T) {
	whole := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/audit/export" || r.URL.Query().Get("format") != "ocsf" || r.URL.Query().Get("since") == "" {
			t.Errorf("asked for %s", r.URL)
		}
		fmt.Fprint(w, "one\n")
		if !whole {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	file := filepath.Join(t.TempDir(), "out")
	run := func() error {
		root := NewRoot()
		root.SetArgs([]string{"audit", "export", "--server", srv.URL, "--format", "ocsf", "--since", "2h", "-o", file})
		return root.ExecuteContext(t.Context())
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "one\n" {
		t.Errorf("%q %v", text, err)
	}
	if run() == nil {
		t.Error("a file that is there was written over")
	}
	whole, file = false, file+"2"
	if err := run(); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("an export that broke off: %v", err)
	}
}

// TestAuditSummary: counts are a table without control characters, or JSON; a summary that is not of all says so.
func TestAuditSummary(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/audit/summary" || q.Get("user") != "ann" || q.Get("since") == "" || q.Get("buckets") != "3" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"count":12,"denied":3,"failed":1,"partial":true,"counted_since":"2026-01-02T03:04:05Z","from":"2026-01-02T03:00:00Z","until":"2026-01-02T03:02:00Z","bucket_s":60,
			"buckets":[{"start":"2026-01-02T03:00:00Z","count":2,"denied":0,"failed":1},{"start":"2026-01-02T03:01:00Z","count":10,"denied":3,"failed":0}],
			"users":{"values":[{"value":"ann","count":12,"denied":3,"failed":1}],"other":0},"actions":{"values":[],"other":0},
			"tools":{"values":[{"value":"mail\u001b[2J__send\u202e","count":6,"denied":3,"failed":0}],"other":4},"outcomes":{"values":[],"other":0}}`)
	}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	run := func(more ...string) string {
		t.Helper()
		var out bytes.Buffer
		root := NewRoot()
		root.SetArgs(append([]string{"audit", "summary", "--server", srv.URL, "--user", "ann", "--since", "7d", "--buckets", "3"}, more...))
		root.SetOut(&out)
		root.SetErr(&out)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	got := run()
	for _, want := range []string{"12 records, 3 denied, 1 failed", "are not counted", "██", "TOOL", "__send", "(others)"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("control characters in %q", got)
	}
	if got := run("--json"); !strings.Contains(got, `"bucket_s": 60`) {
		t.Errorf("as JSON: %s", got)
	}
}
