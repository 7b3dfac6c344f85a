package contexts

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// entry is a context as this process knows it. Its registry's mu guards what changes.
type entry struct {
	id       string
	thread   sandbox.Thread
	language string
	cwd      string

	state    sandbox.ContextState
	detail   string             // why it is lost
	inst     *instance.Instance // that it lives in; nil when it is lost
	run      string             // id of the exec, while busy
	life     int                // counts restarts, so that the end of a former life ends nothing
	created  time.Time
	lastUsed time.Time
	runs     int
	free     chan struct{} // closed when a run ends
}

// Registry holds the contexts of all threads that this server runs. It starts none.
type Registry struct {
	audit *audit.Log
	log   *slog.Logger

	mu       sync.Mutex
	byThread map[sandbox.Thread]map[string]*entry
}

// NewRegistry returns a registry without contexts.
func NewRegistry(a *audit.Log, log *slog.Logger) *Registry {
	return &Registry{audit: a, log: log, byThread: map[sandbox.Thread]map[string]*entry{}}
}

// settle marks those of a thread whose sandbox has ended, and lets go of lost ones that are too many.
// Called with mu held.
func (g *Registry) settle(t sandbox.Thread) {
	var lost []*entry
	for _, c := range g.byThread[t] {
		// The end of a run says what became of it; until then it is busy.
		if c.inst != nil && c.state != sandbox.ContextBusy && c.inst.Ending() != "" {
			c.lose(GoneWithSandbox)
		}
		if c.state == sandbox.ContextLost {
			lost = append(lost, c)
		}
	}
	slices.SortFunc(lost, func(a, b *entry) int { return b.lastUsed.Compare(a.lastUsed) })
	for i, c := range lost {
		if i >= keepLost || time.Since(c.lastUsed) > keepLostTime {
			g.remove(c)
		}
	}
}

// remove is called with mu held.
func (g *Registry) remove(c *entry) {
	if g.byThread[c.thread][c.id] == c {
		delete(g.byThread[c.thread], c.id)
	}
	if len(g.byThread[c.thread]) == 0 {
		delete(g.byThread, c.thread)
	}
}

// get finds a context. NotFound. Called with mu held.
func (g *Registry) get(t sandbox.Thread, id string) (*entry, error) {
	g.settle(t)
	c := g.byThread[t][id]
	if c == nil {
		return nil, noContext(t, id)
	}
	return c, nil
}

func noContext(t sandbox.Thread, id string) error {
	return sandbox.Errorf(sandbox.NotFound, "thread %q has no context %.80q; POST /api/threads/%s/contexts makes one", t.ID, id, t.ID)
}

// add puts c in, unless its thread has enough that live. Called with mu held.
func (g *Registry) add(c *entry) error {
	g.settle(c.thread)
	if n := g.living(c.thread); n >= sandbox.MaxContexts {
		return sandbox.Errorf(sandbox.CapacityExceeded, "the thread has %d contexts, its most; delete one", n)
	}
	if g.byThread[c.thread] == nil {
		g.byThread[c.thread] = map[string]*entry{}
	}
	g.byThread[c.thread][c.id] = c
	return nil
}

func (g *Registry) living(t sandbox.Thread) (n int) {
	for _, c := range g.byThread[t] {
		if c.state != sandbox.ContextLost {
			n++
		}
	}
	return n
}

// show is c as the API shows it. Called with the registry's mu held.
func (c *entry) show() sandbox.CodeContext {
	return sandbox.CodeContext{
		ContextID: c.id, Language: c.language, Cwd: c.cwd, State: c.state, Detail: c.detail, ExecID: c.run,
		CreatedAt: c.created, LastUsedAt: c.lastUsed, Runs: c.runs,
	}
}

// lose ends a life of c. Called with the registry's mu held.
func (c *entry) lose(why string) {
	c.state, c.detail, c.inst, c.run = sandbox.ContextLost, why+WhatToDo, nil, ""
	c.lastUsed = time.Now().UTC()
	c.release()
}

// release tells those who wait for the end of a run.
func (c *entry) release() {
	if c.free != nil {
		close(c.free)
		c.free = nil
	}
}

// unfit says why nothing can run in c. Called with the registry's mu held.
func (c *entry) unfit() error {
	switch c.state {
	case sandbox.ContextLost:
		return sandbox.Errorf(sandbox.Conflict, "context %s is lost: %s", c.id, c.detail)
	case sandbox.ContextBusy:
		return sandbox.Errorf(sandbox.Conflict, "context %s runs exec %s: wait for its end, or interrupt it", c.id, c.run)
	case sandbox.ContextStarting:
		return sandbox.Errorf(sandbox.Conflict, "context %s is starting", c.id)
	}
	return nil
}
