package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// mortal ends the goroutine that comes to a boundary between two hooks, as kill -9 does: nothing of it goes on.
type mortal struct {
	hook  string
	up    bool
	armed atomic.Bool
	dead  chan struct{}
	inst  *instance.Instance // that it had in hand
}

func (m *mortal) passed(inst *instance.Instance, hook string, up bool) {
	if hook == m.hook && up == m.up && m.armed.CompareAndSwap(true, false) {
		m.inst = inst
		close(m.dead)
		runtime.Goexit()
	}
}

// TestKilledBetweenHooks: a server that dies between two hooks of an instance, on any way up and down, loses no file and
// leaves nothing over. Another server goes on with the thread.
func TestKilledBetweenHooks(t *testing.T) {
	for _, far := range []bool{false, true} {
		for _, way := range []string{"cold", "pooled", "claimed", "adopted", "handed over", "not adopted"} {
			for _, up := range []bool{true, false} {
				if up && way == "not adopted" { // it is only taken down
					continue
				}
				for _, hook := range []string{"ownership", "workspace", "folder", "sockets", "sandbox", "skills", "daemon", "running"} {
					direction := map[bool]string{true: "up", false: "down"}[up]
					t.Run(fmt.Sprintf("%s_%s_%s_far_%v", way, direction, hook, far), func(t *testing.T) {
						t.Parallel()
						killBetweenHooks(t, way, &mortal{hook: hook, up: up, dead: make(chan struct{})}, far)
					})
				}
			}
		}
	}
}

func killBetweenHooks(t *testing.T, way string, m *mortal, far bool) {
	w := newTown(t)
	w.far = far
	a, next := w.settleMortal(way, m)
	w.begin(way, m)
	if way == "cold" || way == "pooled" || far && way == "claimed" { // where the disk is the server's, a thread with files gets none that waited
		w.write(a, "kept")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch {
	case way == "pooled":
		if !m.up {
			x := a.pool.Waiting()[0]
			m.armed.Store(true)
			a.pool.Ended(x.ID)
		}
	case m.up && way != "adopted":
		m.armed.Store(true)
		go a.Starts.Acquire(ctx, caller, "main", sandbox.AcquireOptions{}) //nolint:errcheck // it does not come back
	case !m.up && way != "not adopted":
		w.acquire(a)
		w.write(a, "kept")
		m.armed.Store(true)
		if next == "" {
			go a.Threads.ReleaseSandbox(ctx, caller, "main") //nolint:errcheck // as above
		} else {
			w.drainOf(a, time.Minute)
		}
	}
	select {
	case <-m.dead:
	case <-t.Context().Done():
		t.Fatal("it does not come to the hook")
	}
	cancel()
	w.kill(a, m.inst)

	b := w.orchs[next]
	if b == nil {
		b = w.settle("b")
	}
	w.acquire(b)
	if way != "claimed" || far || !m.up {
		if got := w.read(b); got != "kept" {
			t.Errorf("the file has %q", got)
		}
	}
	if err := b.Threads.DeleteThread(t.Context(), caller, "main"); err != nil {
		t.Error(err)
	}
	w.eventually("nothing is left", func() bool {
		b.pool.Sweep()
		b.reaper.ReapFolders(nil)
		folders, err := pool.RootIn(w.data).List()
		claims, e1 := b.owners.Book.All()
		found, e2 := w.engine(t, b).List(t.Context(), nil)
		runs, e3 := filepath.Glob(filepath.Join(b.runRoot, "skerry-*"))
		if err := errors.Join(err, e1, e2, e3); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Logf("%v %v %v %v", folders, claims, found, runs)
		}
		return len(folders)+len(claims)+len(found)+len(runs) == 0
	})
	if _, err := os.Stat(b.folders.Dir(mainThread)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the thread's folder: %v", err)
	}
}

// begin starts a sandbox on a first server, for the ways on which another server finds one, and ends that server.
func (w *town) begin(way string, m *mortal) {
	w.Helper()
	if way == "handed over" && !m.up || way == "cold" || way == "pooled" || way == "claimed" {
		return
	}
	first := w.settle("first", func(o *Options) {
		gone := o.Templates["base"]
		gone.Name = "gone"
		o.Templates["gone"] = gone
	})
	w.write(first, "kept")
	var wanted sandbox.AcquireOptions
	if way == "not adopted" { // no other server has its template
		wanted.Template = "gone"
	}
	if _, err := first.Starts.Acquire(w.Context(), caller, "main", wanted); err != nil {
		w.Fatal(err)
	}
	if way == "handed over" {
		<-w.drainOf(first, time.Minute)
	}
	m.armed.Store(way == "not adopted" || way == "adopted" && m.up)
	w.kill(first, nil)
}

// settleMortal starts the server that is to die, and the server that continues a thread that is handed over.
func (w *town) settleMortal(way string, m *mortal) (a *Orchestrator, next string) {
	w.Helper()
	ways := []func(*Options){func(o *Options) { o.Lifecycle.PassedHook = m.passed }}
	if way == "claimed" || way == "pooled" {
		ways = append(ways, withPool(sandbox.Pool{Target: 1, Min: 1, Burst: 1, MaxAgeSeconds: 3600}))
	}
	m.armed.Store(way == "pooled" && m.up)
	a = w.settle("a", ways...)
	if way == "claimed" || way == "pooled" && !m.up {
		w.eventually("one waits", func() bool { return poolOf(a) == 1 })
	}
	if way == "handed over" && !m.up {
		next = "next"
		w.settle(next)
	}
	return a, next
}

// kill ends a server of the town as kill -9 does: nothing is cleared away, and its sockets are closed, also those of what it had
// in hand.
func (w *town) kill(r *Orchestrator, inHand *instance.Instance) {
	w.mu.Lock()
	w.dead[r.peers.ID()] = true
	w.mu.Unlock()
	r.stop()
	all := r.live.All()
	if inHand != nil && !slices.Contains(all, inHand) {
		all = append(all, inHand)
	}
	for _, inst := range all { // what waits for its end
		r.teardown.Forget(inst)
	}
	r.wg.Wait()
	for _, inst := range all {
		_ = inst.Close()
	}
	for _, x := range r.pool.Waiting() {
		_ = x.Close()
	}
}

func (w *town) acquire(r *Orchestrator) {
	w.Helper()
	if _, err := r.Starts.Acquire(w.Context(), caller, "main", sandbox.AcquireOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *town) write(r *Orchestrator, text string) {
	w.Helper()
	err := r.Files.ChangeFiles(w.Context(), caller, "main", audit.ActionFileWrite, "a", func(fs *paths.FS) (int64, error) {
		_, err := fs.Write(w.Context(), sandbox.WorkspaceDir+"/a", strings.NewReader(text), false)
		return int64(len(text)), err
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *town) read(r *Orchestrator) (text string) {
	w.Helper()
	err := r.Files.ReadFiles(w.Context(), caller, "main", func(fs *paths.FS) error {
		f, err := fs.Open(sandbox.WorkspaceDir + "/a")
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read-only
		b := make([]byte, 100)
		n, err := f.Read(b)
		text = string(b[:n])
		return err
	})
	if err != nil {
		w.Error(err)
	}
	return text
}
