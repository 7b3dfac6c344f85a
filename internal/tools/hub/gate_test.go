package hub

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// TestTimeouts: a tool's own limit goes before that of its server, and both before the hub's.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"],"timeout":20000,"tools":{"sleep":{"timeout":300}}},
		"y":{"command":"%BIN%","args":["test-server"],"timeout":400}`), func(o *Options) { o.CallTimeout = time.Hour })
	r.fails("x__sleep", `{"ms":60000}`, sandbox.Timeout, "x__sleep: no answer within 300ms")
	r.fails("y__sleep", `{"ms":60000}`, sandbox.Timeout, "y__sleep: no answer within 400ms")
	r.ok("x__echo", `{"message":"the server is of use after a slow call"}`) // within the 20 s of the server
}

// inProgress starts n calls that take a while and returns when they are at the server.
func (r *rig) inProgress(n int, tool, input string) (wait func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	found, err := r.Catalog.Resolve(ctx, alice, sandbox.ToolRef{Printed: tool})
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := r.pool.get(r.configs.current().ByName[found.Server], alice)
	if err != nil {
		r.t.Fatal(err)
	}
	before := c.calls.Load()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { _, _ = r.Catalog.Call(ctx, alice, found, []byte(input)) })
	}
	eventually(r.t, "the calls are in progress", func() bool { return c.calls.Load() == before+int32(n) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// TestConcurrency: a call that finds no place waits within its own time, then it says what is busy. A
// busy tool leaves its neighbours alone, a busy server the other servers.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"],"concurrency":3,"timeout":2000,
		"tools":{"sleep":{"concurrency":2,"timeout":20000},"json":{"timeout":10000}}},
		"y":`+testServer))
	end := r.inProgress(2, "x__sleep", `{"ms":19000}`)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := r.Catalog.Call(ctx, alice, sandbox.Tool{Server: "x", Name: "sleep"}, nil)
	if sandbox.KindOf(err) != sandbox.CapacityExceeded || !strings.Contains(excerpt.Detail(err), "the tool x__sleep is busy: 2 calls at a time") {
		t.Errorf("%v", err)
	}
	r.ok("x__echo", `{"message":"beside"}`)

	// The third place of the server is taken by another tool.
	r.write(withServers(`"x":{"command":"%BIN%","args":["test-server"],"concurrency":1,"timeout":500,"tools":{"sleep":{"timeout":20000},"json":{"timeout":10000}}},"y":` + testServer))
	endAll := r.inProgress(1, "x__sleep", `{"ms":19000}`)
	r.fails("x__echo", `{"message":"a"}`, sandbox.CapacityExceeded, `the MCP server "x" is busy: 1 calls at a time`)
	r.ok("y__echo", `{"message":"the other server"}`)
	done := make(chan error, 1)
	go func() {
		_, err := r.call("x__json", "")
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	endAll()
	if err := <-done; err != nil {
		t.Errorf("a call that waited: %v", err)
	}
	end()
}

// TestTooManyWait: the calls that wait are bounded too.
func TestTooManyWait(t *testing.T) {
	t.Parallel()
	terms := newTerms(&serverconfig.Server{Terms: serverconfig.Terms{Concurrency: 1}}, 16)
	leave, err := terms.enter(context.Background(), "s", &tool{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range maxWaiting {
		wg.Go(func() {
			if _, err := terms.enter(ctx, "s", &tool{}); sandbox.KindOf(err) != sandbox.Unavailable {
				t.Errorf("a caller that goes away: %v", err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return terms.waiting.Load() == maxWaiting })
	if _, err := terms.enter(ctx, "s", &tool{}); sandbox.KindOf(err) != sandbox.CapacityExceeded || !strings.Contains(excerpt.Detail(err), "256 wait") {
		t.Errorf("%v", err)
	}
	cancel()
	wg.Wait()
	leave()
	if leave, err = terms.enter(context.Background(), "s", &tool{}); err != nil {
		t.Fatal(err)
	}
	leave()
}
