package orchestrator

import (
	"sort"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// How long and how much of ended execs is kept for those who ask again. The audit log keeps the rest.
const (
	keepEnded      = 30 * time.Minute
	keepPerThread  = 200
	keepOutput     = 256 << 20 // bytes, all threads together
	maxListedExecs = 1000
)

// registry is the execs that can still be asked for, those that run and the newest that ended.
type registry struct {
	mu    sync.Mutex
	byID  map[string]*execution
	ended []*execution // oldest first
	alive int          // execs that run, and those that are about to
	shut  bool         // no more may begin
	held  int64        // bytes of output of the ended ones
}

func (g *registry) init() { g.byID = map[string]*execution{} }

func (g *registry) running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive
}

// begin counts an exec that is about to run, for add or cancel; false: no more may.
func (g *registry) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.alive++
	}
	return !g.shut
}

// cancel takes a begin back.
func (g *registry) cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alive--
}

// close lets no more begin, and reports whether it was the first to say so.
func (g *registry) close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.shut
	g.shut = true
	return first
}

func (g *registry) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// unfinished is every exec that runs.
func (g *registry) unfinished() []*execution {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*execution
	for _, e := range g.byID {
		if e.info().Status == sandbox.StatusRunning {
			list = append(list, e)
		}
	}
	return list
}

// add makes an exec known that begin counted.
func (g *registry) add(e *execution) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byID[e.id] = e
}

func (g *registry) end(e *execution) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alive--
	g.keep(e)
}

// keep adds an ended exec and lets go of the oldest ones that are too many.
func (g *registry) keep(e *execution) {
	g.ended = append(g.ended, e)
	g.held += e.held
	same := 0
	for _, x := range g.ended {
		if x.thread == e.thread {
			same++
		}
	}
	for i := 0; i < len(g.ended) && (same > keepPerThread || g.held > keepOutput); {
		old := g.ended[i]
		if g.held <= keepOutput && old.thread != e.thread {
			i++
			continue
		}
		if old.thread == e.thread {
			same--
		}
		g.forget(i)
	}
}

func (g *registry) forget(i int) {
	old := g.ended[i]
	g.held -= old.held
	delete(g.byID, old.id)
	g.ended = append(g.ended[:i], g.ended[i+1:]...)
}

func (g *registry) expire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.ended) > 0 && now.Sub(g.ended[0].started)-g.ended[0].deadline > keepEnded {
		g.forget(0)
	}
}

// get finds an exec of a thread; another thread's is NotFound.
func (g *registry) get(t sandbox.Thread, id string) (*execution, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.byID[id]
	if !ok || e.thread != t {
		return nil, sandbox.Errorf(sandbox.NotFound, "thread %q has no exec %.80q, or it ended long ago: the audit log knows", t.ID, id)
	}
	return e, nil
}

// list gives the execs of a thread, newest first.
func (g *registry) list(t sandbox.Thread) []sandbox.ExecInfo {
	g.mu.Lock()
	mine := []*execution{}
	for _, e := range g.byID {
		if e.thread == t {
			mine = append(mine, e)
		}
	}
	g.mu.Unlock()
	sort.Slice(mine, func(i, j int) bool { return mine[i].started.After(mine[j].started) })
	infos := make([]sandbox.ExecInfo, 0, len(mine))
	for _, e := range mine[:min(len(mine), maxListedExecs)] {
		infos = append(infos, e.info())
	}
	return infos
}

// addLost remembers an exec that a former server began and that ended with it.
func (g *registry) addLost(a audit.Record) {
	e := &execution{
		id: a.Exec, action: a.Action, subject: a.Subject, started: a.Time, changed: make(chan struct{}),
		thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: a.Tenant, User: a.User}, ID: a.Thread},
	}
	e.deadline = time.Since(a.Time)
	e.finish(sandbox.Result{ExecID: a.Exec, Status: sandbox.StatusLost, Files: []sandbox.FileChange{}, DurationMillis: time.Since(a.Time).Milliseconds()}, nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byID[e.id] = e
	g.keep(e)
}
