package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/tools/call"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
)

// town is what several servers share: a data folder, a store, and a machine with sandboxes.
type town struct {
	*testing.T
	data   string
	store  *store.Store
	host   *memory.Host
	boxes  atomic.Int64 // started
	mu     sync.Mutex
	dead   map[string]bool
	silent map[string]bool
	orchs  map[string]*Orchestrator
	wait   sync.WaitGroup
	stuck  atomic.Bool // no sandbox can be removed
	far    bool        // sandboxes have disks of their own
}

// stubborn is a driver that can be told to remove nothing.
type stubborn struct {
	machine
	*town
}

func (s *stubborn) Remove(ctx context.Context, id sandbox.ID) error {
	if s.stuck.Load() {
		return sandbox.Errorf(sandbox.Unavailable, "the engine is away")
	}
	return s.machine.Remove(ctx, id)
}

// neighbour is a replica as the others see it.
type neighbour struct {
	*town
	id string
}

func (n neighbour) ID() string { return n.id }

func (n neighbour) Alive(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	dead, known := n.dead[id]
	return known && !dead
}

func (n neighbour) Answers(_ context.Context, id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.silent[id]
}

func (n neighbour) TakesWork(_ context.Context, id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.orchs[id]
	return r != nil && !n.dead[id] && !n.silent[id] && !r.Shutdown.Draining()
}

func (n neighbour) Others() (ids []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, dead := range n.dead {
		if id != n.id && !dead {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (n neighbour) Unsettled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, dead := range n.dead {
		if dead {
			return true
		}
	}
	return false
}

func newTown(t *testing.T) *town { return newTownOf(t, daemon{}) }

// newTownOf makes a town whose sandboxes have the daemon.
func newTownOf(t *testing.T, d sandboxv1connect.SandboxServiceHandler) *town {
	t.Helper()
	w := &town{T: t, data: t.TempDir(), dead: map[string]bool{}, silent: map[string]bool{}, orchs: map[string]*Orchestrator{}, far: remoteSandbox}
	st, err := store.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.store = st
	w.host = memory.NewHost(func(sandbox.Spec) http.Handler {
		w.boxes.Add(1)
		mux := http.NewServeMux()
		mux.Handle(sandboxv1connect.NewSandboxServiceHandler(d))
		return mux
	}, nil)
	t.Cleanup(func() {
		w.wait.Wait()
		w.host.Stop()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// settle starts a server of the town.
func (w *town) settle(id string, change ...func(*Options)) *Orchestrator {
	w.Helper()
	ok := func(err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	w.mu.Lock()
	w.dead[id] = false
	slot := len(w.dead)
	w.mu.Unlock()
	records, err := audit.Open(audit.Options{Dir: filepath.Join(w.data, "audit"), Slot: slot, Log: log})
	ok(err)
	switches, err := extensions.New(filepath.Join(w.data, "extensions_config.json"))
	ok(err)
	skills, err := skill.Open(skill.Options{
		Dir: filepath.Join(w.data, "skills"), Users: filepath.Join(w.data, "tenants"), Log: log,
		State: func(o sandbox.Owner) (skill.State, error) { return switches.State(o) },
	})
	ok(err)
	views, err := skill.NewViews(filepath.Join(w.data, "skills", id))
	ok(err)
	wrappers, err := codeapi.NewStore(filepath.Join(w.data, "code-api"))
	ok(err)
	hands := &stubborn{machine: newMachine(memory.Options{Host: w.host, Log: log}, w.far), town: w}
	var engine driver.Driver = hands
	if remote, ok := hands.machine.(remotePart); ok {
		engine = struct {
			*stubborn
			remotePart
		}{hands, remote}
	}
	limits := sandbox.Limits{MemoryBytes: 1 << 26, CPUMillis: 1000, PIDs: 64, OpenFiles: 64, FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1 << 20}
	calls := call.NewRecorder(records, metrics.New("test"))
	o := Options{
		Storage:  Storage{DataDir: w.data},
		Replicas: Replicas{Peers: neighbour{w, id}},
		Tools:    Tools{Hub: policy.New(policy.Options{Hub: noTools{}, Upstream: noTools{}, Changes: noTools{}}), CodeAPI: wrappers, Bridge: bridge.New(bridge.Options{Calls: call.NewMaker(call.MakerOptions{Guard: policy.New(policy.Options{Hub: noTools{}, Upstream: noTools{}, Changes: noTools{}}), Records: calls, Log: log}), Refusals: calls, Log: log}), CodeSettings: func(string) sandbox.CodeSettings { return sandbox.DefaultCodeSettings() }, Commands: func(sandbox.Owner) ([]prompt.Command, error) { return nil, nil }},
		Driver:   engine, Store: w.store, Audit: records, Skills: skills, Views: views, Switches: switches,
		Templates: map[string]instance.Template{"base": {Template: sandbox.Template{Name: "base", Runtime: "runc", Limits: limits}}},
		Default:   "base", Daemon: "/bin/true", Install: "install", Instances: Instances{MaxInstances: 100}, Metrics: metrics.New("test"), StartTime: 20 * time.Second, Log: log,
	}
	for _, c := range change {
		c(&o)
	}
	r, err := New(w.Context(), o)
	ok(err)
	w.mu.Lock()
	w.orchs[id] = r
	w.mu.Unlock()
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := errors.Join(r.Close(ctx), hands.Close(), records.Close()); err != nil {
			w.Errorf("close: %v", err)
		}
	})
	return r
}

// die makes the others take a server for ended. It goes on all the same, as a process does that was
// stopped for a while; its connections break once another one has claimed what they were for.
func (w *town) die(r *Orchestrator) {
	w.mu.Lock()
	w.dead[r.peers.ID()] = true
	w.mu.Unlock()
	for _, inst := range r.live.All() {
		w.wait.Go(func() {
			for {
				c, ok, err := r.owners.Book.Read(inst.Thread)
				if err != nil || !ok || c.Replica != r.peers.ID() {
					break
				}
				time.Sleep(time.Millisecond)
			}
			inst.Conn.Link.Close()
		})
	}
}

func (w *town) eventually(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within 30 s: %s", what)
		}
	}
}

var mainThread = sandbox.Thread{Owner: caller.Owner, ID: "main"}

// TestTwoServersOneSandbox: whichever server is asked, the thread gets one sandbox, and all learn who runs it.
func TestTwoServersOneSandbox(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	servers := []*Orchestrator{w.settle("a"), w.settle("b")}
	ids := map[string]*Orchestrator{"a": servers[0], "b": servers[1]}
	var mu sync.Mutex
	got := map[sandbox.ID]int{}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			at := servers[i%2]
			replica, done, err := at.Placement.Hold(t.Context(), caller, "main")
			if err == nil && replica != "" {
				at = ids[replica]
				replica, done, err = at.Placement.Hold(t.Context(), caller, "main")
			}
			if err != nil || replica != "" {
				t.Errorf("held by %q, %v", replica, err)
				return
			}
			defer done()
			info, err := at.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			got[info.ID]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(got) != 1 || w.boxes.Load() != 1 {
		t.Fatalf("sandboxes %v, %d started", got, w.boxes.Load())
	}
	for _, r := range servers {
		list, err := r.Threads.Threads(t.Context(), caller, sandbox.ThreadFilter{})
		views := list.Items
		if err != nil || len(views) != 1 || views[0].Sandbox == nil || views[0].Sandbox.State != sandbox.Running {
			t.Errorf("%s lists %+v, %v", r.peers.ID(), views, err)
		}
	}
	owner, other := servers[0], servers[1]
	if owner.live.Find(mainThread) == nil {
		owner, other = other, owner
	}
	if _, err := other.Runs.RunCommand(t.Context(), caller, "main", sandbox.Command{Shell: "true"}); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("the other server runs it, too: %v", err)
	}
	if err := owner.Threads.ReleaseSandbox(t.Context(), caller, "main"); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := other.owners.Book.Read(mainThread); ok || err != nil {
		t.Errorf("a claim is left: %v, %v", ok, err)
	}
	if _, err := w.store.Lease(t.Context(), mainThread); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a lease is left: %v", err)
	}
	if len(owner.owners.All())+len(other.owners.All()) != 0 {
		t.Error("a hold is left")
	}
}

// TestTakenOver: another server adopts the sandbox of a server that ended. If the first one goes on, because
// it was only stopped, it lets go of the sandbox. Its execs end there, and it does not remove the sandbox.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a, b := w.settle("a"), w.settle("b")
	info, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	id, err := a.Runs.RunCommand(t.Context(), caller, "main", sandbox.Command{Shell: "sleep 100", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if owner, err := b.Placement.Owner(t.Context(), caller, "main"); owner != "a" || err != nil {
		t.Fatalf("owner %q, %v", owner, err)
	}
	hands := memory.New(memory.Options{Host: w.host})
	defer hands.Close()                                                         //nolint:errcheck // a driver of the test
	if err := hands.Weigh(t.Context(), info.ID, driver.LowWeight); err != nil { // as a, which dies before it takes that back
		t.Fatal(err)
	}
	w.die(a)
	if owner, err := b.Placement.Owner(t.Context(), caller, "main"); owner != "" || err != nil {
		t.Fatalf("owner %q, %v", owner, err)
	}
	if inst := b.live.Find(mainThread); inst == nil || inst.ID != info.ID {
		t.Fatalf("not adopted: %+v", inst)
	}
	w.eventually("it counts as much as others", func() bool { return w.host.Weight(info.ID) == driver.UsualWeight })
	res, err := a.Execs.Wait(t.Context(), caller, "main", id)
	if err != nil || res.Status != sandbox.StatusLost {
		t.Errorf("the exec of the former server: %+v, %v", res, err)
	}
	w.eventually("the former server lets go", func() bool { return a.live.Find(mainThread) == nil && len(a.owners.All()) == 0 })
	w.mu.Lock()
	w.dead["a"] = false
	w.mu.Unlock()
	if owner, err := a.Placement.Owner(t.Context(), caller, "main"); owner != "b" || err != nil {
		t.Errorf("for the former server the owner is %q, %v", owner, err)
	}
	if _, err := b.Runs.RunCommand(t.Context(), caller, "main", sandbox.Command{Shell: "true", Timeout: time.Minute}); err != nil {
		t.Errorf("run in the adopted sandbox: %v", err)
	}
	if n := w.boxes.Load(); n != 1 {
		t.Errorf("%d sandboxes were started", n)
	}
}

// TestStaleRemovalIsRefused: a server that does not know yet that its sandbox is another one's, and removes it.
func TestStaleRemovalIsRefused(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a, b := w.settle("a"), w.settle("b")
	info, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := a.live.Find(mainThread)
	w.die(a)
	if _, err := b.Placement.Owner(t.Context(), caller, "main"); err != nil {
		t.Fatal(err)
	}
	stale.End(sandbox.StatusKilled)
	a.teardown.Remove(t.Context(), stale)
	if _, err := b.o.Driver.Inspect(t.Context(), info.ID); err != nil {
		t.Errorf("the sandbox is gone: %v", err)
	}
	c, ok, err := b.owners.Book.Read(mainThread)
	if err != nil || !ok || c.Replica != "b" || c.Sandbox != info.ID {
		t.Errorf("the claim is %+v, %v, %v", c, ok, err)
	}
	if a.live.Find(mainThread) != nil || len(a.owners.All()) != 0 {
		t.Error("the former server has not let go")
	}
}

// TestRedisLosesAll: neither is a sandbox taken from its server, nor is a second one started; the lease comes back.
func TestRedisLosesAll(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a, b := w.settle("a"), w.settle("b")
	if _, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Redis().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if replica, _, err := b.Placement.Hold(t.Context(), caller, "main"); replica != "a" || err != nil {
		t.Errorf("held by %q, %v", replica, err)
	}
	w.eventually("the lease is there again", func() bool {
		l, err := w.store.Lease(t.Context(), mainThread)
		return err == nil && l.Owner == "a"
	})
	w.eventually("the claim has its token", func() bool {
		l, err := w.store.Lease(t.Context(), mainThread)
		c, ok, e := b.owners.Book.Read(mainThread)
		return err == nil && e == nil && ok && c.Token == l.Token
	})
	if inst := a.live.Find(mainThread); inst == nil || !a.owners.Confirm(inst.Owned()) {
		t.Error("the server gave its sandbox up")
	}
	list, err := b.Threads.Threads(t.Context(), caller, sandbox.ThreadFilter{})
	if err != nil || len(list.Items) != 0 { // the list of threads was in Redis only
		t.Errorf("%+v, %v", list, err)
	}
	if n := w.boxes.Load(); n != 1 {
		t.Errorf("%d sandboxes were started", n)
	}
}

// TestSecondServerStarts: the start of another server leaves the sandboxes of the first one alone, and their folders.
func TestSecondServerStarts(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a := w.settle("a")
	info, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := w.settle("b")
	if b.live.Find(mainThread) != nil || a.live.Find(mainThread) == nil || a.live.Find(mainThread).ID != info.ID {
		t.Error("the second server took the sandbox of the first one")
	}
	if err := a.live.Find(mainThread).Conn.Hello(t.Context()); err != nil {
		t.Errorf("the sandbox does not answer: %v", err)
	}
	b.reaper.RemoveOrphan(t.Context(), sandbox.Instance{ID: info.ID, Labels: map[string]string{
		sandbox.LabelTenant: mainThread.Tenant, sandbox.LabelUser: mainThread.User, sandbox.LabelThread: mainThread.ID,
	}})
	if _, err := b.o.Driver.Inspect(t.Context(), info.ID); err != nil {
		t.Errorf("a sandbox that is claimed was taken for an orphan: %v", err)
	}
}

// TestSilentServer: from a server that is there but does not answer a thread is taken only when its lease ran out.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a, b := w.settle("a"), w.settle("b")
	if _, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.silent["a"] = true
	w.mu.Unlock()
	long := map[string]time.Time{"a": time.Now().Add(-2 * ownership.LeaseTime)}
	b.takeover.TakeOverSilent(long)
	if b.live.Find(mainThread) != nil {
		t.Fatal("taken although the lease is there")
	}
	first := map[string]time.Time{}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	a.live.Find(mainThread).Conn.Link.Close()
	page, err := b.owners.Book.Lock(t.Context(), mainThread) // so that a does not take its lease again
	must(err)
	c, _, err := page.Record()
	must(err)
	must(w.store.ReleaseLease(t.Context(), mainThread, "a"))
	must(page.Write(ownerrecord.Of(mainThread, "a", c.Token+1, c.Sandbox)))
	page.Close()
	b.takeover.TakeOverSilent(first)
	if b.live.Find(mainThread) != nil || first["a"].IsZero() {
		t.Fatal("taken at the first look")
	}
	b.takeover.TakeOverSilent(long)
	if b.live.Find(mainThread) == nil {
		t.Fatal("not taken")
	}
}

// TestNotRemoved: as long as a sandbox cannot be removed its thread gets no second one, on no server.
func TestNotRemoved(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a, b := w.settle("a"), w.settle("b")
	info, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.stuck.Store(true)
	if err := a.Threads.ReleaseSandbox(t.Context(), caller, "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{}); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("a second sandbox is started: %v", err)
	}
	if owner, err := b.Placement.Owner(t.Context(), caller, "main"); owner != "a" || err != nil {
		t.Errorf("owner %q, %v", owner, err)
	}
	w.stuck.Store(false)
	w.eventually("the sandbox is removed, and its claim", func() bool {
		_, err := b.o.Driver.Inspect(t.Context(), info.ID)
		_, claimed, e := b.owners.Book.Read(mainThread)
		return errors.Is(err, sandbox.NotFound) && !claimed && e == nil
	})
	if _, err := b.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestLeftBehindIsSeen: a look at the owner records while a thread is still in use does not hide that its sandbox could not be
// removed: the next look takes it.
func TestLeftBehindIsSeen(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a := w.settle("a")
	a.takeover.Stop() // the looks are those of this test
	own, err := a.owners.Acquire(t.Context(), mainThread, "")
	if err != nil {
		t.Fatal(err)
	}
	own.Unremoved.Store(true)
	a.owners.LeftBehind.Store(true)
	a.takeover.TakeOverExited(t.Context()) // the thread is in use: nothing is left behind yet
	a.owners.Release(own)
	eventually(t, "the next look reads the owner records", a.owners.LeftBehind.Load)
	a.takeover.TakeOverExited(t.Context())
	eventually(t, "the owner record goes", func() bool {
		_, there, err := a.owners.Book.Read(mainThread)
		return !there && err == nil
	})
}
