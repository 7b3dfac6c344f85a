package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	vpath "github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Sandboxes with disks of their own that waited, and threads that have files.

func onePooled() func(*Options) {
	return withPool(sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600})
}

// sleep puts the thread's sandbox away, and waits until another one is ready for it.
func (f *remoteHouse) sleep(id string, waiting int) {
	f.t.Helper()
	if _, err := f.Lifecycle.Hibernate(f.t.Context(), caller, id, true); err != nil {
		f.t.Fatal(err)
	}
	f.full(f.t, waiting)
}

func ownerHere(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// TestClaimedWithFiles: a thread with files gets a sandbox that waited, with all of its files and nothing else; what runs there
// changes them as theirs, and the folder that the sandbox waited with goes.
func TestClaimedWithFiles(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t, onePooled())
	f.full(t, 1)
	f.ok("t", "printf one > a; mkdir -p deep/er; printf two > deep/er/b; ln -s a link; printf gone > c")
	uid := f.instance("t").UID
	f.sleep("t", 1)
	if err := f.write("t", "d", "by the API", false); err != nil { // the folder's owner writes it
		t.Fatal(err)
	}
	waiting := f.waiting()[0]
	f.ok("t", `[ "$(cat a)$(cat deep/er/b)$(cat link)$(cat d)" = "onetwooneby the API" ]; printf new > e; printf more >> a; rm c`)
	inst := f.instance("t")
	if !inst.Info().Warm || inst.ID != waiting || inst.UID != uid {
		t.Fatalf("%+v with uid %d; %s waited, the thread's uid is %d", inst.Info(), inst.UID, waiting, uid)
	}
	f.want("a changed file", f.here("t", "a"), "onemore")
	f.want("a new one", f.here("t", "e"), "new")
	f.want("a removed one", f.here("t", "c"), "")
	for _, name := range []string{"a", "e"} {
		if got := ownerHere(t, filepath.Join(f.folders.Dir(inst.Thread), "workspace", name)); got != uid {
			t.Errorf("%s belongs to %d, the thread to %d", name, got, uid)
		}
	}
	if err := f.write("t", "e", "x", true); err != nil {
		t.Errorf("the API cannot write what the sandbox made: %v", err)
	}
	f.ok("t", `[ "$(cat e)" = newx ]`)
	if entries, err := os.ReadDir(string(pool.RootIn(f.o.Storage.DataDir))); err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), string(inst.ID)) }) {
		t.Errorf("the folder that it waited with: %v, %v", entries, err)
	}
	f.pool.Sweep()
	f.reaper.Reconcile(map[sandbox.ID]time.Time{inst.ID: {}})
	f.ok("t", `[ "$(cat a)" = onemore ]`)
	if f.instance("t").ID != waiting {
		t.Error("the sandbox was taken for one that nobody knows")
	}
}

// TestNothingRunsBeforeItIsWhole: while the files are copied no exec begins, and what the API writes meanwhile is there for the first.
func TestNothingRunsBeforeItIsWhole(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t, onePooled())
	f.full(t, 1)
	f.ok("t", "printf one > a")
	f.sleep("t", 1)
	at, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.spy.hook(nil, func(paths []string) {
		if slices.Contains(paths, sandbox.UserDataDir) {
			once.Do(func() { close(at); <-free })
		}
	})
	done := make(chan string, 1)
	go func() {
		exec, err := f.Runs.RunCommand(t.Context(), caller, "t", sandbox.Command{Shell: "cat a b > c", Timeout: time.Minute})
		if err != nil {
			t.Error(err)
		}
		done <- exec
	}()
	<-at
	if f.instance("t").IsReady() {
		t.Error("it counts as ready before it has its files")
	}
	pulls := f.spy.pulls.Load()
	f.want("what the API reads meanwhile", must(f.read("t", "a")), "one")
	if n := f.spy.pulls.Load(); n != pulls {
		t.Errorf("%d pulls of one that is half full", n-pulls)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- f.write("t", "b", "two", false) }()
	close(free)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if exec := <-done; exec != "" {
		f.end("t", exec)
	}
	f.ok("t", `[ "$(cat a b)" = onetwo ]`)
	f.want("what the server has", f.here("t", "a")+f.here("t", "b"), "onetwo")
}

// TestFillFails: a sandbox that cannot be given the files is removed, and the thread gets a cold one. No caller notices,
// unless that fails, too: then there is one error, of that.
func TestFillFails(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t, onePooled())
	f.full(t, 1)
	f.ok("t", "printf one > a")
	f.sleep("t", 1)
	waiting := f.waiting()[0]
	var pushes []sandbox.ID
	refuse := func(id sandbox.ID, paths []string) error {
		if !slices.Contains(paths, sandbox.UserDataDir) {
			return nil
		}
		pushes = append(pushes, id)
		_ = os.WriteFile(f.spy.Host().Inside(id, sandbox.WorkspaceDir+"/half"), []byte("x"), 0o600)
		_ = os.Remove(f.spy.Host().Inside(id, sandbox.WorkspaceDir+"/a"))
		return sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached")
	}
	f.spy.fails(refuse, nil)
	f.ok("t", `[ "$(ls)" = a ] && [ "$(cat a)" = one ]`)
	if inst := f.instance("t"); inst.Info().Warm || inst.ID == waiting {
		t.Errorf("it has %+v", inst.Info())
	}
	if !slices.Equal(pushes, []sandbox.ID{waiting}) {
		t.Errorf("pushes to %v, %s waited", pushes, waiting)
	}
	if _, err := f.spy.Inspect(t.Context(), waiting); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("the one that was half full: %v", err)
	}
	got := f.records(t, audit.ActionSandboxClaim)
	if got["error: unavailable"] != 1 || got["ok: "] != 1 {
		t.Errorf("records of claims: %v", got)
	}

	f.sleep("t", 1)
	f.spy.fails(refuse, func() error { return sandbox.Errorf(sandbox.CapacityExceeded, "no node has room for the sandbox") })
	_, err := f.Runs.RunCommand(t.Context(), caller, "t", sandbox.Command{Shell: "true", Timeout: time.Minute})
	if !errors.Is(err, sandbox.CapacityExceeded) || !strings.Contains(err.Error(), "no node has room") || strings.Contains(err.Error(), "waited") {
		t.Errorf("when both fail: %v", err)
	}
	f.want("the file", f.here("t", "a"), "one")
	f.want("of the half", f.here("t", "half"), "")
	f.spy.fails(nil, nil)
	f.ok("t", `[ "$(ls)" = a ]`)
}

// TestEvicted: pods end at any moment of a thread's work. Whatever exec was told to have ended, its files are in the next
// sandbox, whether that waited or is made.
func TestEvicted(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t, withPool(sandbox.Pool{Target: 2, Min: 2, Burst: 2, MaxAgeSeconds: 3600}), func(o *Options) { o.MaxInstances = 20 })
	f.full(t, 2)
	const threads = 3
	rounds := 16
	if testing.Short() {
		rounds = 8
	}
	var mu sync.Mutex
	warm, cold, lost := 0, 0, 0
	work := func(id string, dice *rand.Rand) error {
		told := -1 // the last round that ended well
		for i := range rounds {
			stop := make(chan struct{})
			var killer sync.WaitGroup
			if dice.IntN(3) > 0 {
				wait := time.Duration(dice.IntN(60)) * time.Millisecond
				killer.Go(func() {
					select {
					case <-time.After(wait):
					case <-stop:
					}
					if inst := f.instance(id); inst != nil {
						f.spy.Kill(inst.ID)
					}
				})
			}
			// Each exec looks for what all before it wrote, and adds to it.
			script := fmt.Sprintf(`for i in $(seq 0 %d); do [ "$(cat f$i 2>/dev/null)" = "v$i" ] || { echo "$i" > missing; exit 9; }; done
printf v%d > f%d.new; mv f%d.new f%d; printf x >> log`, told, told+1, told+1, told+1, told+1)
			exec, err := f.Runs.RunCommand(t.Context(), caller, id, sandbox.Command{Shell: script, Timeout: time.Minute})
			var res sandbox.Result
			if err == nil {
				if inst := f.instance(id); inst != nil {
					mu.Lock()
					if inst.Info().Warm {
						warm++
					} else {
						cold++
					}
					mu.Unlock()
				}
				res, err = f.Execs.Wait(t.Context(), caller, id, exec)
			}
			close(stop)
			killer.Wait()
			switch {
			case err != nil && !errors.Is(err, sandbox.SandboxLost) && !errors.Is(err, sandbox.Unavailable):
				return fmt.Errorf("round %d: %w", i, err)
			case err == nil && res.Status == sandbox.StatusExited && res.ExitCode != nil && *res.ExitCode == 9:
				return fmt.Errorf("round %d: a file of an exec that had ended is missing: %s of 0 to %d", i, f.here(id, "missing"), told)
			case err == nil && res.Status == sandbox.StatusExited && res.ExitCode != nil && *res.ExitCode == 0:
				told++
				for n := range told + 1 {
					if got := f.here(id, fmt.Sprint("f", n)); got != fmt.Sprint("v", n) {
						return fmt.Errorf("round %d: the server has %q of f%d", i, got, n)
					}
				}
			default:
				mu.Lock()
				lost++
				mu.Unlock()
			}
		}
		if told < 1 {
			return fmt.Errorf("%d rounds went well: the test proves nothing", told+1)
		}
		return nil
	}
	var wg sync.WaitGroup
	for n := range threads {
		wg.Go(func() {
			if err := work(fmt.Sprint("t", n), rand.New(rand.NewPCG(uint64(n), 7))); err != nil { //nolint:gosec // a test's dice
				t.Errorf("t%d: %v", n, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d execs in sandboxes that waited, %d in others, %d were told to be lost", warm, cold, lost)
	if warm == 0 || lost == 0 {
		t.Errorf("%d execs in sandboxes that waited, %d lost: the test proves nothing", warm, lost)
	}
}

// TestAllAtOnce: callers acquire, delete, hibernate, release, write and sweep one thread at once. Each gets
// an answer, the thread has the sandbox or none, and nothing is left over.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t, withPool(sandbox.Pool{Target: 2, Min: 2, Burst: 2, MaxAgeSeconds: 3600}), func(o *Options) { o.MaxInstances = 8 })
	f.full(t, 2)
	f.ok("t", "printf one > a")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	acts := map[string]func() error{
		"acquire":   func() error { _, err := f.Starts.Acquire(ctx, caller, "t", sandbox.AcquireOptions{}); return err },
		"hibernate": func() error { _, err := f.Lifecycle.Hibernate(ctx, caller, "t", true); return err },
		"release":   func() error { return f.Threads.ReleaseSandbox(ctx, caller, "t") },
		"delete":    func() error { return f.Threads.DeleteThread(ctx, caller, "t") },
		"write":     func() error { return f.write("t", "a", "two", false) },
		"run": func() error {
			_, err := f.Runs.RunCommand(ctx, caller, "t", sandbox.Command{Shell: "printf x >> b", Timeout: time.Minute})
			return err
		},
		"sweep": func() error { f.pool.Sweep(); f.reaper.ReapFolders(nil); return nil },
		"evict": func() error {
			if inst := f.instance("t"); inst != nil {
				f.spy.Kill(inst.ID)
			}
			return nil
		},
	}
	var wg sync.WaitGroup
	for name, act := range acts {
		for n := range 2 {
			wg.Go(func() {
				dice := rand.New(rand.NewPCG(uint64(n), uint64(len(name)))) //nolint:gosec // a test's dice
				for range 12 {
					if err := act(); err != nil {
						switch sandbox.KindOf(err) {
						case sandbox.NotFound, sandbox.Conflict, sandbox.Unavailable, sandbox.SandboxLost, sandbox.CapacityExceeded:
						default:
							t.Errorf("%s: %v", name, err)
						}
					}
					time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
				}
			})
		}
	}
	wg.Wait()
	f.ok("t", "printf last > z")
	f.want("the last file", f.here("t", "z"), "last")
	if err := f.Threads.DeleteThread(t.Context(), caller, "t"); err != nil {
		t.Fatal(err)
	}
	f.eventually("nothing but the pool is left", func() bool {
		f.pool.Sweep()
		busy := f.pool.Levels()[0].Starting
		claims, err := f.owners.Book.All()
		folders, e := pool.RootIn(f.o.Storage.DataDir).List()
		found, e2 := f.spy.List(t.Context(), nil)
		if err := errors.Join(err, e, e2); err != nil {
			t.Fatal(err)
		}
		return busy == 0 && len(claims) == 0 && len(found) == len(f.waiting()) && len(folders) == len(f.waiting())
	})
}

// TestPoolRollsInAClaim: another image while files are copied changes nothing for the thread; the next one gets the new image.
func TestPoolRollsInAClaim(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t, onePooled())
	f.spy.image.Store("image-1")
	f.full(t, 1)
	f.ok("t", "printf one > a")
	f.sleep("t", 1)
	waiting := f.waiting()[0]
	var once sync.Once
	f.spy.hook(nil, func(paths []string) {
		if slices.Contains(paths, sandbox.UserDataDir) {
			once.Do(func() {
				f.spy.image.Store("image-2")
				asked := f.spy.imageAsked.Load()
				f.eventually("the pool sees the other image", func() bool { return f.spy.imageAsked.Load() > asked })
			})
		}
	})
	f.ok("t", `[ "$(cat a)" = one ]; printf two > a`)
	if inst := f.instance("t"); inst.ID != waiting {
		t.Errorf("%s, while %s waited", inst.ID, waiting)
	}
	f.eventually("a claim gets the other image", func() bool { // the pool asks for it every few seconds
		f.sleep("t", 1)
		f.ok("t", `[ "$(cat a)" = two ]`)
		inst := f.instance("t")
		return inst.Pooled != nil && inst.Pooled.Image == "image-2"
	})
}

// TestCrashInAFill: at every step of a claim of a thread with files the server may die. The files are all there afterwards, and the
// sandbox is the thread's only when it has them.
func TestCrashInAFill(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"named", "attached", "half", "filled", "noted"} {
		t.Run(step, func(t *testing.T) {
			w := newTown(t)
			w.far = true
			all := newShells(t)
			w.host = memory.NewHost(all.of, nil)
			t.Cleanup(w.host.Stop)
			a := w.settle("a", onePooled())
			w.eventually("one waits", func() bool { return poolOf(a) == 1 })
			err := a.Files.ChangeFiles(t.Context(), caller, "main", audit.ActionFileWrite, "a", func(fs *vpath.FS) (int64, error) {
				_, err := fs.Write(t.Context(), sandbox.WorkspaceDir+"/a", strings.NewReader("kept"), false)
				return 4, err
			})
			if err != nil {
				t.Fatal(err)
			}
			x := a.pool.Pick("base")
			killed := claimUntil(t, w, a, x, step)
			a.stop() // kill -9: nothing is cleared away
			a.wg.Wait()
			w.die(a)
			x.Conn.Link.Close()
			if killed != nil {
				_ = killed.Conn.Bridge.Close() // a socket ends with its process
			}
			b := w.settle("b")
			inside := w.host.Inside(x.ID, sandbox.WorkspaceDir+"/a")
			inst := b.live.Find(mainThread)
			if adopted := inst != nil && inst.ID == x.ID; adopted != (step == "noted") {
				t.Errorf("adopted: %v", adopted)
			}
			if step == "noted" {
				if text, err := os.ReadFile(inside); err != nil || string(text) != "kept" {
					t.Errorf("inside: %q, %v", text, err)
				}
			}
			exec, err := b.Runs.RunCommand(t.Context(), caller, "main", sandbox.Command{Shell: `[ "$(ls)" = a ] && [ "$(cat a)" = kept ] && printf more >> a`, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if res, err := b.Execs.Wait(t.Context(), caller, "main", exec); err != nil || res.ExitCode == nil || *res.ExitCode != 0 {
				t.Errorf("%+v, %v", res, err)
			}
			file := filepath.Join(b.folders.Dir(mainThread), "workspace/a")
			uid, err := workspace.UID(b.folders.Dir(mainThread))
			if text, e := os.ReadFile(file); err != nil || e != nil || string(text) != "keptmore" || ownerHere(t, file) != uid {
				t.Errorf("at the server: %q of %d, %v, %v", text, uid, err, e)
			}
			if err := b.Threads.ReleaseSandbox(t.Context(), caller, "main"); err != nil {
				t.Error(err)
			}
			w.eventually("nothing is left", func() bool {
				b.pool.Sweep()
				folders, err := pool.RootIn(b.o.Storage.DataDir).List()
				_, gone := w.engine(t, b).Inspect(t.Context(), x.ID)
				_, run := os.Stat(string(x.Dir))
				return err == nil && len(folders) == 0 && errors.Is(gone, sandbox.NotFound) && errors.Is(run, os.ErrNotExist)
			})
		})
	}
}

// claimUntil does the steps of a claim as far as one of them. It returns what has sockets by then, or nil.
func claimUntil(t *testing.T, w *town, r *Orchestrator, x *instance.Pooled, last string) *instance.Instance {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := r.owners.Acquire(t.Context(), mainThread, "")
	must(err)
	must(r.owners.SetSandbox(t.Context(), own, x.ID))
	if last == "named" {
		return nil
	}
	inst := instance.New(mainThread, x.Template, sandbox.Info{ID: x.ID})
	inst.SetOwnership(own)
	inst.Dir, inst.Pooled, inst.FileSync, inst.Conn.Link, inst.Conn.Client = x.Dir, x, x.FileSync, x.Conn.Link, x.Conn.Client
	inst.Skills.Folder = x.Skills.Folder
	inst.FileSync.Shut()
	inst.UID, err = workspace.UID(r.folders.Dir(mainThread))
	must(err)
	must(r.hooks.OpenBridge(inst))
	must(r.hooks.AttachClaimed(t.Context(), inst))
	work := w.host.Inside(x.ID, sandbox.WorkspaceDir)
	switch last {
	case "half":
		must(os.WriteFile(filepath.Join(work, "a"), []byte("ke"), 0o600))
	case "filled":
		must(inst.FileSync.Remote.Push(t.Context(), inst.ID, sandbox.UserDataDir))
	case "noted":
		must(r.hooks.Fill(t.Context(), inst))
	}
	return inst
}
