package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// What a server does all the time, whatever its sandboxes do, with as many of them as it may have. A crowd has
// all that these rounds look at (instances, leases, claims, run folders, sandboxes that the driver knows), and no
// sockets: a process has fewer descriptors than the largest of them needs.

// crowd puts instances of the caller into a house that has no others. They are taken out in the end.
func (h *house) crowd(t testing.TB, n int) []*instance.Instance {
	t.Helper()
	ctx := t.Context()
	list := make([]*instance.Instance, n)
	t.Cleanup(func() {
		for _, inst := range list {
			if inst != nil {
				h.teardown.Forget(inst)
				h.owners.Release(inst.Owned())
			}
		}
	})
	tmpl := h.o.Templates[h.o.Default]
	views, err := skills.NewViews(filepath.Join(t.TempDir(), "skills"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		inst := instance.New(sandbox.Thread{Owner: caller.Owner, ID: "crowd-" + strconv.Itoa(i)}, tmpl,
			sandbox.Info{ID: sandbox.NewID(), State: sandbox.Running, Template: tmpl.Name, CreatedAt: time.Now()})
		inst.Seat.Slot = h.places.Seat(caller.Tenant)
		close(inst.Ready)
		inst.Dir = instance.RunDir(filepath.Join(h.runRoot, string(inst.ID)))
		own, err := h.Orchestrator.owners.Acquire(ctx, inst.Thread, "")
		if err != nil {
			t.Fatal(err)
		}
		inst.SetOwnership(own)
		list[i] = inst
		if err := h.owners.SetSandbox(ctx, inst.Owned(), inst.ID); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(string(inst.Dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if inst.Skills.Folder, err = views.Open(inst.Dir.View()); err != nil {
			t.Fatal(err)
		}
		spec := h.hooks.ThreadSpec(inst)
		spec.UID, spec.Mounts = workspace.FirstUID, nil
		if _, err := h.driver.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
		if _, err := h.live.Put(inst.Thread, func(*instance.Instance) (*instance.Instance, error) { return inst, nil }); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// rounds are what is done for all sandboxes again and again, by how often.
func (h *house) rounds() map[string]func() {
	orphans := map[sandbox.ID]time.Time{}
	return map[string]func(){
		"skills-250ms": h.Skills.Look,
		"lives-1s":     func() { h.Lifecycle.Look(time.Now()) },
		"peers-1s":     func() { h.takeover.LookAtPeers(1, map[string]time.Time{}) },
		"leases-3s":    h.renewal.RenewAll,
		"reap-10s":     func() { h.reaper.Reconcile(orphans) },
		"event":        func() { h.live.FindID("skerry-0000") },
	}
}

// withRedis starts a Redis for a house.
func withRedis(t testing.TB) func(*Options) {
	url := redistest.Start(t).URL()
	return func(o *Options) {
		st, err := store.Open(context.Background(), store.Options{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		o.Store = st
	}
}

// commands counts what is asked of the state, but for the copies of audit records, which come when they come.
type commands struct{ n atomic.Int64 }

func (c *commands) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if !strings.Contains(cmd.String(), ":audit") {
			c.n.Add(1)
		}
	}
}

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

// TestCommandsDoNotGrow: a call, and a round of what is done all the time, asks as much of the state with 1,000
// sandboxes as with ten; but leases are renewed by one command for each 500, and some again that ran out on a slow machine.
func TestCommandsDoNotGrow(t *testing.T) {
	t.Parallel()
	large := 1000
	if testing.Short() {
		large = 200
	}
	few, many := commandsWith(t, 10), commandsWith(t, large)
	for name, n := range many {
		if most := int64(20); name == "leases-3s" && n <= most {
			continue
		}
		if n != few[name] {
			t.Errorf("%s: %d commands with ten sandboxes, %d with %d", name, few[name], n, large)
		}
	}
	if few["leases-3s"] != 1 || few["acquire"] != 0 {
		t.Errorf("%d commands renew ten leases, %d acquire what is there", few["leases-3s"], few["acquire"])
	}
}

// commandsWith counts with n sandboxes.
func commandsWith(t *testing.T, n int) map[string]int64 {
	h := newHouseWith(t, daemon{run: exits}, noTools{}, func(o *Options) { o.MaxInstances, o.quiet = 2*n, true })
	for _, inst := range h.crowd(t, n) {
		_, err := h.o.Store.ChangeThread(t.Context(), inst.Thread, func(*sandbox.ThreadInfo, bool) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	counted := &commands{}
	h.o.Store.Redis().AddHook(counted)
	ok := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	what := h.rounds()
	what["acquire"] = func() {
		_, err := h.Starts.Acquire(t.Context(), caller, "crowd-7", sandbox.AcquireOptions{})
		ok(err)
	}
	what["start, release"] = func() {
		_, err := h.Starts.Acquire(t.Context(), caller, "fresh", sandbox.AcquireOptions{})
		ok(err)
		ok(h.Threads.ReleaseSandbox(t.Context(), caller, "fresh"))
	}
	what["list"] = func() {
		list, err := h.Threads.Threads(t.Context(), caller, sandbox.ThreadFilter{Limit: 5})
		if ok(err); len(list.Items) != 5 {
			t.Errorf("a page of %d", len(list.Items))
		}
	}
	least := map[string]int64{}
	for name, do := range what {
		for try := range 5 { // the first one loads scripts
			h.renewal.RenewAll() // on a slow machine the leases ran out meanwhile
			before := counted.n.Load()
			do()
			if n := counted.n.Load() - before; try == 0 || n < least[name] {
				least[name] = n
			}
		}
	}
	return least
}

// BenchmarkRounds is one round of each kind, by the number of sandboxes that live.
func BenchmarkRounds(b *testing.B) {
	for _, n := range []int{10, 100, 1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			h := newHouseWith(b, daemon{run: exits}, noTools{}, withRedis(b), func(o *Options) { o.MaxInstances = 2 * n })
			h.crowd(b, n)
			for name, round := range h.rounds() {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						round()
					}
				})
			}
		})
	}
}
