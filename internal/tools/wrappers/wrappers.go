package wrappers

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
)

const (
	// toolsTimeout bounds the wait for MCP servers that are slow to list their tools: code that needs
	// none of them must not wait longer.
	toolsTimeout = 15 * time.Second
	// pushTimeout is the same where no caller waits: a change of one server reaches running sandboxes
	// within a second, whatever the others do.
	pushTimeout = 600 * time.Millisecond
	// pushPause is the least time between two rounds: servers that change all the time are not followed
	// all the time.
	pushPause = 100 * time.Millisecond
	// pushParallel is how many instances are looked at side by side.
	pushParallel = 8
)

// Hub lists the tools of threads.
type Hub interface {
	Servers(ctx context.Context, c sandbox.Caller, t sandbox.Thread) ([]sandbox.ToolServer, error)
	Tools(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (sandbox.ToolSet, error)
	// Version changes whenever a set of tools may have changed.
	Version() uint64
	// Changed returns a channel that is closed at the next change of Version.
	Changed() <-chan struct{}
}

// Options are the parts that Wrappers work with.
type Options struct {
	Hub   Hub
	Store *codeapi.Store
	// All returns the sandboxes of this moment.
	All func() []*instance.Instance
	Log *slog.Logger
}

// Wrappers are those in the sandboxes of this server.
type Wrappers struct {
	o   Options
	ctx context.Context // ends with the server
}

// New returns the wrappers of a server that has no sandboxes yet.
func New(ctx context.Context, o Options) *Wrappers { return &Wrappers{o: o, ctx: ctx} }

// Refresh writes the wrappers of the tools that a caller has in the thread into the instance's folder, unless
// they are there already. It costs a comparison when nothing has changed.
func (w *Wrappers) Refresh(ctx context.Context, c sandbox.Caller, inst *instance.Instance) error {
	inst.Tools.Mu.Lock()
	defer inst.Tools.Mu.Unlock()
	if !c.SamePrincipal(inst.Tools.Caller) { // it may have other tools
		inst.Tools.Whole = false
	}
	inst.Tools.Caller = c
	return w.refresh(ctx, inst, toolsTimeout)
}

// refresh waits for MCP servers no longer than wait, and writes what it knows then. ToolsView.Mu is held.
func (w *Wrappers) refresh(ctx context.Context, inst *instance.Instance, wait time.Duration) error {
	version := w.o.Hub.Version()
	if inst.Tools.Whole && inst.Tools.Version == version {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	set, err := w.o.Hub.Tools(limited, inst.Tools.Caller, inst.Thread)
	if err != nil {
		return err
	}
	// The version from before: what changed during the listing is looked at again by the next call. So is
	// all of it when a server was not waited for.
	whole := limited.Err() == nil
	if !whole {
		set = w.withStarting(limited, inst, set)
	}
	set.Hash = codeapi.WithSkills(set)
	if !inst.Tools.Written || set.Hash != inst.Tools.Set.Hash {
		if err := inst.Tools.Write(func() error { return w.write(inst, set) }); err != nil {
			return err
		}
	}
	inst.Tools.Version, inst.Tools.Whole, inst.Tools.Written, inst.Tools.Set = version, whole, true, set
	return nil
}

// withStarting adds the instance's present wrappers of servers that are still starting to an incomplete
// set. So a running program does not lose them for a moment when, for instance, a configuration has
// changed. A call of a tool that no longer exists fails by name.
func (w *Wrappers) withStarting(ctx context.Context, inst *instance.Instance, set sandbox.ToolSet) sandbox.ToolSet {
	servers, err := w.o.Hub.Servers(ctx, inst.Tools.Caller, inst.Thread)
	if err != nil {
		return set
	}
	starting := map[string]bool{}
	for _, s := range servers {
		starting[s.Name] = s.State == "idle"
	}
	for _, t := range set.Tools {
		starting[t.Server] = false
	}
	kept := false
	for _, t := range inst.Tools.Set.Tools {
		if starting[t.Server] {
			set.Tools, kept = append(set.Tools, t), true
		}
	}
	if !kept {
		return set
	}
	slices.SortFunc(set.Tools, func(a, b sandbox.Tool) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Name, b.Name))
	})
	set.Hash = "" // it is no set of the hub's
	return set
}

// Push writes each change of the hub's tools into all sandboxes, until the orchestrator is closed:
// code that runs finds the tools of now.
func (w *Wrappers) Push() {
	for {
		changed := w.o.Hub.Changed() // before the look at the version, so that no change falls between
		w.round()
		pause := time.NewTimer(pushPause)
		select {
		case <-w.ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		select {
		case <-w.ctx.Done():
			return
		case <-changed:
		}
	}
}

// Follow writes what has changed in a thread's own tools into its sandboxes.
func (w *Wrappers) Follow(t sandbox.Thread) {
	for _, inst := range w.o.All() {
		if inst.Thread != t {
			continue
		}
		inst.Tools.Mu.Lock()
		inst.Tools.Whole = false
		inst.Tools.Mu.Unlock()
		if err := w.push(inst); err != nil && w.ctx.Err() == nil && inst.Ending() == "" {
			w.o.Log.Warn("a change of tools did not reach a sandbox; it will when code runs", "thread", t.String(), "error", err)
		}
	}
}

func (w *Wrappers) round() {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, pushParallel)
	for _, inst := range w.o.All() {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if err := w.push(inst); err != nil && w.ctx.Err() == nil && inst.Ending() == "" {
				w.o.Log.Warn("a change of tools did not reach a sandbox; it will when code runs", "thread", inst.Thread.String(), "error", err)
			}
		})
	}
}

// push updates the wrappers of an instance. An instance without wrappers gets them from its start or, when
// it was adopted, from its first code. A restart of the server must not start all MCP servers of all users
// at once.
func (w *Wrappers) push(inst *instance.Instance) error {
	inst.Tools.Mu.Lock()
	defer inst.Tools.Mu.Unlock()
	if !inst.Tools.Written {
		return nil
	}
	return w.refresh(w.ctx, inst, pushTimeout)
}

// write writes the wrappers into the instance's folder, from where they are copied if the sandbox has a disk of
// its own.
func (w *Wrappers) write(inst *instance.Instance, set sandbox.ToolSet) error {
	err := w.o.Store.MaterializeFor(inst.Thread.Tenant, set, inst.Dir.CodeAPI())
	if inst.FileSync != nil {
		inst.FileSync.Views.Add(sandbox.CodeAPIDir)
		inst.FileSync.Follow()
	}
	return err
}
