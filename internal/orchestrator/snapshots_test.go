package orchestrator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/snapshot"
)

// away is a store that may not be there.
type away struct {
	snapshot.Objects
	gone atomic.Bool
}

func (a *away) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	if a.gone.Load() {
		return "", sandbox.Errorf(sandbox.Unavailable, "the store is away")
	}
	return a.Objects.Replace(ctx, name, data, version)
}

// kept is a house with a data folder of its own whose threads are kept in a store that others share. Its execs write what
// write says into the thread's workspace.
type keptHouse struct {
	*house
	store *away
	write atomic.Pointer[map[string]string]
}

func newKeptHouse(t *testing.T, dir string, delay time.Duration) *keptHouse {
	t.Helper()
	k := &keptHouse{store: &away{Objects: snapshot.NewFolder(dir)}}
	log := slog.New(slog.DiscardHandler)
	s, err := snapshot.Open(t.Context(), snapshot.Options{Objects: k.store, Dir: filepath.Join(t.TempDir(), "snapshots"), Holder: string(sandbox.NewID()), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	k.house = newHouseWith(t, daemon{run: func(out *connect.ServerStream[sandboxv1.Event]) error {
		if files := k.write.Load(); files != nil {
			for name, text := range *files {
				if err := os.WriteFile(k.within(t, savedThread.ID, sandbox.WorkspaceDir+"/"+name), []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
		}
		return exits(out)
	}}, noTools{}, func(o *Options) {
		o.Storage.Snapshots, o.Storage.SnapshotDelay = s, delay
		other := o.Templates["base"]
		other.Name = "other"
		o.Templates["other"] = other
	})
	return k
}

var savedThread = sandbox.Thread{Owner: caller.Owner, ID: "kept"}

func (k *keptHouse) run(t *testing.T, files map[string]string) error {
	t.Helper()
	k.write.Store(&files)
	_, err := k.exec(t, savedThread.ID, time.Minute)
	return err
}

func (k *keptHouse) read(t *testing.T, name string) (string, error) {
	t.Helper()
	var text []byte
	err := k.Files.ReadFiles(t.Context(), caller, savedThread.ID, func(fs *paths.FS) error {
		f, err := fs.Open(sandbox.WorkspaceDir + "/" + name)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err = io.ReadAll(f)
		return err
	})
	return string(text), err
}

func (k *keptHouse) reads(t *testing.T, name, want string) {
	t.Helper()
	if got, err := k.read(t, name); err != nil || got != want {
		t.Errorf("%s: %q, not %q: %v", name, got, want, err)
	}
}

// TestSnapshotsMoveOn: a thread that was begun on one server goes on on another with another disk, with its files, labels
// and template; the first one cannot put it back, and goes on from there; deleted on one, it is gone on both.
func TestSnapshotsMoveOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := newKeptHouse(t, dir, 0), newKeptHouse(t, dir, 0)
	if _, err := a.Starts.Acquire(t.Context(), caller, savedThread.ID, sandbox.AcquireOptions{Template: "other", Labels: map[string]string{"k": "v"}, Wait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := a.run(t, map[string]string{"a": "by a"}); err != nil {
		t.Fatal(err)
	}
	err := a.Files.ChangeFiles(t.Context(), caller, savedThread.ID, audit.ActionFileWrite, "x", func(fs *paths.FS) (int64, error) {
		w, err := fs.Write(t.Context(), sandbox.WorkspaceDir+"/api", strings.NewReader("by the API"), false)
		return w.Added, err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.reads(t, "a", "by a")
	b.reads(t, "api", "by the API")
	if view, err := b.Threads.Thread(t.Context(), caller, savedThread.ID); err != nil || view.Labels["k"] != "v" {
		t.Errorf("%+v, %v", view, err)
	}
	if err := b.run(t, map[string]string{"b": "by b"}); err != nil {
		t.Fatal(err)
	}
	if inst := b.live.Find(savedThread); inst == nil || inst.Template.Name != "other" {
		t.Error("it has another template")
	}
	// a still has a sandbox, with files that do not count any more.
	if err := a.run(t, map[string]string{"a": "late"}); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a late exec: %v", err)
	}
	b.reads(t, "a", "by a")
	for deadline := time.Now().Add(20 * time.Second); a.live.Find(savedThread) != nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	if err := a.run(t, map[string]string{"a": "again"}); err != nil {
		t.Fatal(err)
	}
	a.reads(t, "b", "by b")
	a.reads(t, "a", "again")
	if err := a.Threads.DeleteThread(t.Context(), caller, savedThread.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.read(t, "a"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("where it was deleted: %v", err)
	}
	if err := b.Threads.ReleaseSandbox(t.Context(), caller, savedThread.ID); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, err = b.read(t, "a"); errors.Is(err, sandbox.NotFound) {
			break
		}
	}
	if !errors.Is(err, sandbox.NotFound) {
		t.Errorf("where it was once: %v", err)
	}
}

// TestSnapshotsFailClosed: an exec whose files could not be kept is not acknowledged; when the store is back, the next one
// has all.
func TestSnapshotsFailClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newKeptHouse(t, dir, 0)
	if err := a.run(t, map[string]string{"a": "1"}); err != nil {
		t.Fatal(err)
	}
	a.store.gone.Store(true)
	if err := a.run(t, map[string]string{"a": "22"}); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("its files are nowhere, and it was acknowledged: %v", err)
	}
	if err := a.run(t, map[string]string{}); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("the files of the one before are nowhere: %v", err)
	}
	b := newKeptHouse(t, dir, 0)
	b.reads(t, "a", "1")
	a.store.gone.Store(false)
	if err := a.run(t, map[string]string{}); err != nil {
		t.Fatal(err)
	}
	c := newKeptHouse(t, dir, 0)
	c.reads(t, "a", "22")
}

// TestSnapshotsLater: with a delay the server acknowledges an exec before its files are saved. It saves them
// soon, or when the store is back, or when the server stops.
func TestSnapshotsLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newKeptHouse(t, dir, time.Millisecond)
	a.store.gone.Store(true)
	if err := a.run(t, map[string]string{"a": "1"}); err != nil {
		t.Fatal(err)
	}
	a.store.gone.Store(false)
	a.threads.SaveAllPending(t.Context())
	deadline := time.Now().Add(40 * time.Second)
	for time.Now().Before(deadline) {
		if late, err := a.o.Storage.Snapshots.Pending(); err != nil || len(late) == 0 {
			break
		}
		a.threads.SaveAllPending(t.Context())
		time.Sleep(20 * time.Millisecond)
	}
	b := newKeptHouse(t, dir, 0)
	b.reads(t, "a", "1")
	if err := b.run(t, map[string]string{"b": "2"}); err != nil {
		t.Fatal(err)
	}
	c := newKeptHouse(t, dir, time.Hour)
	if err := c.run(t, map[string]string{"c": "3"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Threads.ReleaseSandbox(t.Context(), caller, savedThread.ID); err != nil {
		t.Fatal(err)
	}
	d := newKeptHouse(t, dir, 0)
	d.reads(t, "b", "2")
	d.reads(t, "c", "3")
}
