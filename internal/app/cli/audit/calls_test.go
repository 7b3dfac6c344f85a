package audit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
)

// logged returns one as the API has it.
func logged(id, at, phase, action, parent, subject, outcome string, more map[string]any) map[string]any {
	r := map[string]any{"id": id, "time": at, "phase": phase, "action": action, "parent": parent, "subject": subject, "outcome": outcome, "user": "ann", "thread": "t1", "exec": "e1"}
	for k, v := range more {
		r[k] = v
	}
	return r
}

// log is what the server of these tests has, newest first.
func log() []map[string]any {
	at := time.Now().UTC().Add(-time.Minute).Format(time.RFC3339)
	return []map[string]any{
		logged("x2", at, "result", "exec", "x1", "make report", "exited", map[string]any{"ms": 90}),
		logged("b2", at, "result", "tool_call", "b1", "mail__send", "denied", map[string]any{"detail": "rule no-mail: <script>alert(1)</script>"}),
		logged("b1", at, "attempt", "tool_call", "x1", "mail__send", "", map[string]any{"args": map[string]any{"to": "=cmd()"}}),
		logged("a2", at, "result", "tool_call", "a1", "shop__list", "ok", map[string]any{"ms": 7}),
		logged("a1", at, "attempt", "tool_call", "x1", "shop__list", "", map[string]any{"args": map[string]any{"n": 1}}),
		logged("x1", at, "attempt", "exec", "", "make report", "", nil),
	}
}

// serve plays the audit log of a server: it filters by action and exec, and by q on ids.
func serve(t *testing.T) *client.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		items := []map[string]any{}
		for _, e := range log() {
			if (q.Get("action") == "" || e["action"] == q.Get("action")) && (q.Get("exec") == "" || e["exec"] == q.Get("exec")) &&
				(q.Get("q") == "" || e["id"] == q.Get("q") || e["parent"] == q.Get("q")) {
				items = append(items, e)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return &client.Client{Server: srv.URL}
}

func runLine(t *testing.T, args ...string) string {
	t.Helper()
	cmd := New(serve(t))
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(args, err)
	}
	return out.String()
}

// TestCalls: one row a call, with the arguments of its attempt and the reason of its result.
func TestCalls(t *testing.T) {
	text := runLine(t, "calls", "--user", "ann", "--since", "7d", "--denied")
	if lines := strings.Split(strings.TrimSpace(text), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "mail__send") || !strings.Contains(lines[1], `{"to":"=cmd()"}`) ||
		!strings.Contains(lines[1], "denied") || !strings.Contains(lines[1], "rule no-mail") || !strings.Contains(lines[1], "b1") {
		t.Error(text)
	}
	text = runLine(t, "calls", "--format", "csv")
	if !strings.Contains(text, `t1,e1,shop__list,"{""n"":1}",ok,,7,a1`) || !strings.HasPrefix(text, "time,user,actor,thread,exec,tool,arguments,outcome,reason,ms,id\r\n") {
		t.Error(text)
	}
}

// TestShow: the tree of an exec is the same from each of its records.
func TestShow(t *testing.T) {
	for _, id := range []string{"x1", "b1", "a2", "e1"} {
		text := runLine(t, "show", id)
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if len(lines) != 6 || !strings.Contains(lines[0], "exec  make report  exited in 90 ms") || !strings.HasPrefix(lines[2], "  ") || !strings.Contains(text, "mail__send  denied  (rule no-mail") {
			t.Errorf("%s:\n%s", id, text)
		}
		if strings.Count(text, "←") != 1 {
			t.Errorf("%s:\n%s", id, text)
		}
	}
}

// TestReport: the page has the figures, runs no script, and names no other file.
func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.html")
	runLine(t, "report", "-o", file)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, want := range []string{"<b>2</b>tool calls", "<b>1</b>denied", "<b>1</b>commands", "mail__send", "&lt;script&gt;", "<rect class=\"denied\""} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, bad := range []string{"<script", "src=", "href=", "url(", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("it has %q", bad)
		}
	}
}
