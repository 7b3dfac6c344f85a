package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// changingHub is a hub whose tools are changed by the test.
type changingHub struct {
	noTools

	mu      sync.Mutex
	version uint64
	changed chan struct{}
	slow    bool // the next listings wait until their deadline
	gone    bool // the server "s" starts again: it has no tools
}

func (h *changingHub) Servers(context.Context, sandbox.Thread) ([]sandbox.ToolServer, error) {
	return []sandbox.ToolServer{{Name: "s", State: "idle"}}, nil
}

func newChangingHub() *changingHub { return &changingHub{version: 1, changed: make(chan struct{})} }

// Tools returns two tools: a constant one, and one named after the version.
func (h *changingHub) Tools(ctx context.Context, _ sandbox.Thread) (sandbox.ToolSet, error) {
	h.mu.Lock()
	n, slow, gone := h.version, h.slow, h.gone
	h.mu.Unlock()
	if slow {
		<-ctx.Done()
	}
	if gone {
		return sandbox.ToolSet{Hash: "none"}, nil
	}
	input := json.RawMessage(`{"type":"object"}`)
	return sandbox.ToolSet{Hash: fmt.Sprint(n), Tools: []sandbox.Tool{
		{Server: "s", Name: "same", Printed: "s__same", Input: input},
		{Server: "s", Name: fmt.Sprintf("v%d", n), Printed: fmt.Sprintf("s__v%d", n), Input: input},
	}}, nil
}

func (h *changingHub) Version() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.version
}

func (h *changingHub) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

func (h *changingHub) change() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version++
	close(h.changed)
	h.changed = make(chan struct{})
	return h.version
}

// within waits until ok, at most for d, and returns how long it took. The server waits 600 ms for slow servers; the bounds
// here are under the 15 s that it waits for them elsewhere, and far over 1 s, because other tests have the cores, too.
func within(t *testing.T, d time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > d {
			t.Fatalf("%s: not within %v", what, d)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}

func there(parts ...string) bool {
	_, err := os.Stat(filepath.Join(parts...))
	return err == nil
}

// TestChangesArePushed: a change reaches sandboxes in which no code is started, within a second, and a
// program that reads all the time sees whole trees only.
func TestChangesArePushed(t *testing.T) {
	t.Parallel()
	hub := newChangingHub()
	h := newHouseWith(t, daemon{run: exits}, hub)
	var dirs []string
	for _, id := range []string{"a", "b"} {
		if _, err := h.exec(t, id, time.Minute); err != nil {
			t.Fatal(err)
		}
		inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: id})
		dirs = append(dirs, h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI()))
	}
	for _, dir := range dirs {
		within(t, 10*time.Second, "the first wrappers", func() bool { return there(dir, "servers/s/v1.ts") })
	}
	stop, done := make(chan struct{}), make(chan int)
	go func() { done <- readAll(t, dirs[0], stop) }()
	for range 12 {
		n := hub.change()
		for _, dir := range dirs {
			took := within(t, 10*time.Second, "the change", func() bool { return there(dir, fmt.Sprintf("servers/s/v%d.ts", n)) })
			t.Logf("version %d: %v", n, took)
		}
		if there(dirs[0], fmt.Sprintf("servers/s/v%d.ts", n-1)) {
			t.Errorf("a tool of version %d is still there", n-1)
		}
	}
	close(stop)
	if reads := <-done; reads < 100 {
		t.Errorf("only %d reads", reads)
	}
}

// readAll reads what is always there, over and over; each file must be whole, and what an index
// names must be there: it is looked for in the folder that the index is of, whatever is exchanged meanwhile.
func readAll(t *testing.T, dir string, stop chan struct{}) (reads int) {
	for {
		select {
		case <-stop:
			return reads
		default:
		}
		for path, end := range map[string]string{"servers/s/same.ts": "}\n", "servers/s/__init__.py": ", kwargs)\n", "helpers/callMCPTool.ts": "\n"} {
			text, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil || !strings.HasSuffix(string(text), end) {
				t.Errorf("%s: %v, %d bytes", path, err, len(text))
			}
		}
		if err := wholeTree(filepath.Join(dir, "servers")); err != nil {
			t.Error(err)
		}
		reads++
	}
}

// wholeTree checks that all that an index exports is beside it.
func wholeTree(servers string) error {
	root, err := os.OpenRoot(servers)
	if err != nil {
		return err
	}
	defer root.Close()
	index, err := root.ReadFile("s/index.ts")
	for line := range strings.Lines(string(index)) {
		if name, ok := strings.CutPrefix(line, `export * from "./`); ok && err == nil {
			_, err = root.Stat("s/" + strings.TrimSuffix(name, "\";\n"))
		}
	}
	// The tree of two changes ago is being removed.
	opened, e1 := root.Stat(".")
	now, e2 := os.Stat(servers)
	if err != nil && errors.Join(e1, e2) == nil && os.SameFile(opened, now) {
		return fmt.Errorf("half a tree: %w", err)
	}
	return e2
}

// TestSlowServersDoNotHoldChanges: a listing that ends at its deadline is written, and done again when
// code runs.
func TestSlowServersDoNotHoldChanges(t *testing.T) {
	t.Parallel()
	hub := newChangingHub()
	h := newHouseWith(t, daemon{run: exits}, hub)
	if _, err := h.exec(t, "a", time.Minute); err != nil {
		t.Fatal(err)
	}
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "a"})
	within(t, 10*time.Second, "the first wrappers", func() bool { return there(h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI()), "servers/s/v1.ts") })
	hub.mu.Lock()
	hub.slow = true
	hub.mu.Unlock()
	hub.change()
	within(t, 10*time.Second, "the change", func() bool { return there(h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI()), "servers/s/v2.ts") })
	inst.Tools.Mu.Lock()
	defer inst.Tools.Mu.Unlock()
	if inst.Tools.Whole {
		t.Error("what was cut short counts as whole")
	}
}

// TestServersThatStartKeepTheirWrappers until it is known what they have.
func TestServersThatStartKeepTheirWrappers(t *testing.T) {
	t.Parallel()
	hub := newChangingHub()
	h := newHouseWith(t, daemon{run: exits}, hub)
	if _, err := h.exec(t, "a", time.Minute); err != nil {
		t.Fatal(err)
	}
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "a"})
	within(t, 10*time.Second, "the first wrappers", func() bool { return there(h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI()), "servers/s/v1.ts") })
	hub.mu.Lock()
	hub.slow, hub.gone = true, true
	hub.mu.Unlock()
	hub.change()
	within(t, 10*time.Second, "the push", func() bool {
		inst.Tools.Mu.Lock()
		defer inst.Tools.Mu.Unlock()
		return !inst.Tools.Whole
	})
	if !there(h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI()), "servers/s/v1.ts") {
		t.Error("the wrappers of a server that starts again are gone")
	}
	hub.mu.Lock()
	hub.slow = false
	hub.mu.Unlock()
	hub.change()
	within(t, 10*time.Second, "the end of them", func() bool { return !there(h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI()), "servers/s/v1.ts") })
}

// TestNoWrappersAfterTheEnd: a change that comes while a sandbox is released does not make its folder again.
func TestNoWrappersAfterTheEnd(t *testing.T) {
	t.Parallel()
	hub := newChangingHub()
	h := newHouseWith(t, daemon{run: exits}, hub)
	if _, err := h.exec(t, "a", time.Minute); err != nil {
		t.Fatal(err)
	}
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "a"})
	within(t, 10*time.Second, "the first wrappers", func() bool { return there(h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI()), "servers/s/v1.ts") })
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "a"); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the end", func() bool { return !there(string(inst.Dir)) })
	hub.change()
	if err := h.wrappers.Refresh(t.Context(), caller, inst); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a refresh after the end: %v", err)
	}
	if there(string(inst.Dir)) {
		t.Error("the folder of an ended sandbox came back")
	}
}
