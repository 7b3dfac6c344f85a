package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const skillText = "---\nname: %s\ndescription: says what it is\n---\nbody\n"

// skillsFolder makes a folder of public skills.
func skillsFolder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		skill := filepath.Join(dir, "public", name)
		must(t, os.MkdirAll(skill, 0o755))
		must(t, os.WriteFile(filepath.Join(skill, "SKILL.md"), fmt.Appendf(nil, skillText, name), 0o644))
		must(t, os.WriteFile(filepath.Join(skill, "who.sh"), fmt.Appendf(nil, "#!/bin/sh\necho %s\n", name), 0o755))
	}
	return dir
}

// TestTwoUsersSkills: two users switch on different skills. Each sandbox shows its own user's and no other, and a
// change is seen in the sandbox that runs, whichever client makes it.
func TestTwoUsersSkills(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		o.args = []string{"--auth", "auto"}
		o.env = []string{"SKERRY_SKILLS=" + skillsFolder(t, "one", "two", "both")}
		s := start(t, o)
		var made struct{ Secret string }
		s.do("POST", "/api/keys", map[string]any{"name": "backend", "user": "root", "admin": true, "act_for": true}).into(t, &made)
		s.key, s.user = made.Secret, "alice"
		t.Cleanup(func() { s.user = "alice" }) // destroy deletes hers
		bob := *s
		bob.user = "bob"

		const ls = "cd /mnt/skills && ls -d */* | tr '\\n' ' '"
		s.ok("a", "true")
		bob.ok("b", "true")
		s.turn("two", false)
		bob.turn("one", false)
		// The sandboxes ran before: what was switched is there for the very next exec.
		if got := s.ok("a", ls); got != "public/both public/one " {
			t.Errorf("alice sees %q", got)
		}
		if got := bob.ok("b", ls); got != "public/both public/two " {
			t.Errorf("bob sees %q", got)
		}
		// What a script copies of a skill it can change: the modes of its files are not those of a read-only place.
		const copies = "cp -r /mnt/skills/public/one mine && echo more >> mine/SKILL.md && touch mine/new && tail -1 mine/SKILL.md && " +
			"python3 -c 'import shutil; shutil.copy(\"/mnt/skills/public/one/who.sh\", \"w.sh\"); open(\"w.sh\", \"a\").close()' && ./w.sh"
		if got := s.ok("a", copies); got != "more\none\n" {
			t.Errorf("a copy of a skill: %q", got)
		}
		s.toggled(t)
		s.heldOpen(t)
		if a := bob.do("PUT", "/api/threads/b/sandbox", map[string]any{"skills": []string{"both"}}); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if got := bob.ok("b", ls); got != "public/both " {
			t.Errorf("narrowed to one skill, bob sees %q", got)
		}
		if a := bob.do("GET", "/api/threads/b/files/list?path=/mnt/skills/public", nil); strings.Count(string(a.body), `"path"`) != 1 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := bob.do("POST", "/api/threads/b/skills/two/run", map[string]any{"script": "who.sh"}); a.status != 404 {
			t.Errorf("a skill that the thread does not have runs: %d %s", a.status, a.body)
		}
		if o.driver == "docker" && o.runtime == "runc" { // what is adopted is the same folder everywhere
			s.restarted(t, ls)
			bob.url = s.url
		}
		if a := bob.do("DELETE", "/api/threads/b", nil); a.status != 204 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func (s *server) turn(skill string, on bool) {
	s.t.Helper()
	if a := s.do("PUT", "/api/skills/"+skill, map[string]any{"enabled": on}); a.status != 200 {
		s.t.Fatalf("%s: %d %s", skill, a.status, a.body)
	}
}

// toggled lets a program in the sandbox watch for changes: no exec starts, which would look by itself.
func (s *server) toggled(t *testing.T) {
	t.Helper()
	const watch = `cd /mnt/user-data/workspace; for i in $(seq 3000); do
  ls /mnt/skills/public | tr '\n' ' ' > seen.new; mv seen.new seen; sleep 0.02
done`
	a := s.do("POST", "/api/threads/a/exec", map[string]any{"command": watch, "background": true, "timeout_s": 300})
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var exec struct {
		ID string `json:"exec_id"`
	}
	a.into(t, &exec)
	seen := func(want string) {
		t.Helper()
		from := time.Now()
		eventually(t, "the sandbox shows "+want, func() bool {
			a := s.do("GET", "/api/threads/a/files?path=/mnt/user-data/workspace/seen", nil)
			return strings.Contains(string(a.body), `"content":"`+want+`"`)
		})
		t.Logf("%s: %v", want, time.Since(from))
	}
	seen("both one ")
	s.turn("both", false)
	seen("one ")
	s.turn("both", true)
	seen("both one ")
	// Another process writes the file that is hers.
	file := filepath.Join(s.data, "extensions_config.d/default/alice.json")
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(`{"skills":{"two":{"enabled":true},"both":{"enabled":false}}}`), 0o600))
	seen("one two ")
	must(t, os.WriteFile(file, text, 0o600))
	seen("both one ")
	s.do("DELETE", "/api/threads/a/execs/"+exec.ID, nil)
}

// heldOpen: a process that has a file of a skill open reads on; an exec that starts later does not find it.
func (s *server) heldOpen(t *testing.T) {
	t.Helper()
	const hold = `exec 3< /mnt/skills/public/one/SKILL.md; cd /mnt/skills/public/one; touch /mnt/user-data/workspace/open
while [ -e /mnt/user-data/workspace/open ]; do sleep 0.05; done; cat <&3 | wc -l > /mnt/user-data/workspace/read; ls | wc -l >> /mnt/user-data/workspace/read`
	a := s.do("POST", "/api/threads/a/exec", map[string]any{"command": hold, "background": true, "timeout_s": 300})
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	there := func(name string) bool {
		return s.do("GET", "/api/threads/a/files/stat?path=/mnt/user-data/workspace/"+name, nil).status == 200
	}
	eventually(t, "the file is held open", func() bool { return there("open") })
	s.turn("one", false)
	if got := s.ok("a", "ls /mnt/skills/public; cat /mnt/skills/public/one/SKILL.md 2>/dev/null | wc -l; ls -a /mnt/skills/public | grep -c one || true"); got != "both\n0\n0\n" {
		t.Errorf("a skill that is off while its file is open: %q", got)
	}
	if a := s.do("GET", "/api/threads/a/files?path=/mnt/skills/public/one/SKILL.md", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.ok("a", "rm /mnt/user-data/workspace/open")
	eventually(t, "the process that holds it reads on", func() bool {
		a := s.do("GET", "/api/threads/a/files?path=/mnt/user-data/workspace/read", nil)
		return strings.Contains(string(a.body), `"content":"5\n0\n"`)
	})
	s.turn("one", true)
}

// restarted: a sandbox that another server process adopts shows what holds by then.
func (s *server) restarted(t *testing.T, ls string) {
	t.Helper()
	s.ok("a", "touch /tmp/same")
	s.stop()
	file := filepath.Join(s.data, "extensions_config.d/default/alice.json")
	must(t, os.WriteFile(file, []byte(`{"skills":{"one":{"enabled":false}}}`), 0o600))
	s.boot()
	if got := s.ok("a", "ls /tmp/same; "+ls); got != "/tmp/same\npublic/both public/two " {
		t.Errorf("after a restart alice sees %q", got)
	}
}
