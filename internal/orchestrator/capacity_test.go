package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func places(total int, l lifecycle.Bounds) func(*Options) {
	return func(o *Options) { o.MaxInstances, o.Lifecycle = total, l }
}

// waitFor waits until n instances wait for a place.
func (h *house) waitFor(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", n), func() bool { return h.places.Waiting() == n })
}

// TestQueue: who finds no place waits for one, is shown as starting, and its start says for how long it waited.
func TestQueue(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, places(1, lifecycle.Bounds{Queue: 5, QueueTime: time.Minute}))
	ctx := t.Context()
	h.mustExec(t, "first")
	info, err := h.Starts.Acquire(ctx, caller, "second", sandbox.AcquireOptions{Wait: 50 * time.Millisecond})
	if err != nil || info.State != sandbox.Starting {
		t.Fatalf("%+v, %v", info, err)
	}
	var wg sync.WaitGroup
	for range 5 { // one turn for all
		wg.Go(func() { h.mustExec(t, "second") })
	}
	time.Sleep(lifecycle.QueueNoted + 100*time.Millisecond)
	if n := h.places.Waiting(); n != 1 || h.boxes.Load() != 1 {
		t.Errorf("%d wait, %d were started", n, h.boxes.Load())
	}
	if !strings.Contains(h.metrics(t), "\nskerry_queue_waiting 1\n") {
		t.Error("not in the metrics")
	}
	if err := h.Threads.ReleaseSandbox(ctx, caller, "first"); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	v, err := h.Threads.Thread(ctx, caller, "second")
	if err != nil || v.Sandbox.Timings.Queue < 1000 {
		t.Errorf("%+v, %v", v.Sandbox, err)
	}
	if got := h.records(t, audit.ActionSandboxQueue); got["ok: "] != 1 || len(got) != 1 {
		t.Errorf("records: %v", got)
	}
}

func TestQueueEnds(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, places(1, lifecycle.Bounds{Queue: 2, QueueTime: 300 * time.Millisecond}))
	ctx := t.Context()
	h.mustExec(t, "first")
	// An exec waits no longer than QueueTime.
	if _, err := h.exec(t, "late", time.Minute); !errors.Is(err, sandbox.CapacityExceeded) || !strings.Contains(err.Error(), "this server runs 1 sandbox, its most (max_sandboxes)") {
		t.Errorf("late: %v", err)
	}
	h.waitFor(t, 0)
	// A caller that goes away loses its turn; the other of the two does not.
	gone, leave := context.WithCancel(ctx)
	done := make(chan error, 2)
	long, leaveLong := context.WithCancel(ctx)
	for _, c := range []context.Context{gone, long} {
		go func() {
			_, err := h.Starts.Acquire(c, caller, "gone", sandbox.AcquireOptions{Wait: time.Minute})
			done <- err
		}()
	}
	b := func() *instance.Instance { return h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "gone"}) }
	eventually(t, "both wait", func() bool {
		x := b()
		if x == nil {
			return false
		}
		return x.Turn.Waiters() == 2
	})
	leave()
	if err := <-done; !errors.Is(err, sandbox.Timeout) {
		t.Errorf("gone: %v", err)
	}
	if n := h.places.Waiting(); n != 1 {
		t.Errorf("%d wait after one of two left", n)
	}
	leaveLong()
	<-done
	h.waitFor(t, 0)
	eventually(t, "the instance is gone", func() bool { return b() == nil })
	// A turn that was promised is kept for QueueTime after the last call.
	if _, err := h.Starts.Acquire(ctx, caller, "promised", sandbox.AcquireOptions{Wait: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	h.waitFor(t, 0)
	// A release takes a turn, too.
	if _, err := h.Starts.Acquire(ctx, caller, "first2", sandbox.AcquireOptions{Wait: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if err := h.teardown.Retire(ctx, caller, h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "first2"}), sandbox.StatusKilled, "released"); err != nil {
		t.Errorf("release of one that waits: %v", err)
	}
	h.waitFor(t, 0)
	// The queue has its length.
	for i := range 2 {
		if _, err := h.Starts.Acquire(ctx, caller, fmt.Sprint("q", i), sandbox.AcquireOptions{Wait: time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Starts.Acquire(ctx, caller, "full", sandbox.AcquireOptions{}); !errors.Is(err, sandbox.CapacityExceeded) || !strings.Contains(err.Error(), "2 wait for one (queue_length 2)") {
		t.Errorf("full: %v", err)
	}
	text := h.metrics(t)
	for _, want := range []string{`reason="full"} 1`, `reason="late"} 1`} {
		if !strings.Contains(text, "skerry_queue_refused_total{"+want) {
			t.Errorf("not counted: %s", want)
		}
	}
	h.waitFor(t, 0) // the promised ones expire
	h.mustExec(t, "first")
}

// TestRoomIsMade: a waiting caller gets the place of the sandbox that was unused longest, not of a busy one
// or was used just now.
func TestRoomIsMade(t *testing.T) {
	t.Parallel()
	g := newGate()
	h := newHouseOf(t, g, places(3, lifecycle.Bounds{Queue: 5, QueueTime: time.Minute, ReclaimIdle: 10 * time.Minute}))
	h.background(t, "busy")
	for _, id := range []string{"older", "old"} {
		if _, err := h.Starts.Acquire(t.Context(), caller, id, sandbox.AcquireOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h.age(t, "busy", 3*time.Hour)
	h.age(t, "older", 2*time.Hour)
	h.age(t, "old", time.Hour)
	if _, err := h.Starts.Acquire(t.Context(), caller, "new", sandbox.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]sandbox.State{"busy": sandbox.Running, "older": sandbox.Hibernated, "old": sandbox.Running, "new": sandbox.Running} {
		if s := h.state(t, id); s != want {
			t.Errorf("%s is %q, want %q", id, s, want)
		}
	}
	if got := h.records(t, audit.ActionSandboxHibernate); got["ok: room"] != 1 || len(got) != 1 {
		t.Errorf("records: %v", got)
	}
	// "older" wants to come back: only "old" is unused for long.
	if _, err := h.Starts.Acquire(t.Context(), caller, "older", sandbox.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := h.state(t, "old"); s != sandbox.Hibernated {
		t.Errorf("old is %q", s)
	}
	if info, err := h.Starts.Acquire(t.Context(), caller, "old", sandbox.AcquireOptions{Wait: 2500 * time.Millisecond}); err != nil || info.State != sandbox.Starting {
		t.Errorf("with nobody unused for long: %+v, %v", info, err)
	}
	close(g.open)
}

// TestTenantsLimit: a tenant that has its most makes room among its own, and others are not delayed.
func TestTenantsLimit(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, places(3, lifecycle.Bounds{PerTenant: 1, Queue: 5, QueueTime: time.Minute, ReclaimIdle: time.Minute}))
	other := sandbox.Caller{Owner: sandbox.Owner{Tenant: "other", User: "u"}}
	ctx := t.Context()
	if _, err := h.Starts.Acquire(ctx, other, "theirs", sandbox.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	inst := h.live.Find(sandbox.Thread{Owner: other.Owner, ID: "theirs"})
	inst.Backdate(time.Hour) // by far the longest unused
	h.mustExec(t, "mine")
	if info, err := h.Starts.Acquire(ctx, caller, "more", sandbox.AcquireOptions{Wait: 2 * lifecycle.SweepEvery}); err != nil || info.State != sandbox.Starting {
		t.Fatalf("%+v, %v", info, err)
	}
	h.age(t, "mine", 2*time.Minute)
	if info, err := h.Starts.Acquire(ctx, caller, "more", sandbox.AcquireOptions{}); err != nil || info.State != sandbox.Running {
		t.Fatalf("%+v, %v", info, err)
	}
	if s := h.state(t, "mine"); s != sandbox.Hibernated {
		t.Errorf("mine is %q", s)
	}
	if inst.Ending() != "" {
		t.Error("another tenant's sandbox made room for one that had its most")
	}
	if err := h.Threads.ReleaseSandbox(ctx, other, "theirs"); err != nil {
		t.Fatal(err)
	}
}

// TestCrowdedHouse: many threads on few places, with sandboxes that die meanwhile: each exec has its turn.
func TestCrowdedHouse(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, places(3, lifecycle.Bounds{Queue: 100, QueueTime: time.Minute, ReclaimIdle: time.Nanosecond}))
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for range 2 {
				res, err := h.exec(t, fmt.Sprint("t", i), time.Minute)
				if err != nil || res.Status != sandbox.StatusExited {
					t.Errorf("%d: %+v, %v", i, res, err)
				}
			}
		})
	}
	wg.Wait()
	if n := h.places.Waiting(); n != 0 {
		t.Errorf("%d wait", n)
	}
}
