package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestExecContract: what an exec started is gone when its end is told, however it hid, and nothing of its
// neighbour's; a kill is no lack of memory; and a frozen sandboxd delays no other caller.
func TestExecContract(t *testing.T) {
	t.Parallel()
	on(t, []string{"oci/runc", "oci/runsc"}, func(t *testing.T, o options) {
		s := start(t, o)
		s.ok("t", "true")
		background := func(command string, timeout int) result {
			t.Helper()
			r := s.run("t", "exec", map[string]any{"command": command, "background": true, "timeout_s": timeout})
			if r.Status != "running" {
				t.Fatalf("%+v", r)
			}
			return r
		}
		ended := func(id string) (r result) {
			t.Helper()
			eventually(t, "the exec ends", func() bool {
				r = result{}
				s.do("GET", "/api/threads/t/execs/"+id, nil).into(t, &r)
				return r.Status != "running"
			})
			return r
		}
		count := func(what string) string {
			t.Helper()
			return strings.TrimSpace(s.ok("t", "ps -e -o args | grep -c '^"+what+"$' || true"))
		}
		neighbour := background("(sleep 7001 &); setsid sleep 7001 & sleep 7001", 600)
		eventually(t, "the neighbour runs", func() bool { return count("sleep 7001") == "3" })
		hide := "nohup sleep 7002 >/dev/null 2>&1 & (setsid sh -c '(sleep 7002 &) ; sleep 7002' &) ; (sleep 7002 &) ; "

		if r := s.exec("t", hide+"echo out"); r.Status != "exited" || *r.ExitCode != 0 {
			t.Errorf("%+v", r)
		}
		if n := count("sleep 7002"); n != "0" {
			t.Errorf("%s processes are left of an exec that ended by itself", n)
		}
		killed := background(hide+"sleep 7002", 600)
		eventually(t, "it runs", func() bool { return count("sleep 7002") == "5" })
		s.do("DELETE", "/api/threads/t/execs/"+killed.ExecID, nil)
		if r := ended(killed.ExecID); r.Status != "killed" {
			t.Errorf("a killed exec is %q", r.Status)
		}
		if n := count("sleep 7002"); n != "0" {
			t.Errorf("%s processes are left of an exec that was killed", n)
		}
		if r := s.exec("t", "kill -9 $$"); r.Status == "oom" || r.Status == "lost" {
			t.Errorf("an exec that killed itself is %q", r.Status)
		}
		if n := count("sleep 7001"); n != "3" {
			t.Errorf("%s of 3 processes of the neighbour are left", n)
		}
		var still result
		s.do("GET", "/api/threads/t/execs/"+neighbour.ExecID, nil).into(t, &still)
		if still.Status != "running" {
			t.Errorf("the neighbour is %q", still.Status)
		}

		frozen := background("sleep 7003", 1)
		must(t, syscall.Kill(hostPID(t, s, "t"), syscall.SIGSTOP))
		began := time.Now()
		if r := ended(frozen.ExecID); r.Status != "timeout" {
			t.Errorf("an exec whose deadline passed with sandboxd frozen is %q", r.Status)
		}
		if r := ended(neighbour.ExecID); r.Status != "lost" {
			t.Errorf("its neighbour is %q", r.Status)
		}
		t.Logf("the deadline of 1 s was told after %s", time.Since(began).Round(time.Millisecond))
		s.ok("t", "true")
	})
}

// hostPID is the host's number of PID 1 of a thread's sandbox, with the oci driver.
func hostPID(t *testing.T, s *server, thread string) int {
	t.Helper()
	var view struct{ Sandbox struct{ ID string } }
	s.do("GET", "/api/threads/"+thread, nil).into(t, &view)
	text, err := os.ReadFile(filepath.Join(s.data, "oci/bundles", view.Sandbox.ID, "pid"))
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	return pid
}
