package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func TestNames(t *testing.T) {
	m := New("1.2.3")
	m.Watch(func() Levels {
		return Levels{Sandboxes: map[sandbox.State]int{sandbox.Running: 3}, Execs: 4, Places: 5, Waiting: 6, AuditLag: 7, Unarchived: 9, Sinks: map[string]int{"syslog": 8}}
	})
	s := Start{Driver: "oci", Runtime: "runc", Template: "base"}
	m.Started(s, 3*time.Millisecond, 40*time.Millisecond, 2*time.Second)
	m.FirstExec(s, 70*time.Millisecond)
	m.StartFailed(s, sandbox.NotFound)
	zero, one := 0, 1
	m.Exec("exec", sandbox.StatusExited, &zero, 3*time.Millisecond)
	m.Exec("execute_code", sandbox.StatusExited, &one, 3*time.Millisecond)
	m.Exec("execute_code", sandbox.StatusLost, nil, 3*time.Millisecond)
	m.Changed("sandbox_hibernate", "idle")
	m.Refused("full")
	m.ToolCall("bridge", "ok", time.Millisecond)
	m.ToolResult("bridge", 5000)
	m.Returned("bridge", 70)
	m.Prompt(sandbox.ModeCode)
	s.Warm = true
	m.Started(s, 0, 0, time.Millisecond)
	text := scrape(t, m)
	for _, want := range []string{
		`skerry_sandbox_start_seconds_bucket{driver="oci",phase="queue",runtime="runc",start="cold",template="base",le="0.005"} 1`,
		`skerry_sandbox_start_seconds_bucket{driver="oci",phase="queue",runtime="runc",start="cold",template="base",le="0.0025"} 0`,
		`skerry_sandbox_start_seconds_sum{driver="oci",phase="create",runtime="runc",start="cold",template="base"} 0.04`,
		`skerry_sandbox_start_seconds_sum{driver="oci",phase="ready",runtime="runc",start="cold",template="base"} 2`,
		`skerry_sandbox_start_seconds_count{driver="oci",phase="ready",runtime="runc",start="warm",template="base"} 1`,
		`skerry_sandbox_start_seconds_sum{driver="oci",phase="first_exec",runtime="runc",start="cold",template="base"} 0.07`,
		`skerry_sandbox_start_failures_total{code="not_found",driver="oci",runtime="runc",template="base"} 1`,
		`skerry_exec_duration_seconds_count{action="exec",status="exited"} 1`,
		`skerry_exec_duration_seconds_count{action="execute_code",status="exited"} 1`, `skerry_exec_nonzero_total{action="execute_code"} 1`,
		`skerry_sandbox_changes_total{change="sandbox_hibernate",reason="idle"} 1`,
		`skerry_queue_refused_total{reason="full"} 1`,
		`skerry_tool_call_duration_seconds_count{outcome="ok",via="bridge"} 1`,
		`skerry_tool_result_bytes_total{via="bridge"} 5000`, `skerry_tool_returned_bytes_total{via="bridge"} 70`, `skerry_prompts_total{mode="code"} 1`,
		`skerry_sandboxes{state="running"} 3`, `skerry_sandboxes{state="paused"} 0`, `skerry_execs_running 4`,
		`skerry_sandboxes_max 5`, `skerry_queue_waiting 6`, `skerry_audit_lag_records 7`, `skerry_audit_archive_behind_segments 9`, `skerry_audit_sink_behind_records{sink="syslog"} 8`,
		`skerry_build_info{version="1.2.3"} 1`, "go_goroutines ", "process_open_fds ",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("%s is missing", want)
		}
	}
	if problems, err := testutil.GatherAndLint(m.registry); err != nil || len(problems) > 0 {
		t.Errorf("against the conventions of Prometheus: %v %v", problems, err)
	}
}

// TestNobodyWatched: a server that is starting answers a scrape, too.
func TestNobodyWatched(t *testing.T) {
	if text := scrape(t, New("x")); strings.Contains(text, "skerry_sandboxes{") {
		t.Errorf("levels that nobody gave:\n%s", text)
	}
}

func BenchmarkExec(b *testing.B) {
	m := New("x")
	for b.Loop() {
		m.Exec("exec", sandbox.StatusExited, nil, time.Millisecond)
	}
}
