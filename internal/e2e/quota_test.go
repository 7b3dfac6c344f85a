package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// met is what a problem says of the limit that was met.
type met struct {
	Limit, Scope, Who string
	Max, Used         int64
	RetryAfter        int `json:"retry_after_s"`
}

func metIn(t *testing.T, a answer) met {
	t.Helper()
	var p struct {
		Code  string
		Limit *met
	}
	a.into(t, &p)
	if a.status != 429 || p.Code != "quota_exceeded" || p.Limit == nil || a.header.Get("Retry-After") == "" {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	return *p.Limit
}

// startLimited starts two servers with one Redis, and limits.
func startLimited(t *testing.T, tenants, users string) (a, b *server, redis *redistest.Server) {
	t.Helper()
	redis = redistest.Start(t)
	a = start(t, options{args: []string{"--redis", redis.URL()}, env: []string{"SKERRY_LIMITS_TENANTS=" + tenants, "SKERRY_LIMITS_USERS=" + users}})
	return a, a.twin(), redis
}

// TestLimitsOfTwoServers: calls to two servers at a time stay within the limits together; when one of them is killed, its
// places come back; and the time that a refusal says is enough.
func TestLimitsOfTwoServers(t *testing.T) {
	whole(t, TestLimitsAndUsage)
	t.Parallel()
	const most = 2
	a, b, _ := startLimited(t, `{"*": {execs: 2}}`, `{"*": {sandboxes: 5}}`)
	servers := []*server{a, b}
	for i := range 4 {
		servers[i%2].ok("t"+strconv.Itoa(i), "true")
	}
	// Each exec says from when to when it ran.
	var ran, refused atomic.Int32
	var spans starts
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for ran.Load() < 24 {
				res, err := servers[i%2].request("POST", fmt.Sprintf("/api/threads/t%d/exec", i%4), map[string]any{"command": "date +%s.%N; sleep 0.2; date +%s.%N"})
				switch {
				case err != nil:
					t.Error(err)
					return
				case res.status == 429:
					refused.Add(1)
					time.Sleep(20 * time.Millisecond)
				case res.status == 200:
					var r result
					if json.Unmarshal(res.body, &r) == nil {
						spans.add(r.Stdout)
					}
					ran.Add(1)
				default:
					t.Errorf("%d %s", res.status, res.body)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := spans.most(t); n > most {
		t.Errorf("%d ran at a time, and the limit is %d", n, most)
	}
	if refused.Load() == 0 {
		t.Error("nothing was refused")
	}

	// The owner of a thread takes both places, and dies.
	owner, other := a, b
	for range most {
		owner.run("killed", "exec", map[string]any{"command": "sleep 600", "background": true, "timeout_s": 600})
	}
	if m := metIn(t, other.do("POST", "/api/threads/t1/exec", map[string]any{"command": "true"})); m.Limit != "execs" || m.Scope != "tenant" || m.Max != most || m.Used != most || m.RetryAfter < 500 {
		t.Errorf("%+v", m)
	}
	owner.kill()
	began := time.Now()
	eventually(t, "the places of the killed server come back", func() bool {
		return other.do("POST", "/api/threads/t1/exec", map[string]any{"command": "true"}).status == 200
	})
	t.Logf("the places came back after %s", time.Since(began).Round(time.Second))
}

// starts are the times between which execs ran.
type starts struct {
	mu    sync.Mutex
	spans [][2]float64
}

func (s *starts) add(stdout string) {
	f := strings.Fields(stdout)
	if len(f) != 2 {
		return
	}
	from, err1 := strconv.ParseFloat(f[0], 64)
	to, err2 := strconv.ParseFloat(f[1], 64)
	if errors.Join(err1, err2) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spans = append(s.spans, [2]float64{from, to})
	}
}

// most is how many ran at a time.
func (s *starts) most(t *testing.T) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spans) < 24 {
		t.Errorf("only %d execs ran", len(s.spans))
	}
	most := 0
	for _, a := range s.spans {
		n := 0
		for _, b := range s.spans {
			if b[0] <= a[0] && a[0] < b[1] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// TestLimitsAndUsage: each limit is met as its answer says, and what was used is told.
func TestLimitsAndUsage(t *testing.T) {
	t.Parallel()
	s := start(t, options{env: []string{`SKERRY_LIMITS_USERS={"*": {sandboxes: 2, execs: 1, cpu_seconds_per_day: 3, disk_mib: 50}, "default/slow": {requests_per_minute: 60, requests_burst: 1}}`}})
	s.ok("a", "true")
	s.ok("b", "true")
	if m := metIn(t, s.do("POST", "/api/threads/c/exec", map[string]any{"command": "true"})); m.Limit != "sandboxes" || m.Max != 2 {
		t.Errorf("%+v", m)
	}
	if res := s.do("DELETE", "/api/threads/b/sandbox", nil); res.status != 204 {
		t.Fatalf("%s", res.body)
	}
	s.ok("c", "true")

	// Waiting for as long as the answer says is enough.
	s.run("a", "exec", map[string]any{"command": "sleep 60", "background": true, "timeout_s": 2})
	res := s.do("POST", "/api/threads/a/exec", map[string]any{"command": "true"})
	if m := metIn(t, res); m.Limit != "execs" || m.RetryAfter < 1 || m.RetryAfter > 2 || res.header.Get("Retry-After") != strconv.Itoa(m.RetryAfter) {
		t.Errorf("%+v", m)
	}
	time.Sleep(2 * time.Second)
	eventually(t, "the exec that ran ends at its deadline", func() bool {
		return s.do("POST", "/api/threads/a/exec", map[string]any{"command": "true"}).status == 200
	})

	s.run("a", "exec", map[string]any{"command": "python3 -c 'import time\nwhile time.process_time() < 4: pass'"})
	eventually(t, "CPU time runs out", func() bool {
		res := s.do("POST", "/api/threads/a/exec", map[string]any{"command": "true"})
		return res.status == 429 && metIn(t, res).Limit == "cpu_seconds_per_day"
	})
	var u struct {
		Total struct {
			Requests, Refused, Execs int64
			CPUSeconds               float64 `json:"cpu_seconds"`
		}
		Limits []struct {
			Limit     string
			Max, Used int64
		}
	}
	eventually(t, "usage is told", func() bool {
		s.do("GET", "/api/usage", nil).into(t, &u)
		return u.Total.Execs >= 5 && u.Total.CPUSeconds > 3 && u.Total.Refused >= 3 && u.Total.Requests > u.Total.Execs && len(u.Limits) == 4
	})
	if out := s.cli("usage", "--by", "user"); !strings.Contains(out, "CPU S") || !strings.Contains(out, "cpu_seconds_per_day") {
		t.Errorf("skerry usage:\n%s", out)
	}
	if text := string(s.do("GET", "/metrics", nil).body); !strings.Contains(text, `skerry_limit_refused_total{limit="execs",scope="user"}`) {
		t.Error("no metric")
	}
	// A server that is killed has told what it counted; the sandbox it leaves is not counted again.
	before := u.Total.CPUSeconds
	s.kill()
	s.boot()
	time.Sleep(3 * time.Second)
	s.do("GET", "/api/usage", nil).into(t, &u)
	if u.Total.CPUSeconds < before || u.Total.CPUSeconds > before+2 {
		t.Errorf("%.1f s of CPU time before the server was killed, %.1f after", before, u.Total.CPUSeconds)
	}
}
