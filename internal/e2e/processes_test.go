package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// leftProcess is a process as the list shows it.
type leftProcess struct {
	PID       int       `json:"pid"`
	ExecID    string    `json:"exec_id"`
	Command   string    `json:"command"`
	StartedAt time.Time `json:"started_at"`
	RSSBytes  int64     `json:"rss_bytes"`
}

func (s *server) processes(thread string) []leftProcess {
	s.t.Helper()
	var list struct{ Items []leftProcess }
	s.do("GET", "/api/threads/"+thread+"/processes", nil).into(s.t, &list)
	return list.Items
}

// leaves runs a command with leave_processes.
func (s *server) leaves(thread, command string) (r struct {
	result
	LeftProcesses int `json:"left_processes"`
}) {
	s.t.Helper()
	a := s.do("POST", "/api/threads/"+thread+"/exec", map[string]any{"command": command, "leave_processes": true, "timeout_s": 120, "env": map[string]any{"WORD": "hidden-from-lists"}})
	if a.status != 200 {
		s.t.Fatalf("%s: %d %s", command, a.status, a.body)
	}
	a.into(s.t, &r)
	if r.ExitCode == nil || *r.ExitCode != 0 {
		s.t.Fatalf("%s: %+v", command, r)
	}
	return r
}

// TestLeftProcesses: a server that a command left answers the next command. It is listed, can be ended, and ends with the
// sandbox. Without the option it ends with its command. Its exec's token is of no use.
func TestLeftProcesses(t *testing.T) {
	t.Parallel()
	on(t, []string{"docker/runc", "oci/runsc"}, func(t *testing.T, o options) {
		s := start(t, o)
		const serve = "cd /tmp; echo served > page; nohup python3 -m http.server 8099 >/dev/null 2>&1 & "
		const get = `python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:8099/page", timeout=5).read().decode())' 2>/dev/null || echo none`
		answers := func() bool { return strings.TrimSpace(s.ok("left", get)) == "served" }
		gone := func() bool { return len(s.processes("left")) == 0 && !answers() }

		if s.ok("left", serve); answers() {
			t.Error("without the option the server outlived its command")
		}

		began := time.Now()
		r := s.leaves("left", serve)
		if r.LeftProcesses != 1 || time.Since(began) > time.Minute {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
		eventually(t, "the server answers", answers)
		list := s.processes("left")
		if len(list) != 1 || list[0].ExecID != r.ExecID || !strings.Contains(list[0].Command, "http.server 8099") || list[0].RSSBytes <= 0 || time.Since(list[0].StartedAt).Abs() > 5*time.Minute {
			t.Fatalf("%+v", list)
		}
		if recs := s.records("exec="+r.ExecID, "result"); !strings.Contains(fmt.Sprint(recs), "left 1 processes") {
			t.Errorf("records: %v", recs)
		}
		if a := s.do("DELETE", fmt.Sprintf("/api/threads/left/processes/%d", list[0].PID), nil); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if !gone() {
			t.Error("it outlived its end")
		}
		if a := s.do("DELETE", fmt.Sprintf("/api/threads/left/processes/%d", list[0].PID), nil); a.status != 404 {
			t.Errorf("a second time: %d %s", a.status, a.body)
		}
		if recs := s.records("exec="+r.ExecID, "result"); !strings.Contains(fmt.Sprint(recs), "SIGKILL") {
			t.Errorf("records: %v", recs)
		}

		// A left process keeps the output open, has the token of its exec and a value of its environment, and is ended by that exec.
		r = s.leaves("left", `echo first; python3 -c '
import http.client, os, sys, time
while not os.path.exists("/tmp/ended"): time.sleep(0.05)
c = http.client.HTTPConnection("localhost", 9876)
c.request("POST", "/call", "{}", {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["SKERRY_EXEC_TOKEN"]})
print("later", flush=True)
open("/tmp/status", "w").write(str(c.getresponse().status))
time.sleep(1000)' "$WORD" & true`)
		if r.Stdout != "first\n" || r.LeftProcesses != 1 {
			t.Errorf("%+v", r)
		}
		s.ok("left", "touch /tmp/ended")
		eventually(t, "the bridge answers", func() bool { return strings.Contains(s.ok("left", "cat /tmp/status 2>/dev/null; true"), "4") })
		if got := s.ok("left", "cat /tmp/status"); got != "401" {
			t.Errorf("the bridge answers a token of an ended exec with %s", got)
		}
		if list := s.processes("left"); len(list) != 1 || strings.Contains(list[0].Command, "hidden-from-lists") {
			t.Errorf("%+v", list)
		}
		if a := s.do("DELETE", "/api/threads/left/execs/"+r.ExecID, nil); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if list := s.processes("left"); len(list) != 0 {
			t.Errorf("%+v", list)
		}

		// Pause freezes them, and the end of the sandbox is theirs.
		s.leaves("left", serve)
		eventually(t, "the server answers", answers)
		if a := s.do("POST", "/api/threads/left/sandbox/pause", map[string]any{}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if a := s.do("GET", "/api/threads/left/processes", nil); a.status != 409 {
			t.Errorf("of a paused sandbox: %d %s", a.status, a.body)
		}
		eventually(t, "it goes on", answers)
		if a := s.do("POST", "/api/threads/left/sandbox/hibernate", map[string]any{}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if !gone() {
			t.Error("it outlived the sandbox")
		}

		// The deadline is that of all the exec started.
		a := s.do("POST", "/api/threads/left/exec", map[string]any{"command": serve + "sleep 100", "leave_processes": true, "timeout_s": 2})
		var late result
		if err := json.Unmarshal(a.body, &late); err != nil || late.Status != "timeout" || !gone() {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}
