package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/files"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// forAll is one set of rules for each user.
type forAll limits.Rules

func (f forAll) Of(sandbox.Caller) (tenant, user, key limits.Rules) {
	return limits.Rules{}, limits.Rules(f), limits.Rules{}
}

func newLimitedHouse(t *testing.T, g *gate, r limits.Rules, change ...func(*Options)) *house {
	t.Helper()
	return newLimitedHouseWith(t, g, noTools{}, r, change...)
}

func newLimitedHouseWith(t *testing.T, g *gate, hub mcpServers, r limits.Rules, change ...func(*Options)) *house {
	t.Helper()
	var l *limits.Gate
	h := newHouseWith(t, g, hub, func(o *Options) {
		l = limits.New(limits.Options{State: o.Store, Table: forAll(r), Server: "test", Refused: o.Metrics.Limited})
		o.Limits = l
		for _, c := range change {
			c(o)
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return h
}

func limitOf(t *testing.T, err error) string {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Limit == nil {
		t.Fatalf("want a limit, got %v", err)
	}
	return e.Limit.Limit
}

func (h *house) used(t *testing.T) sandbox.UsageReport {
	t.Helper()
	u, err := h.o.Limits.Usage(t.Context(), caller, sandbox.UsageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestExecLimit: an exec takes a place until it ends, however it ends, and a refused exec takes none.
func TestExecLimit(t *testing.T) {
	t.Parallel()
	g := newGate()
	h := newLimitedHouse(t, g, limits.Rules{Execs: 2})
	first := h.background(t, "a")
	h.background(t, "b")
	if got := limitOf(t, h.start(t, "c")); got != limits.Execs {
		t.Fatal(got)
	}
	if _, err := h.Threads.Thread(t.Context(), caller, "c"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a refused exec made a thread: %v", err)
	}
	if err := h.Execs.Kill(t.Context(), caller, "a", first); err != nil {
		t.Fatal(err)
	}
	h.background(t, "a")
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "b"); err != nil { // its exec is lost
		t.Fatal(err)
	}
	eventually(t, "the place of a lost exec", func() bool { return h.start(t, "a") == nil })
	eventually(t, "execs are counted", func() bool { return h.used(t).Total.Execs == 2 && h.used(t).Total.Refused > 0 })
	if !strings.Contains(h.metrics(t), `skerry_limit_refused_total{limit="execs",scope="user"}`) {
		t.Error("no metric")
	}
}

func (h *house) start(t *testing.T, id string) error {
	t.Helper()
	_, err := h.Runs.RunCommand(t.Context(), caller, id, sandbox.Command{Shell: "serve", Background: true, Timeout: time.Hour})
	return err
}

// TestSandboxLimit: a refused sandbox leaves nothing; a removed one makes room; the thread's next one is no second.
func TestSandboxLimit(t *testing.T) {
	t.Parallel()
	g := newGate()
	close(g.open)
	h := newLimitedHouse(t, g, limits.Rules{Sandboxes: 1})
	h.mustExec(t, "a")
	_, err := h.exec(t, "b", time.Minute)
	if got := limitOf(t, err); got != limits.Sandboxes {
		t.Fatal(got)
	}
	if n := h.boxes.Load(); n != 1 {
		t.Errorf("%d sandboxes were started", n)
	}
	for range 3 {
		if err := h.Threads.ReleaseSandbox(t.Context(), caller, "a"); err != nil {
			t.Fatal(err)
		}
		h.mustExec(t, "a")
	}
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "a"); err != nil {
		t.Fatal(err)
	}
	h.mustExec(t, "b")
	eventually(t, "sandboxes are counted", func() bool { u := h.used(t).Total; return u.SandboxStarts == 5 && u.SandboxSeconds > 0 })
}

// TestCPULimit: what the driver measured counts, also what a sandbox computed last.
func TestCPULimit(t *testing.T) {
	t.Parallel()
	g := newGate()
	h := newLimitedHouse(t, g, limits.Rules{CPUSecondsPerDay: 10})
	h.background(t, "a")
	id := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "a"}).ID
	h.driver.Host().SetLoad(id, driver.Load{CPU: 4 * time.Second})
	eventually(t, "CPU time is counted", func() bool { return h.used(t).Total.CPUSeconds == 4 })
	h.driver.Host().SetLoad(id, driver.Load{CPU: 11 * time.Second})
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last CPU time is counted", func() bool { return h.used(t).Total.CPUSeconds == 11 })
	if got := limitOf(t, h.start(t, "b")); got != limits.CPU {
		t.Fatal(got)
	}
}

// oneTool is a hub with a tool.
type oneTool struct {
	noTools
	calls int
}

func (*oneTool) ResolveAmong(context.Context, sandbox.Thread, sandbox.ToolRef, func(sandbox.Tool) bool) (sandbox.Tool, error) {
	return sandbox.Tool{Printed: "x__y"}, nil
}

func (*oneTool) Arguments(_ context.Context, _ sandbox.Thread, _ sandbox.Tool, input []byte) ([]byte, error) {
	return input, nil
}

func (o *oneTool) CallChecked(context.Context, sandbox.Thread, sandbox.Tool, []byte, sandbox.ToolWatch) (sandbox.ToolResult, error) {
	o.calls++
	return sandbox.ToolResult{Result: json.RawMessage(`1`)}, nil
}

// TestToolLimit: a call that is refused is not made, and recorded as denied.
func TestToolLimit(t *testing.T) {
	t.Parallel()
	g := newGate()
	hub := &oneTool{}
	h := newLimitedHouseWith(t, g, hub, limits.Rules{ToolCallsPerDay: 1})
	call := func() error {
		_, err := h.Calls.CallTool(t.Context(), caller, "a", sandbox.ToolRef{Printed: "x__y"}, json.RawMessage(`{}`))
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	if got := limitOf(t, call()); got != limits.ToolCalls || hub.calls != 1 {
		t.Fatal(got, hub.calls)
	}
	eventually(t, "the refusal is recorded", func() bool {
		for said, n := range h.records(t, audit.ActionToolCall) {
			if strings.HasPrefix(said, "denied: the user") && n == 1 {
				return true
			}
		}
		return false
	})
}

// TestDiskLimit: who has too many files may delete some, and read them, and do nothing else.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	g := newGate()
	close(g.open)
	var h *house
	var meter *files.Meter
	var later atomic.Int64
	h = newLimitedHouse(t, g, limits.Rules{}, func(o *Options) {
		meter = files.NewMeter(o.Storage.DataDir, workspace.New(workspace.Options{DataDir: o.Storage.DataDir, UIDs: o.Store, Log: o.Log}))
		l := limits.New(limits.Options{
			State: o.Store, Table: forAll{DiskMiB: 1}, Server: "disk", Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
			Disk: meter.Used,
		})
		t.Cleanup(func() { _ = l.Close() })
		o.Limits = l
	})
	write := func(id string) error {
		return h.Files.ChangeFiles(t.Context(), caller, id, audit.ActionFileWrite, "/mnt/user-data/x", func(fs *paths.FS) (int64, error) {
			w, err := fs.Write(t.Context(), "/mnt/user-data/workspace/x", strings.NewReader(strings.Repeat("x", 600<<10)), false)
			return w.Bytes, err
		})
	}
	if err := errors.Join(write("a"), write("b")); err != nil {
		t.Fatal(err)
	}
	if n, err := meter.Used(t.Context(), caller.Tenant, ""); err != nil || n < 1200<<10 {
		t.Fatal(n, err)
	}
	later.Store(int64(time.Minute)) // what was measured before there was a file is old by then
	var err error
	eventually(t, "too many files are seen", func() bool { err = h.start(t, "a"); return err != nil })
	if got := limitOf(t, err); got != limits.Disk {
		t.Fatal(got)
	}
	if got := limitOf(t, write("a")); got != limits.Disk {
		t.Fatal(got)
	}
	err = h.Files.ChangeFiles(t.Context(), caller, "a", audit.ActionFileDelete, "/mnt/user-data/x", func(fs *paths.FS) (int64, error) { return 0, nil })
	if err != nil {
		t.Fatal(err)
	}
}

// heldRules are rules that cannot be read while held is locked.
type heldRules struct{ held *sync.Mutex }

func (h heldRules) Of(sandbox.Caller) (tenant, user, key limits.Rules) {
	h.held.Lock()
	defer h.held.Unlock()
	return limits.Rules{}, limits.Rules{Sandboxes: 1000}, limits.Rules{}
}

// TestClaimGivenUp: a thread is deleted while its sandbox, which waited in the pool, is held up by the limits. The
// sandbox is removed, and the pool has another one.
func TestClaimGivenUp(t *testing.T) {
	t.Parallel()
	var held sync.Mutex
	h, e := pooledHouse(t, sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600}, func(o *Options) {
		l := limits.New(limits.Options{State: o.Store, Table: heldRules{&held}, Server: "test", Refused: o.Metrics.Limited})
		t.Cleanup(func() { _ = l.Close() })
		o.Limits = l
	})
	h.full(t, 1)
	held.Lock()
	failed := make(chan error, 1)
	go func() {
		_, err := h.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
		failed <- err
	}()
	eventually(t, "the thread has an instance", func() bool { return h.live.Find(mainThread) != nil })
	inst := h.live.Find(mainThread)
	if inst.Pooled == nil {
		t.Error("it did not wait in the pool")
	}
	if !inst.Turn.GiveUp(sandbox.Errorf(sandbox.Conflict, "the thread was deleted")) {
		t.Error("it began before the limits let it")
	}
	held.Unlock()
	select {
	case <-inst.Gone:
	case <-t.Context().Done():
	}
	if err := <-failed; err != nil && sandbox.KindOf(err) != sandbox.Conflict {
		t.Error(err)
	}
	if list, err := e.List(t.Context(), nil); err != nil || slices.ContainsFunc(list, func(i sandbox.Instance) bool { return i.ID == inst.ID }) {
		t.Errorf("the sandbox of a claim that was given up is still there: %v, %v", list, err)
	}
	if h.pool.Knows(inst.ID) {
		t.Error("the pool still knows it")
	}
}
