package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lives returns the options of a server whose templates have these lines in place of the usual idle timeout.
func lives(t *testing.T, o options, lines string, env ...string) options {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf(template, "base", o.runtime)
	for _, name := range []string{"base", "data"} {
		body := strings.Replace(strings.Replace(text, "name: base", "name: "+name, 1), "idle_timeout_s: 600", lines, 1)
		must(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(body), 0o600))
	}
	o.env = append(append(slices.Clone(o.env), "SKERRY_TEMPLATES="+dir), env...)
	return o
}

// state is what a thread's sandbox is, "" when it has none.
func (s *server) state(thread string) string {
	s.t.Helper()
	var view struct{ Sandbox *struct{ State string } }
	s.do("GET", "/api/threads/"+thread, nil).into(s.t, &view)
	if view.Sandbox == nil {
		return ""
	}
	return view.Sandbox.State
}

func (s *server) becomes(thread, state string) {
	s.t.Helper()
	eventually(s.t, thread+" is "+state, func() bool { return s.state(thread) == state })
}

// TestHibernation: an unused sandbox has no container, and comes back as it was asked to be, on another server, too.
func TestHibernation(t *testing.T) {
	t.Parallel()
	for _, driver := range first("oci", "docker") { // the container is gone: drivertest sees that of each runtime
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			testHibernation(t, options{driver: driver, runtime: "runc"})
		})
	}
}

func testHibernation(t *testing.T, o options) {
	s := start(t, lives(t, o, "idle_timeout_s: 2"))
	if a := s.do("PUT", "/api/threads/h/sandbox", map[string]any{"template": "data", "env": map[string]string{"COLOUR": "blue"}, "labels": map[string]string{"a": "b"}}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	uid := s.ok("h", "echo kept > /mnt/user-data/workspace/f; id -u")
	s.becomes("h", "hibernated")
	if folders, err := os.ReadDir(filepath.Join(s.data, "run")); err != nil || len(only(folders, "skerry-")) != 0 {
		t.Errorf("run folders: %v, %v", folders, err)
	}
	s.kill()
	s.boot()
	if got := s.state("h"); got != "hibernated" {
		t.Errorf("after the server was killed it is %q", got)
	}
	if got := s.ok("h", "cat /mnt/user-data/workspace/f; echo $COLOUR; id -u"); got != "kept\nblue\n"+uid {
		t.Errorf("it came back with %q", got)
	}
	var view struct {
		Labels  map[string]string
		Sandbox struct{ State, Template string }
	}
	s.do("GET", "/api/threads/h", nil).into(t, &view)
	if view.Sandbox.Template != "data" || view.Sandbox.State != "running" || view.Labels["a"] != "b" {
		t.Errorf("it is %+v", view)
	}
	// What runs in the background keeps it; a pause is refused meanwhile.
	s.run("h", "exec", map[string]any{"command": "sleep 5", "background": true})
	if a := s.do("POST", "/api/threads/h/sandbox/pause", nil); a.code() != "conflict" {
		t.Errorf("pause: %d %s", a.status, a.body)
	}
	time.Sleep(3500 * time.Millisecond)
	if got := s.state("h"); got != "running" {
		t.Errorf("with an exec in the background it is %q", got)
	}
	if n := len(s.records("thread=h&action=sandbox_hibernate", "result")); n != 1 {
		t.Errorf("%d records of the hibernation", n)
	}
	if a := s.do("GET", "/metrics", nil); !strings.Contains(string(a.body), `skerry_sandbox_start_seconds_count{driver="`+o.driver+`",phase="first_exec",runtime="runc",start="cold",template="data"} 1`) {
		t.Errorf("metrics: %d %s", a.status, a.body)
	}
}

// TestPausedStaysPaused: over a restart of the server.
func TestPausedStaysPaused(t *testing.T) {
	t.Parallel()
	on(t, []string{"oci", "docker"}, func(t *testing.T, o options) {
		s := start(t, o)
		s.ok("p", "echo warm > /tmp/x")
		if a := s.do("POST", "/api/threads/p/sandbox/pause", nil); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		s.kill()
		s.boot()
		if got := s.state("p"); got != "paused" {
			t.Errorf("after the restart it is %q", got)
		}
		if got := s.ok("p", "cat /tmp/x"); got != "warm\n" {
			t.Errorf("its memory: %q", got)
		}
		if n := len(s.records("thread=p&action=sandbox_resume", "result")); n != 1 {
			t.Errorf("%d records of the resume", n)
		}
	})
}

// TestPlaces: with one place, three threads take turns, by the sandbox that is unused longest.
func TestPlaces(t *testing.T) {
	t.Parallel()
	s := start(t, lives(t, options{runtime: "runc"}, "idle_timeout_s: 0", "SKERRY_MAX_SANDBOXES=1", "SKERRY_RECLAIM_IDLE=1s", "SKERRY_QUEUE_TIMEOUT=60s", "SKERRY_QUEUE_LENGTH=1"))
	busy := s.run("one", "exec", map[string]any{"command": "sleep 60", "background": true})
	a := s.do("PUT", "/api/threads/two/sandbox", map[string]any{"wait_s": 0})
	if a.status != http.StatusAccepted {
		t.Fatalf("the second: %d %s", a.status, a.body)
	}
	a = s.do("PUT", "/api/threads/three/sandbox", map[string]any{})
	if a.code() != "capacity_exceeded" || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), "queue_length") {
		t.Errorf("the third: %d %v %s", a.status, a.header, a.body)
	}
	if a := s.do("DELETE", "/api/threads/one/execs/"+busy.ExecID, nil); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.ok("two", "true")
	if got := s.state("one"); got != "hibernated" {
		t.Errorf("the first is %q", got)
	}
	var view struct {
		Sandbox struct {
			Timings struct{ Queue float64 } `json:"timings_ms"`
		}
	}
	s.do("GET", "/api/threads/two", nil).into(t, &view)
	if view.Sandbox.Timings.Queue < 100 {
		t.Errorf("it waited for %v ms", view.Sandbox.Timings.Queue)
	}
}

// TestDrain: after SIGTERM new work is refused, execs end, and those who wait for them hear of it.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drain, want string
	}{"finishes": {"60s", "exited"}, "is ended": {"1s", "killed"}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, options{env: []string{"SKERRY_DRAIN_TIMEOUT=" + c.drain}})
			s.ok("d", "true")
			ended := make(chan answer, 1)
			go func() {
				a, err := s.request("POST", "/api/threads/d/exec", map[string]any{"command": "touch /mnt/user-data/workspace/begun; while [ ! -e /mnt/user-data/workspace/go ]; do sleep 0.1; done"})
				if err != nil {
					t.Error(err)
				}
				ended <- a
			}()
			eventually(t, "it runs", func() bool {
				return s.do("GET", "/api/threads/d/files/stat?path=/mnt/user-data/workspace/begun", nil).status == 200
			})
			must(t, s.cmd.Process.Signal(syscall.SIGTERM))
			if c.want == "exited" {
				eventually(t, "it is not ready", func() bool { return s.do("GET", "/readyz", nil).status == http.StatusServiceUnavailable })
				if a := s.do("POST", "/api/threads/d/exec", map[string]any{"command": "true"}); a.code() != "unavailable" || a.header.Get("Retry-After") == "" {
					t.Errorf("new work: %d %s", a.status, a.body)
				}
				workspace, err := filepath.Glob(filepath.Join(s.data, "tenants/*/users/*/threads/d/workspace"))
				if err != nil || len(workspace) != 1 { // by the API no file is changed any more
					t.Fatalf("workspace: %q, %v", workspace, err)
				}
				must(t, os.WriteFile(filepath.Join(workspace[0], "go"), nil, 0o600))
			}
			a := <-ended
			var r result
			a.into(t, &r)
			if a.status != 200 || r.Status != c.want {
				t.Errorf("the exec: %d %s", a.status, a.body)
			}
			select {
			case <-s.done:
			case <-time.After(60 * time.Second):
				t.Fatal("the server goes on")
			}
		})
	}
}

// TestSecondSignal ends a server that waits, whose execs the next one ends.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := start(t, options{env: []string{"SKERRY_DRAIN_TIMEOUT=10m"}})
	e := s.run("d", "exec", map[string]any{"command": "sleep 300", "background": true, "timeout_s": 600})
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	eventually(t, "it drains", func() bool { return s.do("GET", "/readyz", nil).status == http.StatusServiceUnavailable })
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.done:
	case <-time.After(60 * time.Second):
		t.Fatal("the server goes on")
	}
	s.boot()
	if got := strings.TrimSpace(s.ok("d", "ps -e -o args 2>/dev/null | grep -c '[s]leep 300' || true")); got != "0" {
		t.Errorf("%s processes are left", got)
	}
	if n := len(s.records("exec="+e.ExecID, "result")); n != 1 {
		t.Errorf("%d ends", n)
	}
}
