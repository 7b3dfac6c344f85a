package main

import (
	"encoding/json"
	"strings"
	"testing"

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
		Arguments: json.RawMessage(strings.ReplaceAll(string(args), `\u001b`, "\x1b")), Decision: &sandbox.ApprovalDecision{By: evil, Reason: evil},
	}
	for _, arguments := range []json.RawMessage{a.Arguments, args, nil} {
		a.Arguments = arguments
		var out strings.Builder
		if err := (&apiClient{}).showApproval(&out, a); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\x07\u009b\u202e\r") || !strings.Contains(out.String(), "tool       abc") {
			t.Errorf("%q", out.String())
		}
	}
}
