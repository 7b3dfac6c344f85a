package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestApprovalsAreShownPlainly: nothing of a request moves the cursor, sets the title, or hides a line.
func TestApprovalsAreShownPlainly(t *testing.T) {
	evil := "a\x1b[2J\x1b]0;owned\x07\u009b31m\u202eb\rc"
	args, err := json.Marshal(map[string]string{"path": evil})
	if err != nil {
		t.Fatal(err)
	}
	a := sandbox.Approval{
		ID: evil, State: "pending", Tool: evil, Server: evil, Why: evil, User: evil, Thread: evil, Skill: evil, Annotations: json.RawMessage(evil),
		Arguments:       json.RawMessage(strings.ReplaceAll(string(args), `\u001b`, "\x1b")),
		ApprovalOutcome: sandbox.ApprovalOutcome{Decision: &sandbox.ApprovalDecision{By: evil, Reason: evil}},
	}
	for _, arguments := range []json.RawMessage{a.Arguments, args, nil} {
		a.Arguments = arguments
		var out strings.Builder
		if err := showApproval(&client.Client{}, &out, a); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\x07\u009b\u202e\r") || !strings.Contains(out.String(), "tool       abc") {
			t.Errorf("%q", out.String())
		}
	}
}

// TestApprovalsWatch: each request is shown once, with what to type.
func TestApprovalsWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 2 {
			cancel()
		}
		if r.URL.String() != "/api/approvals?state=pending&limit=1000" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = w.Write([]byte(`{"items":[{"id":"a2","tool":"fs__write"},{"id":"a1","tool":"fs__remove"}]}`))
	}))
	defer web.Close()
	var out strings.Builder
	if err := watchApprovals(ctx, &client.Client{Server: web.URL}, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	first, second := strings.Index(out.String(), "approvals approve a1"), strings.Index(out.String(), "approvals approve a2")
	if first < 0 || second < first || strings.Count(out.String(), "fs__write") != 1 {
		t.Errorf("%s", out.String())
	}
}
