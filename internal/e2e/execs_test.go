package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestManyExecsAtOnce: 64 commands run in one sandbox at the same time, started by callers that are
// gone, and each is read to its end by number. Each needs about six processes and threads with its
// supervisor, so that the template has room for them.
func TestManyExecsAtOnce(t *testing.T) {
	const many = 64
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			templates := t.TempDir()
			room := strings.Replace(strings.Replace(template, "memory: 512MiB", "memory: 1GiB", 1), "pids: 128", "pids: 512", 1)
			must(t, os.WriteFile(filepath.Join(templates, "base.yaml"), fmt.Appendf(nil, room, "base", runtime), 0o600))
			s := start(t, options{runtime: runtime, env: []string{"SKERRY_TEMPLATES=" + templates}})
			s.ok("many", "true")
			ids := make([]string, many)
			var wg sync.WaitGroup
			for i := range ids {
				wg.Go(func() {
					a, err := s.request("POST", "/api/threads/many/exec", map[string]any{
						"command":    fmt.Sprintf("echo on; until [ -e go ]; do sleep 0.5; done; echo number-%d", i),
						"background": true, "timeout_s": 300,
					})
					var r result
					if err != nil || a.status != 200 {
						t.Errorf("exec %d: %v %d %s", i, err, a.status, a.body)
						return
					}
					a.into(t, &r)
					ids[i] = r.ExecID
				})
			}
			wg.Wait()
			for i, id := range ids {
				eventually(t, fmt.Sprintf("exec %d runs", i), func() bool {
					var r result
					s.do("GET", "/api/threads/many/execs/"+id, nil).into(t, &r)
					if r.Status != "running" {
						t.Fatalf("exec %d: %+v", i, r)
					}
					return r.Stdout == "on\n"
				})
			}
			s.ok("many", "touch go")
			for i, id := range ids {
				rest := string(s.do("GET", "/api/threads/many/execs/"+id+"/events?after=2", nil).body) // waits for the exit
				if strings.Contains(rest, "event: started") || strings.Contains(rest, `"data":"on\n"`) ||
					!strings.Contains(rest, fmt.Sprintf(`"data":"number-%d\n"`, i)) || !strings.Contains(rest, `"exit_code":0`) {
					t.Errorf("exec %d: %s", i, rest)
				}
			}
			if left := strings.TrimSpace(s.ok("many", "ps -e -o args | grep -c '[s]leep' || true")); left != "0" {
				t.Errorf("%s processes are left", left)
			}
		})
	}
}
