package policy

import (
	"context"
	"strings"
	"testing"
)

// TestAllowedTools: which entries of allowed-tools name a tool, and to which calls a rule about them applies.
func TestAllowedTools(t *testing.T) {
	rules, err := Parse([]byte(`version: 1
default: allow
rules:
  - {id: limit, effect: deny, match: {allowed_tools: false}}
  - {id: seen, effect: require_approval, match: {allowed_tools: true}, when: 'size(allowed_tools) > 1'}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		skill, server, tool string
		allowed             []string
		want                Effect
	}{
		"printed":                  {"s", "my files", "read", []string{"my_files__read"}, Allow},
		"as Claude writes it":      {"s", "my files", "read", []string{"mcp__my_files__read"}, Allow},
		"with a colon":             {"s", "my files", "read", []string{"my files:read"}, Allow},
		"a whole server":           {"s", "files", "read", []string{"mcp__files"}, Allow},
		"a pattern":                {"s", "files", "read", []string{"files__r?a*"}, Allow},
		"two":                      {"s", "files", "read", []string{"Bash", "files__read"}, RequireApproval},
		"another tool":             {"s", "files", "write", []string{"files__read"}, Deny},
		"another server":           {"s", "other", "read", []string{"files__read", "mcp__files"}, Deny},
		"a bare name":              {"s", "files", "read", []string{"read", "Read"}, Deny},
		"brackets":                 {"s", "files", "read", []string{"files__read(a.txt)"}, Deny},
		"another case":             {"s", "files", "read", []string{"Files__Read"}, Deny},
		"a name that looks like":   {"s", "files", "rеad", []string{"files__r*"}, Deny},
		"a prefix of the server":   {"s", "files2", "read", []string{"mcp__files"}, Deny},
		"a skill without a list":   {"s", "files", "write", nil, Allow},
		"no script of a skill":     {"", "files", "write", []string{"files__read"}, Allow},
		"the agent, without lists": {"", "files", "write", nil, Allow},
	} {
		r := Sample{Server: c.server, Tool: c.tool, Skill: c.skill, AllowedTools: c.allowed}.Request()
		d := (&Set{Global: rules}).Decide(context.Background(), r)
		if d.Effect() != c.want {
			t.Errorf("%s: %s, want %s", name, d.Effect(), c.want)
		}
	}
	// What changes from call to call hides no tool from lists.
	if (&Set{Global: rules}).Global.hides(&Request{Kind: KindToolCall, Server: "files", Tool: "write"}) {
		t.Error("a rule about skills hides a tool from everybody")
	}
	_, err = Parse([]byte("version: 1\ndefault: allow\nrules:\n  - {id: x, effect: deny, match: {kind: [tool_call, skill_run], allowed_tools: false}}\n"))
	if err == nil || !strings.Contains(err.Error(), "allowed_tools: is of tool calls") {
		t.Errorf("of runs: %v", err)
	}
}
