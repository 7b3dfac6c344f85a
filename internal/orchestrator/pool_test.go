package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// engine is the memory driver as an engine that can hang, and whose image can be replaced.
type engine struct {
	machine
	hangs atomic.Bool
	image atomic.Value

	mu   sync.Mutex
	live int // made and not removed
	most int
}

func (e *engine) wait(ctx context.Context) error {
	for e.hangs.Load() {
		select {
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the engine hangs")
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (e *engine) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if err := e.wait(ctx); err != nil {
		return sandbox.Instance{}, err
	}
	e.mu.Lock()
	e.live++
	e.most = max(e.most, e.live)
	e.mu.Unlock()
	return e.machine.Create(ctx, spec)
}

func (e *engine) Remove(ctx context.Context, id sandbox.ID) error {
	if err := e.wait(ctx); err != nil {
		return err
	}
	if _, err := e.machine.Inspect(ctx, id); err == nil {
		e.mu.Lock()
		e.live--
		e.mu.Unlock()
	}
	return e.machine.Remove(ctx, id)
}

func (e *engine) Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	if err := e.wait(ctx); err != nil {
		return sandbox.Instance{}, err
	}
	return e.machine.Inspect(ctx, id)
}

func (e *engine) List(ctx context.Context, labels map[string]string) ([]sandbox.Instance, error) {
	if err := e.wait(ctx); err != nil {
		return nil, err
	}
	return e.machine.List(ctx, labels)
}

func (e *engine) ImageNow(context.Context, string) (string, error) {
	image, _ := e.image.Load().(string)
	return image, nil
}

// pooledHouse is a house whose default template has a pool, which is full.
func pooledHouse(t testing.TB, p sandbox.Pool, change ...func(*Options)) (*house, *engine) {
	t.Helper()
	e := &engine{}
	e.image.Store("image-1")
	h := newHouseWith(t, daemon{run: exits}, noTools{}, append([]func(*Options){func(o *Options) {
		e.machine, o.Driver = o.Driver.(machine), e
		if remote, ok := e.machine.(remotePart); ok {
			o.Driver = struct {
				*engine
				remotePart
			}{e, remote}
		}
		tmpl := o.Templates["base"]
		tmpl.Pool = &p
		o.Templates["base"], o.MaxInstances = tmpl, 200
	}}, change...)...)
	return h, e
}

func (h *house) waiting() []sandbox.ID {
	var ids []sandbox.ID
	for _, x := range h.pool.Waiting() {
		ids = append(ids, x.ID)
	}
	return ids
}

func (h *house) full(t testing.TB, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(h.waiting()) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want %d", len(h.waiting()), n)
		}
	}
}

func (h *house) sandboxOf(t *testing.T, id string) sandbox.Info {
	t.Helper()
	v, err := h.Threads.Thread(t.Context(), caller, id)
	if err != nil || v.Sandbox == nil {
		t.Fatalf("thread %s: %+v, %v", id, v, err)
	}
	return *v.Sandbox
}

// TestClaimAsksNoEngine: while the engine answers nothing at all, new threads get the sandboxes that wait, each its own.
func TestClaimAsksNoEngine(t *testing.T) {
	t.Parallel()
	h, e := pooledHouse(t, sandbox.Pool{Target: 3, Min: 1, Burst: 3, MaxAgeSeconds: 3600})
	h.full(t, 3)
	waiting := h.waiting()
	e.hangs.Store(true)
	got := map[sandbox.ID]bool{}
	for i := range 3 {
		name := fmt.Sprint("t", i)
		h.mustExec(t, name)
		info := h.sandboxOf(t, name)
		if !info.Warm || !slices.Contains(waiting, info.ID) || got[info.ID] {
			t.Errorf("%s has %+v; %v waited", name, info, waiting)
		}
		got[info.ID] = true
	}
	e.hangs.Store(false)
	if got := h.records(t, audit.ActionSandboxClaim); got["ok: "] != 3 {
		t.Errorf("records of claims: %v", got)
	}
	h.full(t, 3) // again
	m := h.metrics(t)
	for _, want := range []string{
		`skerry_pool_sandboxes{state="waiting",template="base"} 3`, `skerry_pool_target{template="base"} 3`,
		fmt.Sprintf(`skerry_sandbox_start_seconds_count{driver=%q,phase="first_exec",runtime="runc",start="warm",template="base"} 3`, h.driverName(t)),
	} {
		if !strings.Contains(m, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestClaimedIsTheThreads: the folder that the sandbox was made with is the thread's, with its uid, and outlives the sandbox;
// with files a thread starts cold where they cannot be copied into a sandbox, and has them either way.
func TestClaimedIsTheThreads(t *testing.T) {
	t.Parallel()
	h, _ := pooledHouse(t, sandbox.Pool{Target: 2, Min: 2, Burst: 2, MaxAgeSeconds: 3600})
	h.publicSkill(t, "one")
	h.publicSkill(t, "two")
	if err := h.extensions.SetEnabled(t.Context(), caller.Owner, "skills", "two", false); err != nil {
		t.Fatal(err)
	}
	h.full(t, 2)
	before, err := os.Stat(filepath.Join(h.nextPooled(t).Files, "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{Env: map[string]string{"A": "1"}, Skills: []string{"one"}}); err != nil {
		t.Fatal(err)
	}
	inst := h.live.Find(mainThread)
	after, err := os.Stat(filepath.Join(h.folders.Dir(mainThread), "workspace"))
	if err != nil || !os.SameFile(before, after) || !inst.Info().Warm {
		t.Errorf("the thread's folder is not the one that the sandbox has: %v", err)
	}
	if uid, err := workspace.UID(h.folders.Dir(mainThread)); err != nil || uid != inst.UID {
		t.Errorf("uid %d, the sandbox's is %d, %v", uid, inst.UID, err)
	}
	if got := h.inside(t, "main"); !slices.Equal(got, []string{"public/one"}) {
		t.Errorf("skills %v", got)
	}
	if inst.Saved.Env()["A"] != "1" {
		t.Errorf("env %v", inst.Saved.Env())
	}
	if err := h.Files.ChangeFiles(t.Context(), caller, "main", audit.ActionFileWrite, "kept", func(fs *paths.FS) (int64, error) {
		_, err := fs.Write(t.Context(), sandbox.WorkspaceDir+"/kept", strings.NewReader("x"), false)
		return 1, err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Lifecycle.Hibernate(t.Context(), caller, "main", false); err != nil {
		t.Fatal(err)
	}
	h.full(t, 2)
	h.mustExec(t, "main")
	if info := h.sandboxOf(t, "main"); info.Warm != remoteSandbox {
		t.Errorf("a thread with files got %+v", info)
	}
	if text, err := os.ReadFile(filepath.Join(h.folders.Dir(mainThread), "workspace/kept")); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
	if err := h.Threads.DeleteThread(t.Context(), caller, "main"); err != nil {
		t.Fatal(err)
	}
	h.mustExec(t, "main")
	if !h.sandboxOf(t, "main").Warm {
		t.Error("a thread that was deleted is not a new one")
	}
}

// nextPooled is the sandbox that the next claim gets.
func (h *house) nextPooled(t *testing.T) *instance.Pooled {
	t.Helper()
	return h.pool.Waiting()[0]
}

// TestManyClaims: a hundred threads at once, some of them asked for twice, get a hundred sandboxes.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	const n = 100
	h, _ := pooledHouse(t, sandbox.Pool{Target: n, Min: n, Burst: 16, MaxAgeSeconds: 3600})
	h.full(t, n)
	var wg sync.WaitGroup
	var again atomic.Int32
	done := make(chan struct{})
	swept := make(chan struct{})
	go func() { // takes none that is on its way to a thread
		defer close(swept)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				h.pool.Sweep()
			}
		}
	}()
	for i := range n {
		for range 1 + i%2 {
			wg.Go(func() {
				for {
					_, err := h.exec(t, fmt.Sprint("t", i), time.Minute)
					if errors.Is(err, sandbox.Unavailable) && again.Add(1) < 50*n { // the store, on a machine that is busy
						time.Sleep(50 * time.Millisecond)
						continue
					}
					if err != nil {
						t.Error(err)
					}
					return
				}
			})
		}
	}
	wg.Wait()
	close(done)
	<-swept
	uids, ids, cold := map[int]bool{}, map[sandbox.ID]bool{}, 0
	for i := range n {
		inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: fmt.Sprint("t", i)})
		if inst == nil {
			t.Fatalf("thread %d has no sandbox", i)
		}
		uids[inst.UID], ids[inst.ID] = true, true
		if !inst.Info().Warm {
			cold++
		}
	}
	if got := h.records(t, audit.ActionSandboxReap); len(got) != 0 {
		t.Errorf("reaped: %v", got)
	}
	if len(uids) != n || len(ids) != n || cold > int(again.Load()) {
		t.Errorf("%d uids, %d sandboxes, %d cold", len(uids), len(ids), cold)
	}
	for i := range n { // there are more than the end of a test has time for
		wg.Go(func() {
			if err := h.Threads.ReleaseSandbox(context.WithoutCancel(t.Context()), caller, fmt.Sprint("t", i)); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestPoolAges: a sandbox that waited for too long is replaced, and never handed out.
func TestPoolAges(t *testing.T) {
	t.Parallel()
	h, _ := pooledHouse(t, sandbox.Pool{Target: 2, Min: 2, Burst: 2, MaxAgeSeconds: 3})
	h.full(t, 2)
	old := h.waiting()
	h.replaced(t, old, "age")
	h.mustExec(t, "main")
	if id := h.sandboxOf(t, "main").ID; slices.Contains(old, id) {
		t.Errorf("%s is too old", id)
	}
}

// replaced waits until none of those is left, and two others wait.
func (h *house) replaced(t *testing.T, old []sandbox.ID, why string) {
	t.Helper()
	eventually(t, "they are replaced", func() bool {
		now := h.waiting()
		left, err := h.driver.List(t.Context(), map[string]string{sandbox.LabelRole: sandbox.RolePool})
		if err != nil {
			t.Fatal(err)
		}
		folders, err := pool.RootIn(h.o.Storage.DataDir).List()
		if err != nil {
			t.Fatal(err)
		}
		return len(now) == 2 && len(folders) == 2 && h.records(t, audit.ActionSandboxRemove)["ok: pool: "+why] >= 2 && !slices.ContainsFunc(old, func(id sandbox.ID) bool { return slices.Contains(now, id) }) &&
			!slices.ContainsFunc(left, func(i sandbox.Instance) bool { return slices.Contains(old, i.ID) })
	})
}

// TestPoolRolls: another image under the same name replaces the waiting sandboxes.
func TestPoolRolls(t *testing.T) {
	t.Parallel()
	h, e := pooledHouse(t, sandbox.Pool{Target: 2, Min: 2, Burst: 2, MaxAgeSeconds: 3600})
	h.full(t, 2)
	old := h.waiting()
	e.image.Store("image-2")
	h.replaced(t, old, "image")
}

// TestPoolDies: a sandbox that ends by itself, or stops answering, is replaced and not handed out.
func TestPoolDies(t *testing.T) {
	t.Parallel()
	h, e := pooledHouse(t, sandbox.Pool{Target: 2, Min: 2, Burst: 2, MaxAgeSeconds: 3600})
	h.full(t, 2)
	old := h.waiting()
	for _, id := range old {
		e.Kill(id)
	}
	h.replaced(t, old, "ended")
	h.nextPooled(t).Conn.Link.Close() // as a sandbox that runs but does not dial
	h.mustExec(t, "main")             // gets another one
	if inst := h.live.Find(mainThread); inst.Pooled != nil && inst.Conn.Link == nil {
		t.Error("a sandbox without a connection")
	}
}

// TestPoolGivesWay: a caller's sandbox takes the place of a waiting one, and there are never more than there may be.
func TestPoolGivesWay(t *testing.T) {
	t.Parallel()
	h, e := pooledHouse(t, sandbox.Pool{Target: 3, Min: 1, Burst: 3, MaxAgeSeconds: 3600}, func(o *Options) {
		o.MaxInstances = 3
		o.Templates["other"] = instance.Template{Template: sandbox.Template{Name: "other", Runtime: "runc", Limits: o.Templates["base"].Limits}}
	})
	h.full(t, 3)
	for i := range 3 {
		if _, err := h.Starts.Acquire(t.Context(), caller, fmt.Sprint("t", i), sandbox.AcquireOptions{Template: "other"}); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	h.full(t, 0)
	if _, err := h.Starts.Acquire(t.Context(), caller, "more", sandbox.AcquireOptions{}); !errors.Is(err, sandbox.CapacityExceeded) {
		t.Errorf("the fourth: %v", err)
	}
	if err := h.Threads.DeleteThread(t.Context(), caller, "t0"); err != nil {
		t.Fatal(err)
	}
	h.full(t, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.most != 3 {
		t.Errorf("%d sandboxes at a time, of 3", e.most)
	}
}

// TestPoolGivesWayUnfinished: so does a sandbox that is still being made.
func TestPoolGivesWayUnfinished(t *testing.T) {
	t.Parallel()
	h, e := pooledHouse(t, sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600}, func(o *Options) { o.MaxInstances = 1 })
	h.full(t, 1)
	e.hangs.Store(true)
	e.Kill(h.waiting()[0])
	h.full(t, 0)
	done := make(chan error, 1)
	go func() {
		_, err := h.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
		done <- err
	}()
	eventually(t, "the caller has the place", func() bool { return h.live.Find(mainThread) != nil })
	e.hangs.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestPoolEmptied: nothing of it is left when the server stops in order.
func TestPoolEmptied(t *testing.T) {
	t.Parallel()
	h, e := pooledHouse(t, sandbox.Pool{Target: 3, Min: 3, Burst: 3, MaxAgeSeconds: 3600})
	h.full(t, 3)
	h.mustExec(t, "main")
	h.Shutdown.Drain(t.Context())
	claimed := h.live.Find(mainThread).ID
	h.stop()
	h.wg.Wait()
	h.pool.Empty()
	left, err := e.machine.List(t.Context(), nil)
	if err != nil || len(left) != 1 || left[0].ID != claimed {
		t.Errorf("left: %+v, %v", left, err)
	}
	if folders, err := pool.RootIn(h.o.Storage.DataDir).List(); err != nil || len(folders) != 0 {
		t.Errorf("left: %v, %v", folders, err)
	}
	if entries, err := filepath.Glob(filepath.Join(h.runRoot, "skerry-*")); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := errors.Join(h.removeForGood(t, claimed)); err != nil {
		t.Error(err)
	}
}

// removeForGood takes away what a server that was stopped half way has left, for the end of the test.
func (h *house) removeForGood(t *testing.T, id sandbox.ID) error {
	t.Helper()
	inst := h.live.Find(mainThread)
	h.teardown.Forget(inst)
	if err := inst.Close(); err != nil {
		return err
	}
	return h.driver.Remove(t.Context(), id)
}

// withPool adds a pool to the default template of a town's server.
func withPool(p sandbox.Pool) func(*Options) {
	return func(o *Options) {
		tmpl := o.Templates["base"]
		tmpl.Pool = &p
		o.Templates["base"] = tmpl
	}
}

func poolOf(r *Orchestrator) int {
	return len(r.pool.Waiting())
}

// TestServersShareAPool: two servers together have what one would, each hands out its own, and what a server that
// ended had waiting is removed by the other.
func TestServersShareAPool(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	p := sandbox.Pool{Target: 4, Min: 4, Burst: 4, MaxAgeSeconds: 3600}
	a := w.settle("a", withPool(p))
	w.eventually("a has all", func() bool { return poolOf(a) == 4 })
	b := w.settle("b", withPool(p))
	n := 0
	w.eventually("a is used, and b has its share", func() bool {
		if poolOf(a) > 2 {
			n++
			if _, err := a.Starts.Acquire(t.Context(), caller, fmt.Sprint("a", n), sandbox.AcquireOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return poolOf(a) == 2 && poolOf(b) == 2
	})
	info, err := b.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
	if err != nil || !info.Warm {
		t.Fatalf("%+v, %v", info, err)
	}
	w.eventually("b has its share again", func() bool { return poolOf(a) == 2 && poolOf(b) == 2 })
	if folders, err := pool.RootIn(a.o.Storage.DataDir).List(); err != nil || len(folders) != 4 {
		t.Errorf("%d wait, %v", len(folders), err)
	}
	w.die(b)
	b.stop() // an ended process makes none
	b.wg.Wait()
	a.pool.Sweep()
	folders, err := pool.RootIn(a.o.Storage.DataDir).List()
	for _, f := range folders {
		if f.Replica == "b" {
			t.Errorf("left of b: %v", f)
		}
	}
	w.eventually("the claimed one is adopted", func() bool { return a.live.Find(mainThread) != nil })
	got := a.live.Find(mainThread).Info()
	if err != nil || got.ID != info.ID || !got.Warm || got.Template != "base" {
		t.Errorf("%+v was adopted as %+v, %v", info, got, err)
	}
}

// TestCrashInAClaim: at every step of a claim the server may die. The thread then has its files or none, its sandbox or none, and nothing is
// Left over.
func TestCrashInAClaim(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"picked", "named", "moved"} {
		t.Run(step, func(t *testing.T) {
			w := newTown(t)
			a := w.settle("a", withPool(sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600}))
			w.eventually("one waits", func() bool { return poolOf(a) == 1 })
			x := a.pool.Pick("base")
			if step != "picked" {
				own, err := a.owners.Acquire(t.Context(), mainThread, "")
				if err != nil {
					t.Fatal(err)
				}
				if err := a.owners.SetSandbox(t.Context(), own, x.ID); err != nil {
					t.Fatal(err)
				}
			}
			if step == "moved" {
				if moved, err := a.hooks.PassWorkspace(t.Context(), mainThread, x); err != nil || !moved {
					t.Fatal(moved, err)
				}
			}
			a.stop() // kill -9: nothing is cleared away
			a.wg.Wait()
			w.die(a)
			x.Conn.Link.Close()
			b := w.settle("b")
			_, err := w.engine(t, b).Inspect(t.Context(), x.ID)
			if step == "moved" {
				inst := b.live.Find(mainThread)
				if inst == nil || inst.ID != x.ID || inst.UID != x.UID || err != nil {
					t.Fatalf("the thread's sandbox is %+v, %v", inst, err)
				}
				if err := b.Threads.DeleteThread(t.Context(), caller, "main"); err != nil {
					t.Error(err)
				}
			}
			w.eventually("nothing is left", func() bool {
				folders, err := pool.RootIn(b.o.Storage.DataDir).List()
				claims, e := b.owners.Book.All()
				if err = errors.Join(err, e); err != nil {
					t.Fatal(err)
				}
				_, gone := w.engine(t, b).Inspect(t.Context(), x.ID)
				_, run := os.Stat(string(x.Dir))
				b.pool.Sweep()
				return len(folders) == 0 && len(claims) == 0 && errors.Is(gone, sandbox.NotFound) && errors.Is(run, os.ErrNotExist)
			})
			if _, err := b.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{}); err != nil {
				t.Errorf("the thread afterwards: %v", err)
			}
		})
	}
}

func (w *town) engine(t *testing.T, r *Orchestrator) machine {
	t.Helper()
	d, ok := r.o.Driver.(machine)
	if !ok {
		t.Fatal("another driver")
	}
	return d
}

// TestClaimOfAnotherFolder: a sandbox of the pool that a claim names is not adopted for a thread whose files it does not have.
func TestClaimOfAnotherFolder(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	a := w.settle("a", withPool(sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600}))
	w.eventually("one waits", func() bool { return poolOf(a) == 1 })
	x := a.pool.Pick("base")
	uid, err := a.threads.Ensure(t.Context(), mainThread) // an upload came in between
	if err != nil || uid == x.UID {
		t.Fatalf("%d, %v", uid, err)
	}
	page, err := a.owners.LockPage(t.Context(), mainThread)
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Write(ownerrecord.Of(mainThread, "a", 1, x.ID)); err != nil {
		t.Fatal(err)
	}
	page.Close()
	a.stop()
	a.wg.Wait()
	w.die(a)
	x.Conn.Link.Close()
	b := w.settle("b")
	if inst := b.live.Find(mainThread); inst != nil {
		t.Errorf("the thread has %s, whose files are others", inst.ID)
	}
	if got, err := workspace.UID(b.folders.Dir(mainThread)); err != nil || got != uid {
		t.Errorf("the thread's files: uid %d, %v", got, err)
	}
	// Another's folder: what there is of the first one goes with the sandbox that nothing has run in.
	moved, err := b.hooks.PassWorkspace(t.Context(), mainThread, &instance.Pooled{Instance: &instance.Instance{}, Files: t.TempDir()})
	if want := (remoteSandbox || errors.Is(err, instance.ErrGivenUp)); moved || !want {
		t.Errorf("over a thread that has files: %v, %v", moved, err)
	}
}

// BenchmarkClaim is a new thread's first exec in a sandbox that waited.
func BenchmarkClaim(b *testing.B) {
	const stock = 64
	h, _ := pooledHouse(b, sandbox.Pool{Target: stock, Min: stock, Burst: 16, MaxAgeSeconds: 3600}, func(o *Options) { o.MaxInstances = 1 << 20 })
	n := 0
	for b.Loop() {
		if n%stock == 0 {
			b.StopTimer()
			h.full(b, stock)
			b.StartTimer()
		}
		n++
		name := fmt.Sprint("t", n)
		id, err := h.Runs.RunCommand(b.Context(), caller, name, sandbox.Command{Shell: "true", Timeout: time.Minute})
		if err == nil {
			_, err = h.Execs.Wait(b.Context(), caller, name, id)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
