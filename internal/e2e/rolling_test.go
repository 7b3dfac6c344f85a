package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// balancer sends each request to a server that is ready, as a Service does: it looks now and then.
type balancer struct {
	t    *testing.T
	mu   sync.Mutex
	all  []*server
	open []*server
}

func (b *balancer) set(all ...*server) {
	b.mu.Lock()
	b.all = slices.Clone(all) // the caller goes on with its own
	b.mu.Unlock()
	b.look()
}

// look asks all servers whether they are ready.
func (b *balancer) look() {
	b.mu.Lock()
	all := b.all
	b.mu.Unlock()
	var open []*server
	for _, s := range all {
		if a, err := s.request("GET", "/readyz", nil); err == nil && a.status == 200 {
			open = append(open, s)
		}
	}
	b.mu.Lock()
	b.open = open
	b.mu.Unlock()
}

func (b *balancer) pick() *server {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) == 0 {
		return b.all[0]
	}
	return b.open[rand.IntN(len(b.open))]
}

// load runs commands, and changes files, until stop is closed; what is not answered as it should be is an error.
func (b *balancer) load(thread string, stop <-chan struct{}, done *atomic.Int64) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		want := fmt.Sprintf("%s %d\n", thread, n)
		method, path, body := "POST", "/exec", map[string]any{"command": "sleep 0.0" + fmt.Sprint(n%5) + "; echo " + want}
		if n%7 == 6 {
			method, path, body = "PUT", "/files", map[string]any{"path": "/mnt/user-data/workspace/f", "content": want}
		}
		at := b.pick()
		a, err := at.request(method, "/api/threads/"+thread+path, body)
		var r result
		switch {
		case err != nil:
			b.t.Errorf("%s %d: %v", thread, n, err)
		case a.status >= 300:
			b.t.Errorf("%s %d: %d %s", thread, n, a.status, a.body)
		case method == "POST" && (json.Unmarshal(a.body, &r) != nil || r.Status != "exited" || r.Stdout != want):
			b.t.Errorf("%s %d: %s", thread, n, a.body)
		default:
			done.Add(1)
			continue
		}
		time.Sleep(200 * time.Millisecond) // one failure in the log is enough
	}
}

// TestRollingUpgrade replaces one server after the other, under load and with execs that take longer than a
// moment. No request fails, and every thread keeps its sandbox.
func TestRollingUpgrade(t *testing.T) {
	whole(t, TestDrain)
	t.Parallel()
	a, b, _ := startTwo(t, "docker", "--peer-listen", "127.0.0.1:0")
	front := &balancer{t: t}
	front.set(a, b)
	const threads = 6
	sandboxes := map[string]string{}
	for i := range threads {
		thread := fmt.Sprintf("r%d", i)
		id, err := front.pick().sandboxFor(thread)
		must(t, err)
		sandboxes[thread] = id
	}
	stop, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				front.look()
			}
		}
	}()
	var wg sync.WaitGroup
	var done atomic.Int64
	for thread := range sandboxes {
		wg.Go(func() { front.load(thread, stop, &done) })
	}
	servers := []*server{a, b}
	for i, s := range []*server{a, b} {
		long := map[string]string{}
		for thread := range sandboxes {
			long[thread] = s.background(thread, "sleep 4; echo whole")
		}
		began, before := time.Now(), done.Load()
		must(t, s.cmd.Process.Signal(syscall.SIGTERM))
		for thread, id := range long {
			eventually(t, "the exec that ran ends", func() bool { return s.status(thread, id) != "running" })
			if got := s.status(thread, id); got != "exited" {
				t.Errorf("the exec of %s that ran when its server was told to stop is %q", thread, got)
			}
		}
		<-s.done
		t.Logf("server %d ended %s after SIGTERM, %d requests were answered meanwhile", i, time.Since(began).Round(time.Millisecond), done.Load()-before)
		servers[i] = s.twin()
		front.set(servers...)
		time.Sleep(time.Second) // so that both have work again
	}
	close(stop)
	wg.Wait()
	<-looked
	for thread, id := range sandboxes {
		if got := servers[0].sandboxOf(thread); got != id {
			t.Errorf("%s has the sandbox %s, had %s", thread, got, id)
		}
	}
	if done.Load() < 10*threads {
		t.Errorf("only %d requests were answered", done.Load())
	}
	t.Logf("%d requests", done.Load())
}
