package metrics

import (
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestCounts: the sums are of all series, and what went wrong is a part of what was done.
func TestCounts(t *testing.T) {
	t.Parallel()
	m := New("1")
	if c := m.Counts(); c != (Counts{}) {
		t.Errorf("at first: %+v", c)
	}
	if _, ok := m.Levels(); ok {
		t.Error("levels of nobody")
	}
	zero, one := 0, 1
	m.Exec("exec", sandbox.StatusExited, &zero, time.Second)
	m.Exec("execute_code", sandbox.StatusExited, &one, time.Second)
	m.Exec("exec", sandbox.StatusTimeout, nil, time.Second)
	m.ToolCall("api", "ok", time.Second)
	m.ToolCall("bridge", "denied", time.Second)
	before := m.Counts()
	want := Counts{Execs: 3, ExecsFailed: 1, Nonzero: 1, ToolCalls: 2, ToolErrors: 1}
	if before != want {
		t.Errorf("%+v, want %+v", before, want)
	}
	m.Request("/api/threads", "GET", 200, time.Second)
	m.Request("/api/threads", "GET", 503, time.Second)
	m.Started(Start{}, time.Second, time.Second, time.Second)
	m.StartFailed(Start{}, sandbox.Unavailable)
	m.Refused("full")
	m.Limited("execs", "tenant")
	since := m.Counts().Since(before)
	want = Counts{Requests: 2, RequestErrors: 1, Starts: 1, StartFailures: 1, Refused: 2}
	if since != want {
		t.Errorf("since then %+v, want %+v", since, want)
	}
	if all := before.Plus(since); all != m.Counts() {
		t.Errorf("%+v and %+v are not %+v", before, since, all)
	}
}
