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

// TestRunningProcesses: what a running command computes is seen, by the host for the sandbox and by the sandbox for its
// processes, without its secrets; without all=true nothing of it is.
func TestRunningProcesses(t *testing.T) {
	t.Parallel()
	on(t, []string{"docker/runc", "oci/runsc"}, func(t *testing.T, o options) {
		s := start(t, o)
		s.ok("busy", "true")
		a := s.do("POST", "/api/threads/busy/exec", map[string]any{
			"command": `python3 -c 'while True: pass' "$WORD"`, "background": true, "redact_env": true, "env": map[string]any{"WORD": "hidden-from-lists"}, "timeout_s": 100,
		})
		var exec result
		a.into(t, &exec)
		type process struct {
			leftProcess
			Running bool  `json:"running"`
			Parent  int   `json:"parent_pid"`
			CPU     int64 `json:"cpu_ms"`
			Threads int   `json:"threads"`
		}
		var list struct{ Items []process }
		eventually(t, "a process has computed for 0.2 s", func() bool {
			s.do("GET", "/api/threads/busy/processes?all=true", nil).into(t, &list)
			for _, p := range list.Items {
				if strings.Contains(p.Command, "hidden-from-lists") {
					t.Fatalf("a secret is shown: %q", p.Command)
				}
				if strings.HasPrefix(p.Command, "python3 -c while True") && p.CPU >= 200 && p.Running && p.ExecID == exec.ExecID && p.Parent > 0 && p.Threads == 1 && p.RSSBytes > 0 {
					return true
				}
			}
			return false
		})
		if left := s.processes("busy"); len(left) != 0 {
			t.Errorf("a running command left %+v", left)
		}
		type metrics struct {
			CPU         int64 `json:"cpu_ms"`
			Memory      int64 `json:"memory_bytes"`
			MemoryLimit int64 `json:"memory_limit_bytes"`
			PIDs        int64 `json:"pids"`
			PIDsLimit   int64 `json:"pids_limit"`
		}
		var before, after metrics
		s.do("GET", "/api/threads/busy/sandbox/metrics", nil).into(t, &before)
		eventually(t, "the host has seen it compute", func() bool {
			s.do("GET", "/api/threads/busy/sandbox/metrics", nil).into(t, &after)
			return after.CPU >= before.CPU+200
		})
		if after.Memory < 1<<20 || after.MemoryLimit < after.Memory || after.PIDs < 1 || after.PIDsLimit < after.PIDs {
			t.Errorf("%+v", after)
		}
		if a := s.do("DELETE", "/api/threads/busy/execs/"+exec.ExecID, nil); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		eventually(t, "it is gone", func() bool {
			s.do("GET", "/api/threads/busy/processes?all=true", nil).into(t, &list)
			return len(list.Items) == 0
		})
		s.do("POST", "/api/threads/busy/sandbox/hibernate", map[string]any{})
		if a := s.do("GET", "/api/threads/busy/sandbox/metrics", nil); a.status != 409 {
			t.Errorf("of a hibernated sandbox: %d %s", a.status, a.body)
		}
		if a := s.do("GET", "/api/threads/none/sandbox/metrics", nil); a.status != 404 {
			t.Errorf("of no sandbox: %d %s", a.status, a.body)
		}
	})
}
