package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

// TestPackAway: a call of a program that is away was not started, and a retry with its key makes it once the program is
// back. One that was lost under way may have had its effect: a retry does not make it again.
func TestPackAway(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.acquire("t", "direct")
	call := func(key, name string) answer {
		return s.sendWith("POST", "/api/threads/t/tools/call", map[string]string{"Idempotency-Key": key}, map[string]any{"tool": "crm__find_lead", "input": map[string]any{"name": name}})
	}
	pack := leads(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- pack.Serve(ctx, quiet(s)) }()
	running := func() int {
		var p struct{ Running int }
		s.do("GET", "/api/packs/crm", nil).into(t, &p)
		return p.Running
	}
	eventually(t, "the pack is connected", func() bool { return s.do("GET", "/api/packs/crm", nil).status == 200 })
	lost := make(chan answer, 1)
	go func() { lost <- call("lost", "slow") }()
	eventually(t, "the call runs", func() bool { return running() == 1 })
	cancel()
	if a := <-lost; a.code() != "unavailable" || strings.Contains(string(a.body), "not_started") {
		t.Errorf("a call that was under way: %d %s", a.status, a.body)
	}
	<-served
	if a := call("lost", "slow"); a.code() != "conflict" {
		t.Errorf("its retry: %d %s", a.status, a.body)
	}
	for range 2 {
		if a := call("away", "Ada"); a.code() != "unavailable" || !strings.Contains(string(a.body), `"not_started":true`) {
			t.Errorf("a call while the pack is away: %d %s", a.status, a.body)
		}
	}
	if n := len(s.records("action=tool_call&thread=t&tool=crm__find_lead", "result")); n != 3 {
		t.Errorf("%d results are recorded", n)
	}
	type said struct {
		*skerry.ToolResult
		err error
	}
	waits := make(chan said, 1)
	go func() {
		r, err := skerry.New(s.url, skerry.Options{}).Thread("t").CallTool(t.Context(), "crm__find_lead", map[string]any{"name": "Bo"})
		waits <- said{r, err}
	}()
	eventually(t, "the SDK has tried", func() bool {
		return len(s.records("action=tool_call&thread=t&tool=crm__find_lead", "result")) > 3
	})
	s.provide(pack, nil)
	if a := call("away", "Ada"); a.status != 200 || !strings.Contains(string(a.body), "Ada@example.com") {
		t.Errorf("the retry of a call that was not started: %d %s", a.status, a.body)
	}
	select {
	case got := <-waits:
		if got.err != nil || got.IsError {
			t.Errorf("the SDK's own retry: %v %+v", got.err, got.ToolResult)
		}
	case <-time.After(time.Minute):
		t.Error("the SDK does not end")
	}
	// The program of a skill that has not connected yet.
	s.do("POST", "/api/threads/t/skills", map[string]any{"name": "code-review", "description": "Reviews code", "body": "Count.", "channel": true})
	s.activate("t", "code-review")
	for range 2 {
		a := s.sendWith("POST", "/api/threads/t/skills/code-review/tools/count-lines", map[string]string{"Idempotency-Key": "skill"}, map[string]any{"text": "a"})
		if a.code() != "unavailable" || !strings.Contains(string(a.body), `"not_started":true`) {
			t.Errorf("a call of a skill whose program is away: %d %s", a.status, a.body)
		}
	}
}
