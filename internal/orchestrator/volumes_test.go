package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

func newVolumeHouse(t *testing.T, change ...func(*Options)) *remoteHouse {
	t.Helper()
	return newFarHouse(t, append([]func(*Options){func(o *Options) { o.Storage.OnVolumes = true }}, change...)...)
}

// quiet runs a script without asking what it changed.
func (f *remoteHouse) quiet(id, script string) {
	f.t.Helper()
	exec, err := f.Runs.RunCommand(f.t.Context(), caller, id, sandbox.Command{Shell: script, Timeout: time.Minute})
	if err != nil {
		f.t.Fatal(err)
	}
	if res := f.end(id, exec); res.Status != sandbox.StatusExited || *res.ExitCode != 0 {
		f.t.Fatalf("%s: %+v", script, res)
	}
}

// onVolume is what the thread's folder on the volume has at a path of the workspace; "": nothing.
func (f *remoteHouse) onVolume(id, name string) string {
	v := volumes.Of(sandbox.Thread{Owner: caller.Owner, ID: id})
	text, _ := os.ReadFile(filepath.Join(f.spy.Host().OnVolume(*v), "workspace", name))
	return string(text)
}

func (f *remoteHouse) release(id string) {
	f.t.Helper()
	if err := f.Threads.ReleaseSandbox(f.t.Context(), caller, id); err != nil {
		f.t.Fatal(err)
	}
}

func (f *remoteHouse) sandboxes() int {
	f.t.Helper()
	list, err := f.spy.List(f.t.Context(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return len(list)
}

// TestVolume: files stay on the volume; nothing is copied but for who looks, and a deleted thread has nothing there.
func TestVolume(t *testing.T) {
	t.Parallel()
	f := newVolumeHouse(t)
	if err := f.write("t", "before", "b", false); err != nil {
		t.Fatal(err)
	}
	f.quiet("t", "cat before > a")
	f.release("t")
	f.want("on the volume", f.onVolume("t", "a"), "b")
	f.want("at the server", f.here("t", "a"), "")
	if n := f.spy.pulls.Load(); n != 0 {
		t.Errorf("%d pulls, and nobody looked", n)
	}
	for range 3 {
		f.want("read without a sandbox", must(f.read("t", "a")), "b")
	}
	if n := f.spy.pulls.Load(); n != 1 {
		t.Errorf("%d pulls for what is read again and again", n)
	}
	if n := f.sandboxes(); n != 0 {
		t.Errorf("%d sandboxes are left of reading", n)
	}
	if err := f.write("t", "c", "by the API", false); err != nil {
		t.Fatal(err)
	}
	f.change("t", func(fs *paths.FS) error { return fs.Remove(t.Context(), sandbox.WorkspaceDir+"/before", false) })
	f.quiet("t", "[ \"$(cat c)\" = 'by the API' ] && [ -e a ] && [ ! -e before ] && echo more > d")
	f.want("read from a sandbox", must(f.read("t", "d")), "more\n")
	if err := f.write("t", "e", "pushed", false); err != nil {
		t.Fatal(err)
	}
	f.want("what was written while it runs", f.onVolume("t", "e"), "pushed")

	f.quiet("other", "[ ! -e a ] && echo mine > a")
	if err := f.Threads.DeleteThread(t.Context(), caller, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.spy.Host().OnVolume(*volumes.Of(sandbox.Thread{Owner: caller.Owner, ID: "t"}))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a deleted thread: %v", err)
	}
	f.want("another thread's", f.onVolume("other", "a"), "mine\n")
	f.quiet("t", "[ ! -e a ]")
}

// TestVolumeHasNoPool: a sandbox that waits could have no volume, so none does.
func TestVolumeHasNoPool(t *testing.T) {
	t.Parallel()
	f := newVolumeHouse(t, withPool(sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600}))
	f.quiet("t", "echo 1 > a")
	if f.instance("t").Info().Warm || f.sandboxes() != 1 {
		t.Errorf("%+v of %d sandboxes", f.instance("t").Info(), f.sandboxes())
	}
}

// TestVolumeLists: an exec that is asked what it changed says so.
func TestVolumeLists(t *testing.T) {
	t.Parallel()
	f := newVolumeHouse(t)
	f.quiet("t", "echo 1 > a")
	f.release("t")
	res := f.ok("t", "echo 2 > b")
	if len(res.Files) != 1 || res.Files[0].Path != sandbox.WorkspaceDir+"/b" || res.FilesTruncated {
		t.Errorf("changed %+v, %v", res.Files, res.FilesTruncated)
	}
}

// TestVolumeSandboxEndsByItself: what it wrote is there, whatever became of it and of the server's copy.
func TestVolumeSandboxEndsByItself(t *testing.T) {
	t.Parallel()
	f := newVolumeHouse(t)
	f.quiet("t", "echo 1 > a")
	f.want("read", must(f.read("t", "a")), "1\n")
	f.quiet("t", "echo 2 > a")
	inst := f.instance("t")
	f.spy.Kill(inst.ID)
	<-inst.Gone
	f.want("read after its end", must(f.read("t", "a")), "2\n")
	f.quiet("t", "[ $(cat a) = 2 ]")
}

// TestVolumeChangedOutOfReach: what the API changed and the sandbox did not get, the next one has.
func TestVolumeChangedOutOfReach(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{false, true} {
		f := newVolumeHouse(t)
		f.quiet("t", "echo 1 > a; echo 1 > b")
		f.want("read", must(f.read("t", "a")), "1\n")
		id := f.instance("t").ID
		f.spy.Host().Cut(id, true)
		if err := f.write("t", "a", "changed", false); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("out of reach: %v", err)
		}
		f.release("t")
		if read {
			f.want("read without a sandbox", must(f.read("t", "a")), "changed")
		}
		f.quiet("t", "[ $(cat a) = changed ] && [ $(cat b) = 1 ]")
		f.release("t")
		f.want("on the volume", f.onVolume("t", "a"), "changed")
	}
}

// TestVolumeFetchAndStart: who reads while a sandbox starts, and the other way round, misses nothing.
func TestVolumeFetchAndStart(t *testing.T) {
	t.Parallel()
	f := newVolumeHouse(t)
	f.quiet("t", "echo 1 > a")
	f.release("t")
	reached, going := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.spy.hook(func(sandbox.ID) {
		once.Do(func() {
			close(reached)
			<-going
		})
	}, nil)
	read := make(chan string, 1)
	go func() { read <- must(f.read("t", "a")) }()
	<-reached
	ran := make(chan error, 1)
	go func() {
		exec, err := f.Runs.RunCommand(t.Context(), caller, "t", sandbox.Command{Shell: "cat a > b; echo 2 > a", Timeout: time.Minute})
		if err == nil {
			_, err = f.Execs.Wait(t.Context(), caller, "t", exec)
		}
		ran <- err
	}()
	f.eventually("its start", func() bool { return f.instance("t") != nil })
	select {
	case err := <-ran:
		t.Errorf("it ran while the files were being fetched: %v", err)
	default:
	}
	close(going)
	f.want("read", <-read, "1\n")
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	f.want("read then", must(f.read("t", "a")), "2\n")
	f.want("what it had", must(f.read("t", "b")), "1\n")
}

// TestVolumeIsForGood: a thread that was on a volume stays there when new ones are not; a thread that was not moves.
func TestVolumeIsForGood(t *testing.T) {
	t.Parallel()
	f := newFarHouse(t)
	f.quiet("t", "echo 1 > a")
	f.release("t")
	f.Starts.Maker.OnVolumes = true
	f.quiet("t", "[ $(cat a) = 1 ] && echo 2 > a")
	f.want("moved", f.onVolume("t", "a"), "2\n")
	f.release("t")
	f.Starts.Maker.OnVolumes = false
	f.quiet("t", "[ $(cat a) = 2 ] && echo 3 > a")
	f.want("stayed", f.onVolume("t", "a"), "3\n")
	f.quiet("new", "echo 4 > a")
	f.want("a new one", f.onVolume("new", "a"), "")
}

// TestVolumeLeftovers: a sandbox for files that a server left behind is removed, unless a caller waits for it.
func TestVolumeLeftovers(t *testing.T) {
	t.Parallel()
	f := newVolumeHouse(t)
	mine := sandbox.Instance{ID: "skerry-00000000000000a1", CreatedAt: time.Now(), Labels: map[string]string{
		sandbox.LabelRole: sandbox.RoleFiles, sandbox.LabelReplica: f.peers.ID(),
	}}
	if f.volumes.Left(mine) {
		t.Error("a new one of this server")
	}
	old := mine
	old.CreatedAt = time.Now().Add(-10*time.Minute - time.Minute)
	if !f.volumes.Left(old) {
		t.Error("an old one")
	}
}

// TestVolumeDeleteFails: a thread whose folder cannot be removed is not said to be deleted, and can be later.
func TestVolumeDeleteFails(t *testing.T) {
	t.Parallel()
	broken := &brokenVolumes{}
	f := newVolumeHouse(t, func(o *Options) {
		broken.spied = o.Driver.(*spied)
		o.Driver = broken
	})
	f.quiet("t", "echo 1 > a")
	broken.err = sandbox.Errorf(sandbox.Unavailable, "no node has room")
	if err := f.Threads.DeleteThread(t.Context(), caller, "t"); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("deleted: %v", err)
	}
	f.want("on the volume", f.onVolume("t", "a"), "1\n")
	f.want("read", must(f.read("t", "a")), "1\n")
	broken.err = nil
	if err := f.Threads.DeleteThread(t.Context(), caller, "t"); err != nil {
		t.Error(err)
	}
	f.want("on the volume", f.onVolume("t", "a"), "")
}

// brokenVolumes removes no folder while it has an error.
type brokenVolumes struct {
	*spied
	err error
}

func (b *brokenVolumes) RemoveFolder(ctx context.Context, spec sandbox.Spec) error {
	if b.err != nil {
		return b.err
	}
	return b.spied.RemoveFolder(ctx, spec)
}
