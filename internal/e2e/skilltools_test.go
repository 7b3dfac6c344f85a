package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSkillScript: a script of a skill calls a tool over the bridge, with the audit of any exec. Neither its
// output nor the audit log shows the values of its environment. The template is probed.
func TestSkillScript(t *testing.T) {
	t.Parallel()
	s := start(t, options{extensions: mcpServers(t, sharedFolder(t))})
	s.connect("connects")
	const secret = "sk-live-0123456789"
	script := `import os, sys, base64
sys.path.insert(0, "/mnt/code-api")
from helpers.call_mcp_tool import call_mcp_tool
key = os.environ["VALUE"]
print("key", key[:5], end="", flush=True)
print(key[5:], base64.b64encode(b"user:" + key.encode()).decode(), file=sys.stdout)
print(call_mcp_tool("everything__echo", {"message": "the key is " + key}))
`
	made := s.do("POST", "/api/threads/sk/skills", map[string]any{
		"name": "teller", "description": "Tells a key", "body": "Run scripts/tell.py and `tidy5 x`.", "files": map[string]string{"scripts/tell.py": script},
	})
	if made.status != 201 {
		t.Fatalf("%d %s", made.status, made.body)
	}
	r := s.run("sk", "skills/teller/run", map[string]any{"script": "scripts/tell.py", "env": map[string]string{"VALUE": secret}, "redact_env": true})
	if r.ExitCode == nil || *r.ExitCode != 0 || !strings.HasPrefix(r.Stdout, "key [redacted] ") || !strings.Contains(r.Stdout, "the key is [redacted]") || strings.Contains(r.Stdout, "0123456789") {
		t.Errorf("%+v", r)
	}
	runs := s.records("action=skill_run&exec="+r.ExecID, "attempt")
	calls := s.records("action=tool_call&exec="+r.ExecID, "attempt")
	if len(runs) != 1 || len(calls) != 1 || calls[0]["parent"] != runs[0]["id"] || calls[0]["subject"] != "everything__echo" {
		t.Fatalf("runs %v, calls %v", runs, calls)
	}
	// Its value is hidden where it is given. What was sent to a tool is told: a caller chooses its environment.
	if args := fmt.Sprint(runs[0]["args"]); strings.Contains(args, secret) || !strings.Contains(args, "[redacted]") {
		t.Errorf("the record of the run tells the secret, or nothing of it: %s", args)
	}
	if args := fmt.Sprint(calls[0]["args"]); !strings.Contains(args, secret) {
		t.Errorf("the record of the call does not tell what was sent: %s", args)
	}
	var active struct {
		Content   string
		Resources []string
	}
	s.do("POST", "/api/threads/sk/skills/teller/activate", nil).into(t, &active)
	if !strings.HasPrefix(active.Content, `<skill_content name="teller">`) || !slices.Equal(active.Resources, []string{"scripts/tell.py"}) {
		t.Errorf("%+v", active)
	}
	if got := s.ok("sk", "cat /mnt/skills/virtual/teller/SKILL.md"); !strings.Contains(got, "Tells a key") {
		t.Errorf("in the sandbox: %s", got)
	}
	if got := s.ok("sk", "ls /mnt/user-data/workspace"); got != "" {
		t.Errorf("in the workspace: %s", got)
	}
	s.probed(t)
}

type probedSkill struct {
	Name     string
	Runnable struct {
		Template string
		Missing  []string
		Unsure   []string
	}
}

// probed waits for the probe of the template, and looks at what it says of a skill of ours.
func (s *server) probed(t *testing.T) {
	t.Helper()
	var list struct{ Skills []probedSkill }
	deadline := time.Now().Add(2 * time.Minute)
	for {
		s.do("GET", "/api/skills", nil).into(t, &list)
		i := slices.IndexFunc(list.Skills, func(k probedSkill) bool { return k.Name == "csv-profile" })
		if i >= 0 && list.Skills[i].Runnable.Template == "yes" {
			break
		}
		if time.Now().After(deadline) {
			text, err := json.Marshal(list)
			t.Fatalf("csv-profile: %s, %v", text, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	// What the probe needed is gone.
	eventually(t, "no thread of the probe", func() bool {
		return !strings.Contains(string(s.do("GET", "/api/threads", nil).body), "probe-")
	})
}
