package orchestrator

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// counter is a gate that says how many processes each exec has.
type counter struct {
	*gate
	tasks map[string]uint32
}

func (c *counter) Status(ctx context.Context, req *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
	res, err := c.daemon.Status(ctx, req)
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.tasks {
		res.Msg.Execs = append(res.Msg.Execs, &sandboxv1.ExecStatus{ExecId: id, Running: true, Tasks: n})
	}
	return res, err
}

// soon is eventually with something to do before each look.
func soon(t *testing.T, what string, step func(), ok func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		step()
		return ok()
	})
}

// TestWeight: a sandbox that computes counts little, until it stops or its exec ends.
func TestWeight(t *testing.T) {
	t.Parallel()
	h := newHouseOf(t, newGate())
	exec := h.background(t, "heavy")
	h.background(t, "light")
	inst, light := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "heavy"}), h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "light"})
	host := h.driver.Host()
	began := time.Now()
	var used time.Duration
	compute := func() {
		used = time.Since(began)
		host.SetLoad(inst.ID, driver.Load{CPU: used})
	}
	weighs := func(w driver.Weight) func() bool { return func() bool { return host.Weight(inst.ID) == w } }
	soon(t, "a sandbox that computes counts little", compute, weighs(driver.LowWeight))
	if w := host.Weight(light.ID); w != driver.UsualWeight {
		t.Errorf("one that does not counts %d", w)
	}
	eventually(t, "one that stopped counts as before", weighs(driver.UsualWeight))
	began = time.Now().Add(-used)
	soon(t, "it computes again", compute, weighs(driver.LowWeight))
	if err := h.Execs.Kill(t.Context(), caller, "heavy", exec); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its exec has ended", weighs(driver.UsualWeight))
	eventually(t, "nobody watches it any more", func() bool {
		return !inst.Load.IsWatched()
	})
	h.background(t, "heavy")
	began = time.Now().Add(-used)
	soon(t, "the next exec is watched, too", compute, weighs(driver.LowWeight))
}

// TestForkBomb: the exec with the most processes is ended, and says why, in its result and in its record; others and
// the sandbox go on.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	c := &counter{gate: newGate()}
	h := newHouseWith(t, c, noTools{})
	innocent := h.background(t, "bombed")
	guilty := h.background(t, "bombed")
	newest := h.background(t, "bombed")
	c.mu.Lock()
	c.tasks = map[string]uint32{innocent: 3, guilty: 60, newest: 1}
	c.mu.Unlock()
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "bombed"})
	status := func(id string) sandbox.Result {
		res, err := h.Execs.Exec(t.Context(), caller, "bombed", id)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	var refused uint64
	fork := func() {
		refused += 100
		h.driver.Host().SetLoad(inst.ID, driver.Load{Refused: refused})
	}
	soon(t, "the bomb is ended", fork, func() bool { return status(guilty).Status != sandbox.StatusRunning })
	res := status(guilty)
	if res.Status != sandbox.StatusKilled || !strings.Contains(res.Detail, "limit of 64") || !strings.Contains(res.Detail, "limits.pids") {
		t.Errorf("%+v", res)
	}
	records, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: "t", Exec: guilty})
	ends := 0
	for _, r := range records {
		if r.Phase == audit.PhaseResult && r.Outcome == "killed" && strings.Contains(r.Detail, "limits.pids") {
			ends++
		}
	}
	if err != nil || ends != 1 {
		t.Errorf("%d terminal records, %v: %+v", ends, err, records)
	}
	for _, id := range []string{innocent, newest} {
		if r := status(id); r.Status != sandbox.StatusRunning {
			t.Errorf("an exec that does not fork: %+v", r)
		}
	}
	if h.live.Find(inst.Thread) != inst {
		t.Error("the sandbox was ended")
	}
}

// TestForkBombThatCannotBeEnded: when its exec cannot be ended, the sandbox is.
func TestForkBombThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	deaf := newGate()
	deaf.deaf = true
	h := newHouseOf(t, deaf)
	id := h.background(t, "bombed")
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "bombed"})
	var refused uint64
	soon(t, "the sandbox is ended", func() {
		refused += 100
		h.driver.Host().SetLoad(inst.ID, driver.Load{Refused: refused})
	}, func() bool { return h.live.Find(inst.Thread) != inst })
	res, err := h.Execs.Wait(t.Context(), caller, "bombed", id)
	if err != nil || res.Status != sandbox.StatusKilled || !strings.Contains(res.Detail, "limits.pids") {
		t.Errorf("%+v, %v", res, err)
	}
}
