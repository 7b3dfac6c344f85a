package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const twoWait = "pool: {target: 2, min: 2, burst: 2}\n"

// waiting waits until so many sandboxes wait for threads.
func (s *server) waiting(n string) {
	s.t.Helper()
	eventually(s.t, n+" sandboxes wait", func() bool {
		return strings.Contains(string(s.do("GET", "/metrics", nil).body), `skerry_pool_sandboxes{state="waiting",template="base"} `+n+"\n")
	})
}

func (s *server) warm(thread string) bool {
	s.t.Helper()
	var v struct{ Sandbox struct{ Warm bool } }
	s.do("GET", "/api/threads/"+thread, nil).into(s.t, &v)
	return v.Sandbox.Warm
}

// asSeen is what code finds out about its sandbox, without what is by nature another in each.
const asSeen = `
awk '{split($6, o, ","); print $5, o[1], $0 ~ /nosuid/, $0 ~ /nodev/}' /proc/self/mountinfo | sort -u
grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; ulimit -a; umask; hostname; pwd
env | grep -vE '^(SKERRY_EXEC_TOKEN|SKERRY_EXEC_ID|SKERRY_THREAD_ID|MCP_|_)' | sort
cd /mnt && find skills plugins code-api | sort; ls -la user-data | awk 'NR>3 {print $1, $3, $9}'
cat /mnt/skills/public/one/who.sh; touch /mnt/skills/x /mnt/plugins/x /mnt/code-api/x /mnt/user-data/x 2>&1
ls -A /home/agent /mnt/user-data/workspace; id -un; df -k /tmp | awk 'NR>1 {print $2}'`

// TestClaimedIsAsCold: a thread sees no difference between a sandbox of the pool and a cold one.
func TestClaimedIsAsCold(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		o.template = twoWait + "interpreters: {python: {warm: 1, preload: [json]}}\n"
		o.extensions = mcpServers(t, sharedFolder(t))
		o.env = []string{"SKERRY_SKILLS=" + skillsFolder(t, "one", "two")}
		s := start(t, o)
		s.waiting("2")
		s.turn("two", false)
		for _, thread := range []string{"claimed", "cold"} {
			if a := s.do("PUT", "/api/threads/"+thread+"/sandbox", map[string]any{"env": map[string]string{"GREETING": "hi"}}); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if a := s.do("DELETE", "/api/threads/cold/sandbox", nil); a.status != 204 { // it has files now
			t.Fatalf("%d %s", a.status, a.body)
		}
		if a := s.do("PUT", "/api/threads/cold/sandbox", map[string]any{"env": map[string]string{"GREETING": "hi"}}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		const call = "print(call_mcp_tool('everything__echo', {'message': 'x'}))"
		s.connect("cold")
		for _, thread := range []string{"cold", "claimed"} {
			if r := s.run(thread, "execute_code", map[string]any{"language": "python", "code": call}); r.Stdout != "Echo: x\n" {
				t.Errorf("%s calls a tool: %+v", thread, r)
			}
		}
		cold, claimed := s.ok("cold", asSeen), s.ok("claimed", asSeen)
		if cold != claimed || !strings.Contains(cold, "GREETING=hi") || strings.Contains(cold, "public/two") {
			t.Errorf("cold:\n%s\nclaimed:\n%s", cold, claimed)
		}
		if s.warm("cold") || !s.warm("claimed") {
			t.Errorf("cold is warm: %v, claimed is: %v", s.warm("cold"), s.warm("claimed"))
		}
		s.turn("two", true)
		if got := s.ok("claimed", "ls /mnt/skills/public; echo mine > kept"); got != "one\ntwo\n" {
			t.Errorf("after a change of skills: %q", got)
		}
		if text, err := os.ReadFile(filepath.Join(s.data, "tenants/default/users/local/threads/claimed/workspace/kept")); err != nil || string(text) != "mine\n" {
			t.Errorf("the thread's file: %q, %v", text, err)
		}
		s.kill()
		s.boot()
		if got := s.ok("claimed", "cat kept"); got != "mine\n" || !s.warm("claimed") {
			t.Errorf("after kill -9 of the server: %q, warm: %v", got, s.warm("claimed"))
		}
		s.waiting("2") // those of the server before are gone
		var folders []string
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("run folders: %q", folders)
			}
		})
		eventually(t, "nothing else is left", func() bool {
			var err error
			folders, err = filepath.Glob(filepath.Join(s.data, "run/skerry-*"))
			return err == nil && len(folders) == 4
		})
		s.stop()
		left, err := filepath.Glob(filepath.Join(s.data, "tenants/.pool/users/pool/threads/skerry-*"))
		if err != nil || len(left) != 0 {
			t.Errorf("after an orderly end there are %v, %v", left, err)
		}
		s.boot()
	})
}

// TestFirstProgramIsForked: an interpreter that the template names waits before the first program. It does
// so in a sandbox of the pool before it has a thread, and in a cold one. The thread's status shows it.
func TestFirstProgramIsForked(t *testing.T) {
	t.Parallel()
	on(t, []string{"oci/runc", "oci/runsc"}, func(t *testing.T, o options) {
		o.template = "pool: {target: 1, min: 1, burst: 1}\ninterpreters: {python: {warm: 1, preload: [json]}}\n"
		s := start(t, o)
		s.waiting("1")
		time.Sleep(time.Second) // until it waits; where it does not, the claimed one is as the cold
		for _, thread := range []string{"claimed", "cold"} {
			if a := s.do("PUT", "/api/threads/"+thread+"/sandbox", nil); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			eventually(t, "Python waits", func() bool {
				var v struct {
					Sandbox struct {
						Waiting []struct {
							Language        string
							Starting, Forks bool
							MemoryBytes     int64 `json:"memory_bytes"`
						}
					}
				}
				a := s.do("GET", "/api/threads/"+thread, nil)
				if err := json.Unmarshal(a.body, &v); err != nil {
					t.Fatalf("%s: %v", a.body, err)
				}
				w := v.Sandbox.Waiting
				return len(w) == 1 && w[0].Language == "python" && !w[0].Starting && (o.runtime == "runsc" || w[0].Forks && w[0].MemoryBytes > 1<<20) // gVisor does not tell
			})
			const text = "import sys, os; print('json' in sys.modules, os.environ['SKERRY_THREAD_ID'])"
			if r := s.run(thread, "execute_code", map[string]any{"language": "python", "code": text}); r.Stdout != "True "+thread+"\n" {
				t.Errorf("%s: %+v", thread, r)
			}
			if a := s.do("DELETE", "/api/threads/"+thread+"/sandbox", nil); a.status != 204 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
	})
}

// TestClaimedQuota: the limits of thread and user hold in a sandbox that was made before either was known.
func TestClaimedQuota(t *testing.T) {
	t.Parallel()
	for _, driver := range first("oci", "docker") {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{
				driver: driver, disk: "24MiB", template: twoWait,
				env: []string{"SKERRY_DISK_QUOTA=auto", "SKERRY_DISK_IMAGE_MIB=320", "SKERRY_USER_DISK_MIB=36"},
			})
			s.waiting("2")
			s.full("a", "dd if=/dev/urandom of=big bs=1M count=64")
			s.full("b", "dd if=/dev/urandom of=more bs=1M count=22")
			if !s.warm("a") || !s.warm("b") {
				t.Error("they were not claimed")
			}
			raw, err := json.Marshal(s.threads())
			if err != nil || string(raw) != `["a","b"]` {
				t.Errorf("threads %s, %v", raw, err)
			}
		})
	}
}
