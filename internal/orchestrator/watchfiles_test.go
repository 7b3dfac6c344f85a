package orchestrator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/files"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// watching is a watch of a thread's workspace, and what it told.
type watching struct {
	told chan string
	done chan error
}

func (h *house) watch(t *testing.T, id string) *watching {
	t.Helper()
	w := &watching{told: make(chan string, 100), done: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	go func() {
		began := false
		w.done <- h.Files.WatchFiles(ctx, caller, id, sandbox.WorkspaceDir, true, func(changes []paths.Change) error {
			if !began {
				began = true
				w.told <- "began"
			}
			for _, c := range changes {
				w.told <- c.Change + " " + strings.TrimPrefix(c.Path, sandbox.WorkspaceDir+"/")
			}
			return nil
		})
	}()
	w.want(t, "began")
	return w
}

// want waits for events, in any order and among others.
func (w *watching) want(t *testing.T, all ...string) {
	t.Helper()
	for len(all) > 0 {
		select {
		case got := <-w.told:
			all = slices.DeleteFunc(all, func(s string) bool { return s == got })
		case err := <-w.done:
			t.Fatalf("it ended before %v: %v", all, err)
		case <-time.After(3 * time.Minute):
			t.Fatalf("nothing told of %v", all)
		}
	}
}

func (w *watching) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.done:
		return err
	case <-time.After(3 * time.Minute):
		t.Fatal("the watch did not end")
		return nil
	}
}

func (h *house) put(t *testing.T, id, name, text string) {
	t.Helper()
	err := h.Files.ChangeFiles(t.Context(), caller, id, audit.ActionFileWrite, name, func(fs *paths.FS) (int64, error) {
		_, err := fs.Write(t.Context(), sandbox.WorkspaceDir+"/"+name, strings.NewReader(text), false)
		return 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatchFiles: changes are told as they come, also in new folders; a watch ends with the sandbox, the thread and the server.
func TestWatchFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	h.put(t, "x", "there", "1")
	w := h.watch(t, "x")
	h.put(t, "x", "d/e/new", "1")
	w.want(t, "created d", "created d/e", "created d/e/new")
	h.put(t, "x", "d/e/new", "other")
	w.want(t, "modified d/e/new")
	err := h.Files.ChangeFiles(t.Context(), caller, "x", audit.ActionFileMove, "x", func(fs *paths.FS) (int64, error) {
		_, err := fs.Move(sandbox.WorkspaceDir+"/there", sandbox.WorkspaceDir+"/d/moved")
		return 0, errors.Join(err, fs.Remove(t.Context(), sandbox.WorkspaceDir+"/d/e", true))
	})
	if err != nil {
		t.Fatal(err)
	}
	w.want(t, "deleted there", "created d/moved", "deleted d/e", "deleted d/e/new")

	if _, err := h.exec(t, "x", time.Minute); err != nil { // it has a sandbox now
		t.Fatal(err)
	}
	h.put(t, "x", "last", "1")
	w.want(t, "created last")
	other := h.watch(t, "x")
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "x"); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*watching{w, other} {
		if err := w.ended(t); err != nil {
			t.Errorf("the end of the sandbox: %v", err)
		}
	}
	w = h.watch(t, "x")
	if err := h.Threads.DeleteThread(t.Context(), caller, "x"); err != nil {
		t.Fatal(err)
	}
	if err := w.ended(t); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("the end of the thread: %v", err)
	}
	if err := h.Files.WatchFiles(t.Context(), caller, "x", sandbox.WorkspaceDir, true, func([]paths.Change) error { return nil }); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("no thread: %v", err)
	}
	if n := h.Files.Watching(); n != 0 {
		t.Errorf("%d watches are counted", n)
	}
}

// TestWatchesAreBounded: a thread has so many; a place comes back.
func TestWatchesAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{})
	h.put(t, "x", "a", "1")
	nothing := func([]paths.Change) error { return nil }
	var all []*watching
	for range files.MaxWatchesOfThread {
		all = append(all, h.watch(t, "x"))
	}
	if err := h.Files.WatchFiles(t.Context(), caller, "x", sandbox.WorkspaceDir, true, nothing); !errors.Is(err, sandbox.CapacityExceeded) {
		t.Errorf("one more: %v", err)
	}
	if err := h.Threads.DeleteThread(t.Context(), caller, "x"); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		if err := w.ended(t); !errors.Is(err, sandbox.NotFound) {
			t.Error(err)
		}
	}
	h.put(t, "x", "a", "1")
	h.watch(t, "x")
	stop := errors.New("enough")
	if err := h.Files.WatchFiles(t.Context(), caller, "x", sandbox.WorkspaceDir, true, func([]paths.Change) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}
