package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// sumScript needs the template data. It reads and writes files of the thread, calls a tool, and has a secret.
const sumScript = `import os, sys
import pandas
sys.path.insert(0, "/mnt/code-api")
from helpers.call_mcp_tool import call_mcp_tool
total = pandas.read_csv("/mnt/user-data/workspace/in.csv").n.sum()
open("/mnt/user-data/outputs/sum.txt", "w").write(f"{total}\n")
print(total, repr(call_mcp_tool("letters__read", {})), len(os.environ["TOKEN"]), os.path.exists("/mnt/plugins"))
`

// waitScript says that it runs, and then waits.
const waitScript = `import sys, time
open("/mnt/user-data/outputs/" + sys.argv[1], "w").close()
time.sleep(600)
`

// running counts the processes of this machine that have a text in their command line.
func running(t *testing.T, text string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range all {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), text) { // else it ended meanwhile
			n++
		}
	}
	return n
}

// TestSkillTemplate: the list of skills names a template for a skill's scripts. In a thread of another template they run in a
// second sandbox, which has the thread's files, tools and secrets, and which ends with the thread, and with its server.
func TestSkillTemplate(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"oci", "docker"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			needDriver(t, driver, "runc")
			dir := sharedFolder(t)
			writeFiles(t, dir, map[string]string{
				"skills.py": skillServer, "sum/SKILL.md": fmt.Sprintf(skillText, "sum"), "sum/sum.py": sumScript, "sum/wait.py": waitScript,
				"skills.json": `{"sources": [{"type": "dir", "path": "sum", "template": "data", "env_secrets": {"TOKEN": "SUM_TOKEN"}}]}`,
			})
			s := builtIn(t, options{
				driver: driver, runtime: "runc", env: []string{"SKERRY_SKILL_SOURCES=" + filepath.Join(dir, "skills.json")},
				extensions: fmt.Sprintf(`{"mcpServers":{"letters":{"command":"/usr/bin/python3","args":["-u",%q]}}}`, filepath.Join(dir, "skills.py")),
			})
			if a := s.do("PUT", "/api/secrets/SUM_TOKEN", map[string]any{"value": "sum-0123456789", "exec": true}); a.status >= 300 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if out := s.cli("skills", "list"); !strings.Contains(out, "in data") {
				t.Errorf("the command line: %s", out)
			}
			var sk struct{ Template string }
			if s.do("GET", "/api/skills/sum", nil).into(t, &sk); sk.Template != "data" {
				t.Errorf("%+v", sk)
			}
			s.sums(t)
			s.deletedDuringScript(t)
			s.killedDuringScript(t)
		})
	}
}

// sums runs a script that needs another template than its thread has.
func (s *server) sums(t *testing.T) {
	t.Helper()
	s.ok("t", "printf 'n\\n40\\n2\\n' > in.csv")
	if r := s.exec("t", "python3 -c 'import pandas'"); r.ExitCode == nil || *r.ExitCode == 0 {
		t.Errorf("the thread's own sandbox has pandas: %+v", r)
	}
	own := s.sandboxOf("t")
	r := s.run("t", "skills/sum/run", map[string]any{"script": "sum.py"})
	if r.Stdout != "42 '' 14 True\n" || len(r.Files) != 1 || r.Files[0].Path != "/mnt/user-data/outputs/sum.txt" {
		t.Errorf("%+v", r)
	}
	if got := s.ok("t", "cat /mnt/user-data/outputs/sum.txt; echo more >> /mnt/user-data/outputs/sum.txt"); got != "42\n" {
		t.Errorf("what the script wrote: %q", got)
	}
	if now := s.sandboxOf("t"); now != own {
		t.Errorf("the thread's own sandbox is %s, it was %s", now, own)
	}
	actions := map[any]int{}
	for _, phase := range []string{"attempt", "result"} {
		for _, rec := range s.records("exec="+r.ExecID, phase) {
			actions[fmt.Sprint(rec["action"], " ", phase)]++
			if rec["action"] == "skill_run" && phase == "attempt" && (rec["sandbox"] == own || !strings.Contains(fmt.Sprint(rec["detail"]), "a second sandbox of the template data")) {
				t.Errorf("the record of the attempt: %v", rec)
			}
		}
	}
	if actions["skill_run attempt"] != 1 || actions["skill_run result"] != 1 || actions["tool_call result"] != 1 {
		t.Errorf("records: %v", actions)
	}
	if list := s.do("GET", "/api/threads/t/execs", nil); !strings.Contains(string(list.body), r.ExecID) {
		t.Errorf("the thread's execs: %s", list.body)
	}
}

// waitingScript starts a script that does not end, and returns a text that is in its command line.
func (s *server) waitingScript(t *testing.T, thread string) (text string, end <-chan result) {
	t.Helper()
	text = "token-" + uuid.NewString()
	done := make(chan result, 1)
	go func() {
		var r result
		if a, err := s.request("POST", "/api/threads/"+thread+"/skills/sum/run", map[string]any{"script": "wait.py", "args": []string{text}, "timeout_s": 500}); err == nil && a.status == 200 {
			a.into(t, &r)
		}
		done <- r
	}()
	eventually(t, "the script runs", func() bool {
		return s.do("GET", "/api/threads/"+thread+"/files/content?path=/mnt/user-data/outputs/"+text, nil).status == 200
	})
	if running(t, text) == 0 {
		t.Error("no process of the script is seen, so none could be missed")
	}
	return text, done
}

// deletedDuringScript deletes a thread while a script runs in its second sandbox.
func (s *server) deletedDuringScript(t *testing.T) {
	t.Helper()
	s.ok("d", "true")
	text, done := s.waitingScript(t, "d")
	var list struct {
		Items []struct {
			ExecID string `json:"exec_id"`
			Status string
		}
	}
	s.do("GET", "/api/threads/d/execs", nil).into(t, &list)
	id := ""
	for _, e := range list.Items {
		if e.Status == "running" {
			id = e.ExecID
		}
	}
	if a := s.do("DELETE", "/api/threads/d", nil); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := running(t, text); n != 0 {
		t.Errorf("%d processes of the script are left", n)
	}
	<-done
	eventually(t, "the script has its end", func() bool { return s.ends(id) > 0 })
	if n := s.ends(id); n != 1 {
		t.Errorf("it has %d ends", n)
	}
}

// ends counts the terminal records of a script.
func (s *server) ends(id string) (n int) {
	for _, r := range s.records("exec="+id, "result") {
		if r["action"] == "skill_run" {
			n++
		}
	}
	return n
}

// killedDuringScript ends the server as a crash does while a script runs in the second sandbox of a thread. The next server
// goes on with the thread's own.
func (s *server) killedDuringScript(t *testing.T) {
	t.Helper()
	s.ok("k", "echo kept > kept")
	own := s.sandboxOf("k")
	text, done := s.waitingScript(t, "k")
	s.kill()
	<-done
	if running(t, text) == 0 {
		t.Error("the script ended with the server, so nothing is shown")
	}
	s.boot()
	if n := running(t, text); n != 0 {
		t.Errorf("%d processes of the script are left", n)
	}
	if got, now := s.ok("k", "cat kept"), s.sandboxOf("k"); got != "kept\n" || now != own {
		t.Errorf("the thread goes on with %q in %s, it was %s", got, now, own)
	}
	folders, err := filepath.Glob(filepath.Join(s.data, "run", "skerry-*"))
	must(t, err)
	for _, f := range folders {
		if name := filepath.Base(f); name != own && name != s.sandboxOf("t") {
			t.Errorf("of a sandbox that is gone: %s", f)
		}
	}
	var list struct {
		Items []struct{ Action, Status string }
	}
	s.do("GET", "/api/threads/k/execs", nil).into(t, &list)
	lost := false
	for _, e := range list.Items {
		lost = lost || e.Action == "skill_run" && e.Status == "lost"
	}
	if !lost {
		t.Errorf("the script is not lost: %+v", list)
	}
	if r := s.run("k", "skills/sum/run", map[string]any{"script": "wait.py", "args": []string{"again"}, "timeout_s": 1}); r.Status != "timeout" {
		t.Errorf("the next script: %+v", r)
	}
}
