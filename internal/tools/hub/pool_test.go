package hub

import (
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// TestIdleConnectionIsClosed: its tools stay known, and the next call starts the server anew.
func TestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer), func(o *Options) { o.IdleTimeout = 300 * time.Millisecond })
	pid := r.pid("x")
	key := connKey{"x", serverconfig.ScopeOf(serverconfig.ScopeUser, alice)}
	eventually(t, "the connection is closed", func() bool {
		r.pool.mu.Lock()
		c := r.pool.conns[key]
		r.pool.mu.Unlock()
		tools, state, err := c.known()
		return state == "idle" && err == nil && len(tools.tools) == 12
	})
	version := r.Version()
	if r.pid("x") == pid {
		t.Error("the same process")
	}
	if r.Version() != version {
		t.Error("the same tools, another version")
	}
}

// TestMostConnections: an unused one makes room, one in use does not.
func TestMostConnections(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":`+testServer), func(o *Options) { o.MaxConnections = 1 })
	bob := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "bob"}, ID: "one"}
	r.pid("x")
	if _, err := r.callAs(bob, "x__echo", `{"message":"a"}`); err != nil {
		t.Errorf("an idle connection did not make room: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.callAs(bob, "x__sleep", `{"ms":1500}`)
		done <- err
	}()
	r.pool.mu.Lock()
	c := r.pool.conns[connKey{"x", serverconfig.ScopeOf(serverconfig.ScopeUser, bob)}]
	r.pool.mu.Unlock()
	eventually(t, "bob's call is in progress", func() bool { return c.calls.Load() == 1 })
	r.fails("x__echo", `{"message":"a"}`, sandbox.CapacityExceeded, "in use")
	if err := <-done; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
}
