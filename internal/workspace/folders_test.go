package workspace

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// uids counts up from the first.
type uids struct{ n atomic.Int64 }

func (u *uids) NextUID(_ context.Context, first int) (int, error) {
	return first + int(u.n.Add(1)) - 1, nil
}

func newFolders(t *testing.T) (*Folders, sandbox.Thread) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("folders of threads belong to other uids: this needs root")
	}
	f := New(Options{DataDir: t.TempDir(), UIDs: &uids{}, Log: slog.New(slog.DiscardHandler)})
	return f, sandbox.Thread{Owner: sandbox.Owner{Tenant: "a", User: "b"}, ID: "t"}
}

// TestMakeAtOnce: of many makers of one folder one wins, all get its uid, and nothing else is left.
func TestMakeAtOnce(t *testing.T) {
	f, thread := newFolders(t)
	dir := f.Dir(thread)
	if err := f.Exists(thread); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("before: %v", err)
	}
	var wg sync.WaitGroup
	got := make([]int, 8)
	for i := range got {
		wg.Go(func() {
			uid, err := f.Make(t.Context(), dir, Fill)
			if err != nil {
				t.Error(err)
			}
			got[i] = uid
		})
	}
	wg.Wait()
	uid, err := UID(dir)
	if err != nil || uid < FirstUID {
		t.Fatalf("%d, %v", uid, err)
	}
	for _, other := range got {
		if other != uid {
			t.Errorf("uid %d, the folder has %d", other, uid)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("beside the folder: %v, %v", left, err)
	}
	if err := f.Exists(thread); err != nil {
		t.Error(err)
	}
}

// TestSweep: what a server that died had begun to delete goes, and so does what it had begun to make long ago.
func TestSweep(t *testing.T) {
	f, thread := newFolders(t)
	dir := f.Dir(thread)
	if _, err := f.Make(t.Context(), dir, Fill); err != nil {
		t.Fatal(err)
	}
	parent := filepath.Dir(dir)
	for _, name := range []string{".deleted-1", ".new-old", ".new-young"} {
		if err := os.MkdirAll(filepath.Join(parent, name, "files", "workspace", "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * stageAge)
	if err := os.Chtimes(filepath.Join(parent, ".new-old"), old, old); err != nil {
		t.Fatal(err)
	}
	f.Sweep(t.Context())
	for name, want := range map[string]bool{"t": true, ".deleted-1": false, ".new-old": false, ".new-young": true} {
		if _, err := os.Lstat(filepath.Join(parent, name)); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", name, err == nil, want)
		}
	}
	if err := f.Discard(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Exists(thread); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("buried: %v", err)
	}
	if err := f.Discard(t.Context(), dir); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}

// TestSweepStages: what a server that died did not get into its place goes, and only when it is old.
func TestSweepStages(t *testing.T) {
	f, thread := newFolders(t)
	dir := f.Dir(thread)
	if _, err := f.Make(t.Context(), dir, Fill); err != nil {
		t.Fatal(err)
	}
	stage := filepath.Join(dir, ".stage")
	if err := os.Mkdir(stage, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"old", "young"} {
		if err := os.WriteFile(filepath.Join(stage, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * stageAge)
	if err := os.Chtimes(filepath.Join(stage, "old"), long, long); err != nil {
		t.Fatal(err)
	}
	f.Sweep(t.Context())
	if left, err := os.ReadDir(stage); err != nil || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("%v, %v", left, err)
	}
}
