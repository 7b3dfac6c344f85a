package orchestrator

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	vpath "github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// TestEndBringsFiles: when the end of an exec is told, the server has what it changed, of the thread's owner, and says what that
// was; reading costs no pull as long as nothing ran since, and one while something runs.
func TestEndBringsFiles(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	if err := f.write("t", "before", "b", false); err != nil {
		t.Fatal(err)
	}
	res := f.ok("t", "cat before > a; mkdir d; echo deep > d/f")
	f.want("a file", f.here("t", "a"), "b")
	f.want("a file in a folder", f.here("t", "d/f"), "deep\n")
	var files []string
	for _, c := range res.Files {
		files = append(files, c.Change+" "+strings.TrimPrefix(c.Path, sandbox.WorkspaceDir+"/"))
	}
	slices.Sort(files)
	if want := []string{"created a", "created d/f"}; !slices.Equal(files, want) {
		t.Errorf("changed %q, want %q", files, want)
	}
	uid, err := workspace.UID(f.folders.Dir(sandbox.Thread{Owner: caller.Owner, ID: "t"}))
	if info, e := os.Stat(filepath.Join(f.folders.Dir(sandbox.Thread{Owner: caller.Owner, ID: "t"}), "workspace/d/f")); err != nil || e != nil || uint32(uid) != info.Sys().(*syscall.Stat_t).Uid {
		t.Errorf("%v, %v", err, e)
	}
	pulls := f.spy.pulls.Load()
	for range 3 {
		if text, err := f.read("t", "a"); text != "b" || err != nil {
			t.Errorf("read %q, %v", text, err)
		}
	}
	if n := f.spy.pulls.Load() - pulls; n != 0 {
		t.Errorf("%d pulls for reading while nothing runs", n)
	}
	exec := f.start("t", "echo now > live; "+untilThere("go")+"rm d/f")
	f.eventually("what it wrote", func() bool { text, _ := f.read("t", "live"); return text == "now\n" })
	if err := f.write("t", "go", "", false); err != nil {
		t.Fatal(err)
	}
	f.end("t", exec)
	f.want("a removed file", f.here("t", "d/f"), "")
	if _, err := f.Lifecycle.Hibernate(t.Context(), caller, "t", false); err != nil {
		t.Fatal(err)
	}
	pulls = f.spy.pulls.Load()
	f.want("without a sandbox", must(f.read("t", "live")), "now\n")
	f.ok("t", "[ $(cat live) = now ]")
	if n := f.spy.pulls.Load() - pulls; n != 1 {
		t.Errorf("%d pulls for one exec in a new sandbox", n)
	}
}

func must(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	return text
}

func (f *remoteHouse) eventually(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("never: %s", what)
		}
	}
}

// TestApiChangesAreThere: when the API reports a change, it is in a running sandbox, on top of what runs
// there has changed. No pull undoes it.
func TestApiChangesAreThere(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("t", "printf one > a; printf x > gone; mkdir dir; printf y > dir/f; ln -s a link")
	exec := f.start("t", "printf two > a; : > begun; "+untilThere("go")+"cat a > saw; ls > listed; cat moved/f >> saw")
	f.eventually("it runs", func() bool { _, err := os.Stat(f.there("t", "begun")); return err == nil })
	if err := f.write("t", "link", "+api", true); err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(f.there("t", "a"))
	f.want("through a link, in the sandbox", must(string(there), err), "two+api")
	f.change("t", func(fs *vpath.FS) error {
		_, err := fs.Move(sandbox.WorkspaceDir+"/dir", sandbox.WorkspaceDir+"/moved")
		return err
	})
	f.change("t", func(fs *vpath.FS) error { return fs.Remove(t.Context(), sandbox.WorkspaceDir+"/gone", false) })
	f.change("t", func(fs *vpath.FS) error { _, err := fs.Mkdir(sandbox.WorkspaceDir + "/new/deep"); return err })
	if err := f.write("t", "go", "", false); err != nil {
		t.Fatal(err)
	}
	f.end("t", exec)
	f.want("what the exec saw", f.here("t", "saw"), "two+apiy")
	f.want("what it listed", f.here("t", "listed"), "a\nbegun\ngo\nlink\nlisted\nmoved\nnew\nsaw\n")
	f.want("at the server", f.here("t", "a"), "two+api")
	if _, err := os.Stat(filepath.Join(f.folders.Dir(sandbox.Thread{Owner: caller.Owner, ID: "t"}), "workspace/new/deep")); err != nil {
		t.Error(err)
	}
	if _, err := f.Files.SaveResult(t.Context(), sandbox.Thread{Owner: caller.Owner, ID: "t"}, "r", []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	f.ok("t", "[ -s .skerry/results/r.json ]")
	for n := range 2 { // a file that is there stays as it is
		err := f.Files.SaveToolFile(t.Context(), sandbox.Thread{Owner: caller.Owner, ID: "t"}, sandbox.WorkspaceDir+"/tool-results/a.csv", fmt.Appendf(nil, "%d", n))
		if (n == 0) != (err == nil) || n == 1 && !errors.Is(err, sandbox.ToolFailed) {
			t.Errorf("%d: %v", n, err)
		}
	}
	f.ok("t", "[ $(cat tool-results/a.csv) = 0 ]")
}

// TestEndsShareAPull: execs that end at the same time are served by one pull that began after the last of them.
func TestEndsShareAPull(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("t", "true")
	const n = 12
	var execs []string
	for i := range n {
		execs = append(execs, f.start("t", fmt.Sprintf("%secho %d > f%d", untilThere("go"), i, i)))
	}
	var once sync.Once
	f.spy.hook(func(sandbox.ID) {
		once.Do(func() { // as long as the first one takes, the others end
			for end := time.Now().Add(20 * time.Second); f.instance("t").FileSync.Running() > 0 && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
		})
	}, nil)
	before := f.spy.pulls.Load()
	if err := os.WriteFile(f.there("t", "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, e := range execs {
		if res := f.end("t", e); res.Status != sandbox.StatusExited {
			t.Errorf("%+v", res)
		}
		f.want("its file", f.here("t", fmt.Sprint("f", i)), fmt.Sprintln(i))
	}
	if got := f.spy.pulls.Load() - before; got != 2 {
		t.Errorf("%d pulls for %d execs that ended together, want 2", got, n)
	}
}

// TestKilledBeforeThePull: a sandbox that dies between an exec's end and its pull: the exec is lost and says so, the server
// has what was told before, whole, and the next exec begins with that.
func TestKilledBeforeThePull(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("t", "printf kept > a")
	f.spy.hook(func(id sandbox.ID) { f.spy.Kill(id) }, nil)
	res := f.run("t", "printf changed > a; printf new > b")
	if res.Status != sandbox.StatusLost || res.ExitCode != nil || !strings.Contains(res.Detail, "code 0") || !strings.Contains(res.Detail, "not kept") || !res.FilesTruncated {
		t.Errorf("%+v", res)
	}
	f.spy.hook(nil, nil)
	f.want("the server's copy", f.here("t", "a"), "kept")
	f.want("what was not told", f.here("t", "b"), "")
	f.ok("t", "[ $(cat a) = kept ] && [ ! -e b ]")
	records, _, err := f.audit.List(t.Context(), audit.Filter{Tenant: "t", Exec: res.ExecID})
	ends := 0
	for _, r := range records {
		if r.Phase == audit.PhaseResult && r.Outcome == "lost" && strings.Contains(r.Detail, "not kept") {
			ends++
		}
	}
	if err != nil || ends != 1 {
		t.Errorf("%d terminal records in %d, %v", ends, len(records), err)
	}
}

// TestCutConnection: execs go on while there is no way to their sandbox, and no caller reads what may be
// old. Changes by the API are there before the next exec, and all ends well.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("t", "printf 1 > a")
	execs := []string{f.start("t", "printf 2 > a; : > begun; "+untilThere("go")+"printf 3 > b"), f.start("t", ": > begun2; "+untilThere("go")+"printf 4 > c")}
	f.eventually("they run", func() bool { return f.instance("t").FileSync.Running() == 2 })
	for _, name := range []string{"begun", "begun2"} {
		f.eventually("they have written", func() bool { _, err := os.Stat(f.there("t", name)); return err == nil })
	}
	id, goes, ended := f.instance("t").ID, f.there("t", "go"), f.there("t", "c")
	f.spy.Host().Cut(id, true)
	if text, err := f.read("t", "a"); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("read %q, %v, want unavailable", text, err)
	}
	if err := f.write("t", "api", "x", false); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("write: %v, want unavailable", err)
	}
	if err := os.WriteFile(goes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.eventually("the scripts have ended", func() bool { _, err := os.Stat(ended); return err == nil })
	f.spy.Host().Cut(id, false)
	for _, e := range execs {
		if res := f.end("t", e); res.Status != sandbox.StatusExited {
			t.Errorf("%+v", res)
		}
	}
	f.want("files", f.here("t", "a")+f.here("t", "b")+f.here("t", "c"), "234")
	if inst := f.instance("t"); inst.ID != id {
		t.Error("another sandbox")
	}
}

// TestChangeWhileCut: a change by the API that could not be pushed is not undone by the next pull, and no exec misses it.
func TestChangeWhileCut(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("t", "printf 1 > a; rm -f gone")
	f.spy.Host().Cut(f.instance("t").ID, true)
	for _, name := range []string{"a", "b/c"} {
		if err := f.write("t", name, "api", false); !errors.Is(err, sandbox.Unavailable) || !strings.Contains(err.Error(), "is kept") {
			t.Errorf("write: %v", err)
		}
	}
	f.spy.Host().Cut(f.instance("t").ID, false)
	f.ok("t", "[ $(cat a)$(cat b/c) = apiapi ]")
	f.want("at the server", f.here("t", "a")+f.here("t", "b/c"), "apiapi")
}

// TestSlowUpload: an upload that takes its time holds up no end of an exec, nor does a pull take away what has come of it.
func TestSlowUpload(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("t", "printf 1 > a")
	body, sends := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- f.Files.ChangeFiles(t.Context(), caller, "t", audit.ActionFileWrite, "up", func(fs *vpath.FS) (int64, error) {
			w, err := fs.Write(t.Context(), sandbox.WorkspaceDir+"/new/up", body, false)
			return w.Added, err
		})
	}()
	if _, err := sends.Write([]byte("first ")); err != nil {
		t.Fatal(err)
	}
	f.ok("t", "printf 2 > a")
	f.want("meanwhile", f.here("t", "a"), "2")
	_, err := sends.Write([]byte("second"))
	if err = errors.Join(err, sends.Close(), <-done); err != nil {
		t.Fatal(err)
	}
	f.ok("t", "[ \"$(cat new/up)\" = 'first second' ]")
	f.want("at the server", f.here("t", "new/up"), "first second")
	big, sends := io.Pipe()
	go func() {
		done <- errors.Join(func() error { _, err := sends.Write(make([]byte, 2<<20)); return err }(), sends.Close())
	}()
	err = f.Files.ChangeFiles(t.Context(), caller, "t", audit.ActionFileWrite, "up", func(fs *vpath.FS) (int64, error) {
		w, err := fs.Write(t.Context(), sandbox.WorkspaceDir+"/large", big, false)
		return w.Added, err
	})
	if !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("more than the thread may have: %v", err)
	}
	_ = big.Close()
	<-done
	f.ok("t", "true")
}

// TestMoreThanTheLimit: the exec that made too much says so and is lost; the sandbox goes on, and the next exec copies what is left.
func TestMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t) // of 1 MiB
	f.ok("t", "printf kept > a")
	res := f.run("t", "printf changed > a; head -c 2000000 /dev/zero > large")
	if res.Status != sandbox.StatusLost || res.ExitCode != nil || !strings.Contains(res.Detail, "more than the thread may have") {
		t.Errorf("%+v", res)
	}
	f.want("the server's copy", f.here("t", "a"), "kept")
	if _, err := f.read("t", "a"); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("read: %v", err)
	}
	id := f.instance("t").ID
	f.ok("t", "rm large")
	f.want("what is left", must(f.read("t", "a")), "changed")
	if f.instance("t").ID != id {
		t.Error("the sandbox was ended")
	}
}

// TestPutAwayBringsFiles: what runs when a sandbox is hibernated, released or too old is ended, and what it wrote is there.
func TestPutAwayBringsFiles(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	for id, put := range map[string]func() error{
		"hibernated": func() error { _, err := f.Lifecycle.Hibernate(t.Context(), caller, "hibernated", true); return err },
		"released":   func() error { return f.Threads.ReleaseSandbox(t.Context(), caller, "released") },
	} {
		exec := f.start(id, "printf half > a; : > begun; "+untilThere("never"))
		f.eventually("it runs", func() bool { _, err := os.Stat(f.there(id, "begun")); return err == nil })
		if err := put(); err != nil {
			t.Fatal(err)
		}
		f.want(id, f.here(id, "a"), "half")
		if res := f.end(id, exec); res.Status != sandbox.StatusKilled {
			t.Errorf("%+v", res)
		}
	}
}

// TestPushesAreOne: what changes while a push goes on is pushed once after it, and instances do not wait for each other.
func TestPushesAreOne(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("a", "true")
	f.ok("b", "true")
	held, free := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	var pushed []string
	var mu sync.Mutex
	f.spy.hook(nil, func(paths []string) {
		mu.Lock()
		pushed = append(pushed, strings.Join(paths, " "))
		mu.Unlock()
		if first.CompareAndSwap(false, true) {
			close(held)
			<-free
		}
	})
	slow, quick := f.instance("a").FileSync, f.instance("b").FileSync
	slow.Views.Add(sandbox.SkillsDir)
	slow.Follow()
	<-held
	for range 50 {
		slow.Views.Add(sandbox.SkillsDir, sandbox.PluginsDir)
		slow.Follow()
	}
	quick.Views.Add(sandbox.CodeAPIDir)
	quick.Follow()
	f.eventually("the other instance has it", func() bool { return !quick.Views.Any() })
	close(free)
	f.eventually("all is pushed", func() bool { return !slow.Views.Any() })
	mu.Lock()
	defer mu.Unlock()
	if want := []string{sandbox.SkillsDir, sandbox.CodeAPIDir, sandbox.PluginsDir + " " + sandbox.SkillsDir}; !slices.Equal(pushed, want) {
		t.Errorf("pushed %q, want %q", pushed, want)
	}
}

// TestClaimedFar: a sandbox of the pool is attached with the thread's folder, token and labels, and its files are the thread's.
func TestClaimedFar(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t, withPool(sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600}))
	f.full(t, 1)
	waiting := f.waiting()
	f.ok("t", "printf mine > a")
	inst := f.instance("t")
	if !inst.Info().Warm || inst.ID != waiting[0] {
		t.Fatalf("%+v", inst.Info())
	}
	f.want("its file", f.here("t", "a"), "mine")
	entry, err := f.spy.Inspect(t.Context(), inst.ID)
	if err != nil || entry.Labels[sandbox.LabelThread] != "t" || entry.Labels[sandbox.LabelTenant] != "t" || entry.Labels[sandbox.LabelRole] != sandbox.RolePool {
		t.Errorf("%+v, %v", entry.Labels, err)
	}
	if err := f.write("t", "b", "api", false); err != nil {
		t.Fatal(err)
	}
	f.ok("t", "[ $(cat b) = api ]")
	if entries, err := os.ReadDir(string(pool.RootIn(f.o.Storage.DataDir))); err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), string(inst.ID)) }) {
		t.Error("the folder that it waited with is there again")
	}
}

// TestTakeOverFar: the server that takes a thread over copies what ran last; the former one does not reach the sandbox any more, copies
// nothing, and says that its exec is lost.
func TestTakeOverFar(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.far = true
	all := newShells(t)
	w.host = memory.NewHost(all.of, nil)
	t.Cleanup(w.host.Stop)
	a, b := w.settle("a"), w.settle("b")
	run := func(r *Orchestrator, script string) (string, error) {
		return r.Runs.RunCommand(t.Context(), caller, "main", sandbox.Command{Shell: script, Timeout: time.Minute})
	}
	first, err := run(a, "printf told > a")
	if err == nil {
		_, err = a.Execs.Wait(t.Context(), caller, "main", first)
	}
	if err != nil {
		t.Fatal(err)
	}
	going, err := run(a, "printf left > b; : > begun; "+untilThere("never"))
	if err != nil {
		t.Fatal(err)
	}
	old := a.live.Find(mainThread)
	w.eventually("it runs", func() bool {
		_, err := os.Stat(w.host.Inside(old.ID, sandbox.WorkspaceDir+"/begun"))
		return err == nil
	})
	w.die(a)
	if owner, err := b.Placement.Owner(t.Context(), caller, "main"); owner != "" || err != nil {
		t.Fatalf("owner %q, %v", owner, err)
	}
	if inst := b.live.Find(mainThread); inst == nil || inst.ID != old.ID {
		t.Fatalf("not adopted: %+v", inst)
	}
	text := ""
	err = b.Files.ReadFiles(t.Context(), caller, "main", func(fs *vpath.FS) error {
		got, err := fs.Read(sandbox.WorkspaceDir+"/b", 0, 0)
		text = got.Content
		return err
	})
	if text != "left" || err != nil {
		t.Errorf("what ran last: %q, %v", text, err)
	}
	// The former server wakes up and would write down what it knows.
	if err := old.FileSync.PullOnce(); err == nil {
		t.Error("the former server can still pull")
	}
	err = b.Files.ChangeFiles(t.Context(), caller, "main", audit.ActionFileWrite, "a", func(fs *vpath.FS) (int64, error) {
		_, err := fs.Write(t.Context(), sandbox.WorkspaceDir+"/a", strings.NewReader("of b"), false)
		return 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := a.Execs.Wait(t.Context(), caller, "main", going); err != nil || res.Status != sandbox.StatusLost {
		t.Errorf("the exec of the former server: %+v, %v", res, err)
	}
	last, err := run(b, "[ \"$(cat a)\" = 'of b' ]")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := b.Execs.Wait(t.Context(), caller, "main", last); err != nil || res.ExitCode == nil || *res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := b.Threads.ReleaseSandbox(t.Context(), caller, "main"); err != nil {
		t.Error(err)
	}
}

// TestFenced: a server does not adopt a sandbox that has seen a higher token than the server's. It does not
// remove the sandbox when it is another's.
func TestFenced(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.ok("t", "true")
	inst := f.instance("t")
	inst.Owned().Token.Add(5)
	if err := f.copies.Attach(t.Context(), inst, nil); err != nil {
		t.Fatal(err)
	}
	inst.Owned().Token.Add(-5)
	var higher *copies.FencedError
	if err := f.copies.Attach(t.Context(), inst, nil); !errors.As(err, &higher) {
		t.Errorf("%v, want fenced", err)
	}
	f.ok("t", "true") // it stays attached by the higher one
}

// BenchmarkExecCopies: what an exec costs that changes nothing, with a sandbox that sees the server's disk and with a remote one.
func BenchmarkExecCopies(b *testing.B) {
	for name, far := range map[string]bool{"sees": false, "copies": true} {
		b.Run(name, func(b *testing.B) {
			before := remoteSandbox
			remoteSandbox = far
			defer func() { remoteSandbox = before }()
			h := newHouse(b, daemon{run: exits})
			once := func() {
				id, err := h.Runs.RunCommand(b.Context(), caller, "t", sandbox.Command{Shell: "true", Timeout: time.Minute})
				if err == nil {
					_, err = h.Execs.Wait(b.Context(), caller, "t", id)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			once()
			for b.Loop() {
				once()
			}
		})
	}
}
