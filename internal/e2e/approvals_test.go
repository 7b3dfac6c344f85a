package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// askFirst are rules by which one tool wants an approval.
const askFirst = `version: 1
default: allow
rules:
  - id: ask-first
    effect: require_approval
    match: {server: everything, tool: echo}
    reason: somebody has to agree
`

const webhookSecret = "a secret that the two of them share, and nobody else"

// request is a call that waits, as the API shows it.
type request struct {
	ID        string          `json:"id"`
	State     string          `json:"state"`
	Tool      string          `json:"tool"`
	Thread    string          `json:"thread_id"`
	Exec      string          `json:"exec_id"`
	Why       string          `json:"why"`
	Arguments json.RawMessage `json:"arguments"`
	Record    string          `json:"record"`
	UsedAt    *time.Time      `json:"used_at"`
	Decision  *struct {
		By, How, Scope, Reason string
	} `json:"decision"`
}

// undecided returns the request of a thread that is to be decided, once there is exactly one.
func (s *server) undecided(thread string) (r request) {
	s.t.Helper()
	eventually(s.t, "a call of "+thread+" waits", func() bool {
		var list struct{ Items []request }
		s.do("GET", "/api/approvals?state=pending&thread="+thread, nil).into(s.t, &list)
		if len(list.Items) != 1 {
			return false
		}
		r = list.Items[0]
		return true
	})
	return r
}

func (s *server) decide(id, decision, more string) answer {
	s.t.Helper()
	body := map[string]any{}
	must(s.t, json.Unmarshal(fmt.Appendf(nil, `{"decision":%q%s}`, decision, more), &body))
	return s.do("POST", "/api/approvals/"+id, body)
}

// echo is a program that calls the tool which wants an approval.
func echo(message string) string {
	return fmt.Sprintf("print(call_mcp_tool('everything__echo', {'message': '%s'}))", message)
}

// inBackground runs code without waiting for it.
func (s *server) inBackground(thread, language, code string, timeout int) <-chan result {
	s.t.Helper()
	ch := make(chan result, 1)
	go func() {
		var r result
		a, err := s.request("POST", "/api/threads/"+thread+"/execute_code", map[string]any{"language": language, "code": code, "timeout": timeout})
		if err == nil {
			err = json.Unmarshal(a.body, &r)
		}
		if err != nil {
			r.Stderr = err.Error()
		}
		ch <- r
	}()
	return ch
}

func ended(t *testing.T, ch <-chan result) result {
	t.Helper()
	select {
	case r := <-ch:
		return r
	case <-time.After(2 * time.Minute):
		t.Fatal("the code still waits")
	}
	return result{}
}

// agreeable is a webhook that approves calls whose arguments hold a word, and only hears of the others.
func agreeable(t *testing.T) *httptest.Server {
	sign := func(id, at string, body []byte) string {
		mac := hmac.New(sha256.New, []byte(webhookSecret))
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		id := r.Header.Get("webhook-id")
		if err != nil || r.Header.Get("webhook-signature") != sign(id, r.Header.Get("webhook-timestamp"), body) {
			t.Errorf("a bad signature: %v %s", err, body)
		}
		if !strings.Contains(string(body), "by webhook") {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer, at := []byte(`{"decision":"approve","by":"eve"}`), strconv.FormatInt(time.Now().Unix(), 10)
		w.Header().Set("webhook-id", id)
		w.Header().Set("webhook-timestamp", at)
		w.Header().Set("webhook-signature", sign(id, at, answer))
		_, _ = w.Write(answer)
	}))
	t.Cleanup(web.Close)
	return web
}

// TestApprovals: a call that wants an approval waits for it, from whomever and however it comes; what is denied fails with the
// reason; a decision outlives its server.
func TestApprovals(t *testing.T) {
	t.Parallel()
	block := docblock.Marked(t)[0]
	t.Run("docker", func(t *testing.T) {
		o := options{driver: "docker"}
		o.extensions, o.policy = mcpServers(t, sharedFolder(t)), askFirst
		o.env = append(o.env, "SKERRY_APPROVALS_WEBHOOK_URL="+agreeable(t).URL, "SKERRY_APPROVALS_WEBHOOK_SECRET="+webhookSecret)
		s := start(t, o)
		s.connect("connects")

		// By the API, with all that a person needs to decide; the exec's events say that it waits.
		run := s.inBackground("api", "python", echo("hello"), 30)
		a := s.undecided("api")
		if a.Tool != "everything__echo" || !strings.Contains(a.Why, "ask-first") || !strings.Contains(string(a.Arguments), "hello") || a.Exec == "" {
			t.Errorf("%+v", a)
		}
		if got := s.decide(a.ID, "approve", `,"reason":"fine"`); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if r := ended(t, run); r.Stdout != "Echo: hello\n" || len(r.ToolsCalled) != 1 || r.ToolsCalled[0].Status != "ok" {
			t.Errorf("%+v", r)
		}
		if got := s.decide(a.ID, "deny", ""); got.status != 409 {
			t.Errorf("decided twice: %d %s", got.status, got.body)
		}
		events := string(s.do("GET", "/api/threads/api/execs/"+a.Exec+"/events", nil).body)
		if !strings.Contains(events, "event: approval_required\ndata: {\"id\":\""+a.ID) || !strings.Contains(events, "event: approval_decided") {
			t.Errorf("events:\n%s", events)
		}
		calls, requests := s.records("action=tool_call&exec="+a.Exec, "attempt"), s.records("action=approval_request&exec="+a.Exec, "result")
		decisions := s.records("action=approval_decision&exec="+a.Exec, "attempt")
		// The second decision, which did not count, is recorded too.
		if len(calls) != 1 || len(requests) != 1 || len(decisions) != 2 || requests[0]["parent"] != calls[0]["id"] || decisions[0]["parent"] != requests[0]["id"] {
			t.Errorf("records: %v, %v, %v", calls, requests, decisions)
		}

		// Denied: code sees who and why, as an error with a code.
		run = s.inBackground("deny", "typescript", `try { await callMCPTool('everything__echo', { message: 'x' }) } catch (e) { console.log(e.name, e.code, e.status, e.message) }`, 30)
		s.decide(s.undecided("deny").ID, "deny", `,"reason":"not on a Saturday"`)
		if r := ended(t, run); !strings.HasPrefix(r.Stdout, "MCPToolError forbidden 403 everything__echo: denied by ") || !strings.Contains(r.Stdout, ": not on a Saturday") || r.ToolsCalled[0].Status != "denied" {
			t.Errorf("%+v", r)
		}

		// By the command line, for the thread: the next call of it does not wait.
		run = s.inBackground("cli", "python", echo("by \\x1b[31mcli"), 30)
		a = s.undecided("cli")
		if out := s.cli("approvals", "list", "--state", "pending"); !strings.Contains(out, a.ID) || strings.Contains(out, "\x1b") {
			t.Errorf("%s", out)
		}
		if out := s.cli("approvals", "show", a.ID); !strings.Contains(out, "everything__echo") || !strings.Contains(out, "cli") || strings.Contains(out, "\x1b") {
			t.Errorf("%q", out)
		}
		s.cli("approvals", "approve", a.ID, "--scope", "thread", "--reason", "ok")
		if r := ended(t, run); !strings.Contains(r.Stdout, "cli") {
			t.Errorf("%+v", r)
		}
		if r := ended(t, s.inBackground("cli", "python", echo("again"), 30)); r.Stdout != "Echo: again\n" {
			t.Errorf("%+v", r)
		}

		// As docs/approvals.md says, with these arguments for good.
		run = s.inBackground("doc", "python", echo("as in the document"), 30)
		s.undecided("doc")
		s.shell().run(block, "everything__echo", `"scope":"arguments","reason":"as agreed"`)
		ended(t, run)
		if r := ended(t, s.inBackground("doc", "python", echo("as in the document"), 30)); r.Stdout != "Echo: as in the document\n" {
			t.Errorf("%+v", r)
		}

		// By the webhook.
		if r := ended(t, s.inBackground("web", "python", echo("by webhook"), 30)); r.Stdout != "Echo: by webhook\n" {
			t.Errorf("%+v", r)
		}

		// An exec of 2 s waits for 5 s and ends well.
		run = s.inBackground("slow", "python", echo("late"), 2)
		a = s.undecided("slow")
		time.Sleep(5 * time.Second)
		s.decide(a.ID, "approve", "")
		if r := ended(t, run); r.Status != "exited" || r.Stdout != "Echo: late\n" {
			t.Errorf("%+v", r)
		}

		// The agent's own call waits too, and a client of /mcp hears of it.
		approvedByProgress(t, s)

		// A server is killed in the middle. The decision, made after, is good for the same call, once.
		s.inBackground("crash", "python", echo("crash"), 30)
		a = s.undecided("crash")
		s.kill()
		s.boot()
		s.connect("crash")
		if got := s.undecided("crash"); got.ID != a.ID {
			t.Fatalf("another request: %+v", got)
		}
		s.decide(a.ID, "approve", "")
		if r := ended(t, s.inBackground("crash", "python", echo("crash"), 30)); r.Stdout != "Echo: crash\n" {
			t.Errorf("%+v", r)
		}
		run = s.inBackground("crash", "python", echo("crash"), 30)
		again := s.undecided("crash")
		if again.ID == a.ID {
			t.Error("the decision was used twice")
		}
		// No request waits whose exec is killed.
		s.do("DELETE", "/api/threads/crash/execs/"+again.Exec, nil)
		ended(t, run)
		eventually(t, "the request is cancelled", func() bool {
			s.do("GET", "/api/approvals/"+again.ID, nil).into(t, &again)
			return again.State == "cancelled"
		})
	})
}

// approvedByProgress calls the tool as a client of /mcp that listens, and approves what its progress names.
func approvedByProgress(t *testing.T, s *server) {
	t.Helper()
	var once sync.Once
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if _, id, ok := strings.Cut(r.Params.Message, "waiting for the approval "); ok {
				once.Do(func() {
					go func() {
						if a, err := s.request("POST", "/api/approvals/"+id, map[string]any{"decision": "approve"}); err != nil || a.status != 200 {
							t.Errorf("%v %s", err, a.body)
						}
					}()
				})
			}
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.url + "/mcp/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close() //nolint:errcheck // the test is over
	p := &mcp.CallToolParams{Name: "everything__echo", Arguments: map[string]any{"message": "by progress"}}
	p.SetProgressToken("p1")
	res, err := session.CallTool(ctx, p)
	if err != nil || res.IsError || len(res.Content) == 0 {
		t.Fatalf("%+v, %v", res, err)
	}
}

// TestApprovalsRunOut: a request without a decision is denied in time, and code that computes beside a wait gains no more than the
// bound of all waits.
func TestApprovalsRunOut(t *testing.T) {
	whole(t, TestApprovals)
	t.Parallel()
	t.Run("oci", func(t *testing.T) {
		o := options{driver: "oci"}
		o.extensions, o.policy = mcpServers(t, sharedFolder(t)), askFirst
		o.env = append(o.env, "SKERRY_APPROVALS_TIMEOUT=4s", "SKERRY_APPROVALS_WAIT_PER_EXEC=2s")
		s := start(t, o)
		s.connect("connects")
		s.ok("t", "true")
		r := ended(t, s.inBackground("t", "python", `
from helpers.call_mcp_tool import MCPToolError
try:
    call_mcp_tool("everything__echo", {"message": "x"})
except MCPToolError as e:
    print(e.code, e.status, e.message)
`, 60))
		if r.Stdout != "timeout 504 this needs an approval, and no decision came within 4s\n" || r.ToolsCalled[0].Status != "timeout" {
			t.Errorf("%+v", r)
		}
		began := time.Now()
		r = ended(t, s.inBackground("t", "python", `
import threading
from helpers.call_mcp_tool import MCPToolError
def ask():
    while True:
        try: call_mcp_tool("everything__echo", {"message": "x"})
        except MCPToolError: pass
threading.Thread(target=ask, daemon=True).start()
while True: pass
`, 2))
		if r.Status != "timeout" {
			t.Errorf("a busy loop beside a wait: %+v", r)
		}
		t.Logf("a deadline of 2 s that may be held for 2 s passed after %s", time.Since(began).Round(100*time.Millisecond))
	})
}
