package orchestrator

import (
	"container/list"
	"maps"
	"slices"
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
	of    map[sandbox.Thread]*threadExecs
	ended list.List // *execution, oldest first
	alive int       // execs that run, and those that are about to
	shut  bool      // no more may begin
	held  int64     // bytes of output of the ended ones
}

// threadExecs is those of one thread.
type threadExecs struct {
	all   map[string]*execution
	ended []*execution // oldest first
}

func (g *registry) init() {
	g.byID, g.of = map[string]*execution{}, map[sandbox.Thread]*threadExecs{}
}

// know makes an exec known. g.mu is held.
func (g *registry) know(e *execution) {
	g.byID[e.id] = e
	mine := g.of[e.thread]
	if mine == nil {
		mine = &threadExecs{all: map[string]*execution{}}
		g.of[e.thread] = mine
	}
	mine.all[e.id] = e
}

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

// runningIn is every exec of a thread that runs.
func (g *registry) runningIn(t sandbox.Thread) []*execution {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*execution
	if mine := g.of[t]; mine != nil {
		for _, e := range mine.all {
			if e.info().Status == sandbox.StatusRunning {
				list = append(list, e)
			}
		}
	}
	return list
}

// add makes an exec known that begin counted.
func (g *registry) add(e *execution) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.know(e)
}

func (g *registry) end(e *execution) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alive--
	g.keep(e)
}

// keep adds an ended exec and lets go of the oldest ones that are too many.
func (g *registry) keep(e *execution) {
	g.know(e)
	e.place = g.ended.PushBack(e)
	g.held += e.bytes
	mine := g.of[e.thread]
	mine.ended = append(mine.ended, e)
	for len(mine.ended) > keepPerThread {
		g.forget(mine.ended[0])
	}
	for g.held > keepOutput && g.ended.Len() > 0 {
		g.forget(g.oldest())
	}
}

func (g *registry) oldest() *execution {
	e, _ := g.ended.Front().Value.(*execution)
	return e
}

func (g *registry) forget(e *execution) {
	g.held -= e.bytes
	g.ended.Remove(e.place)
	delete(g.byID, e.id)
	mine := g.of[e.thread]
	if mine == nil {
		return
	}
	delete(mine.all, e.id)
	if i := slices.Index(mine.ended, e); i >= 0 {
		mine.ended = slices.Delete(mine.ended, i, i+1)
	}
	if len(mine.all) == 0 && len(mine.ended) == 0 {
		delete(g.of, e.thread)
	}
}

func (g *registry) expire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.ended.Len() > 0 && now.Sub(g.oldest().started)-g.oldest().deadline > keepEnded {
		g.forget(g.oldest())
	}
}

// find returns an exec by its id; nil: there is none.
func (g *registry) find(id string) *execution {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byID[id]
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

// list returns the execs of a thread, newest first.
func (g *registry) list(t sandbox.Thread) []sandbox.ExecInfo {
	g.mu.Lock()
	mine := []*execution{}
	if known := g.of[t]; known != nil {
		mine = slices.AppendSeq(mine, maps.Values(known.all))
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
	g.keep(e)
}
