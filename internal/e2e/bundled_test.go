package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bundled says in which template each skill of the repository runs, and which of its tests run there.
var bundled = map[string]struct{ skills, tests []string }{
	"base": {
		[]string{"csv-profile", "research-notes", "explore-table", "svg-charts", "review-changes", "review-python"},
		[]string{"skills/tests/test_csv_profile.py", "skills/tests/test_research_notes.py", "plugins/tests/test_data_analysis.py", "plugins/tests/test_code_review.py"},
	},
	"data":   {[]string{"charts"}, []string{"skills/tests/test_charts.py"}},
	"office": {[]string{"documents", "spreadsheets", "pdf"}, []string{"skills/tests/test_documents.py", "skills/tests/test_spreadsheets.py", "skills/tests/test_pdf.py"}},
}

// TestBundledSkills: each skill that comes with the server can run in the template that it is for, and its tests pass
// there, on the files that they make, with the scripts where agents find them. None is skipped.
func TestBundledSkills(t *testing.T) {
	t.Parallel()
	needDriver(t, "oci", "runc")
	s := builtIn(t, options{driver: "oci", runtime: "runc"})
	for template, want := range bundled {
		t.Run(template, func(t *testing.T) {
			if a := s.do("PUT", "/api/threads/"+template+"/sandbox", map[string]any{"template": template, "wait_s": 120}); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			for _, file := range append([]string{"skills/tests/on_files.py"}, want.tests...) {
				text, err := os.ReadFile(filepath.Join("../..", file))
				must(t, err)
				if a := s.do("PUT", "/api/threads/"+template+"/files", map[string]any{"path": "/mnt/user-data/workspace/" + filepath.Base(file), "content": string(text)}); a.status/100 != 2 {
					t.Fatalf("%s: %d %s", file, a.status, a.body)
				}
			}
			for _, file := range want.tests {
				name := strings.TrimSuffix(filepath.Base(file), ".py")
				r := s.run(template, "exec", map[string]any{"timeout_s": 290, "command": "SKILLS=/mnt/skills/public PLUGINS=/mnt/plugins SKILLS_WHOLE=1 python3 -B -m unittest " + name})
				if r.ExitCode == nil || *r.ExitCode != 0 || !strings.Contains(r.Stderr, "\nOK\n") { // with skipped ones it says so behind OK
					t.Errorf("%s: %+v", name, r)
				}
			}
			s.runnableIn(t, template, want.skills)
		})
	}
}

// runnableIn waits until the template is probed, and looks at what it says of skills.
func (s *server) runnableIn(t *testing.T, template string, names []string) {
	t.Helper()
	states := map[string]string{}
	eventually(t, "the template "+template+" is probed", func() bool {
		var list struct{ Skills []probedSkill }
		s.do("GET", "/api/skills?template="+template, nil).into(t, &list)
		for _, k := range list.Skills {
			states[k.Name] = fmt.Sprintf("%s %v %v", k.Runnable.Template, k.Runnable.Missing, k.Runnable.Unsure)
		}
		return !strings.HasPrefix(states["csv-profile"], "unknown")
	})
	for _, name := range names {
		if states[name] != "yes [] []" {
			t.Errorf("%s in %s: %s", name, template, states[name])
		}
	}
}

// TestPluginsFolder: the plugins of plugins.path are there for every user, in sandboxes that run, within a second of
// a change, and a broken one hides none. Their servers are left out when the setting says so.
func TestPluginsFolder(t *testing.T) {
	t.Parallel()
	needDriver(t, "oci", "runc")
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, "installed", name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	write("greet/commands/hello.md", "Greet $ARGUMENTS in ${CLAUDE_PLUGIN_ROOT}")
	write("greet/skills/greeting/SKILL.md", fmt.Sprintf(skillText, "greeting"))
	write("greet/skills/greeting/who.sh", "#!/bin/sh\necho first\n")
	write("greet/.mcp.json", `{"mcpServers":{"own":{"command":"python3","args":["x.py"]}}}`)
	write("torn/.claude-plugin/plugin.json", "{")
	s := start(t, options{driver: "oci", runtime: "runc", args: []string{"--auth", "auto"}, env: []string{"SKERRY_PLUGINS_PATH=" + dir, "SKERRY_PLUGINS_AUTO_MERGE_MCP=false"}})
	var made struct{ Secret string }
	s.do("POST", "/api/keys", map[string]any{"name": "backend", "user": "root", "admin": true, "act_for": true}).into(t, &made)
	s.key, s.user = made.Secret, "alice"
	t.Cleanup(func() { s.user = "alice" })
	if got := s.ok("a", "ls /mnt/plugins; sh /mnt/plugins/greet/skills/greeting/who.sh"); got != "greet\nfirst\n" {
		t.Errorf("in the sandbox: %q", got)
	}
	if r := s.run("a", "skills/greeting/run", map[string]any{"script": "who.sh"}); r.Stdout != "first\n" {
		t.Errorf("a script of its skill: %+v", r)
	}
	var msg struct{ Message string }
	s.do("POST", "/api/threads/a/commands/greet/hello", map[string]any{"args": "Ada"}).into(t, &msg)
	if msg.Message != "Greet Ada in /mnt/plugins/greet" {
		t.Errorf("%q", msg.Message)
	}
	var one struct {
		Shared  bool
		Source  struct{ Kind string }
		Servers []struct{ State, Reason string } `json:"mcp_servers"`
	}
	s.do("GET", "/api/plugins/greet", nil).into(t, &one)
	if !one.Shared || one.Source.Kind != "server" || len(one.Servers) != 1 || !strings.Contains(one.Servers[0].Reason, "auto_merge_mcp") {
		t.Errorf("%+v", one)
	}
	if a := s.do("GET", "/api/threads/a/servers", nil); strings.Contains(string(a.body), "plugin:greet") {
		t.Errorf("its server is in the tool set: %s", a.body)
	}
	if a := s.do("DELETE", "/api/plugins/greet", nil); a.status != 403 {
		t.Errorf("removed: %d %s", a.status, a.body)
	}

	// A program in the sandbox sees the change: no exec starts, which would look by itself.
	watch := s.do("POST", "/api/threads/a/exec", map[string]any{"background": true, "timeout_s": 300, "command": `cd /mnt/user-data/workspace; for i in $(seq 3000); do
  { ls /mnt/plugins; sh /mnt/plugins/greet/skills/greeting/who.sh; } 2>&1 | tr '\n' ' ' > seen.new; mv seen.new seen; sleep 0.02
done`})
	if watch.status != 200 {
		t.Fatalf("%d %s", watch.status, watch.body)
	}
	seen := func(want string) {
		t.Helper()
		eventually(t, "the sandbox shows "+want, func() bool {
			return strings.Contains(string(s.do("GET", "/api/threads/a/files?path=/mnt/user-data/workspace/seen", nil).body), `"content":"`+want+`"`)
		})
	}
	seen("greet first ")
	write("greet/skills/greeting/who.sh", "#!/bin/sh\necho second\n")
	seen("greet second ")
	write("more/commands/x.md", "x")
	seen("greet more second ")
	must(t, os.RemoveAll(filepath.Join(dir, "installed/more")))
	seen("greet second ")

	// Alice switches it off for herself, extensions_config.json for everybody.
	if a := s.do("PUT", "/api/plugins/greet", map[string]any{"enabled": false}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	bob := *s
	bob.user = "bob"
	if got := s.ok("a", "ls /mnt/plugins"); got != "" {
		t.Errorf("alice switched it off and sees %q", got)
	}
	if got := bob.ok("b", "ls /mnt/plugins"); got != "greet\n" {
		t.Errorf("bob sees %q", got)
	}
	must(t, os.WriteFile(filepath.Join(s.data, "extensions_config.json"), []byte(`{"plugins":{"greet":{"enabled":false}}}`), 0o600))
	if got := bob.ok("b", "ls /mnt/plugins"); got != "" {
		t.Errorf("switched off for all, bob sees %q", got)
	}
	if a := bob.do("DELETE", "/api/threads/b", nil); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
