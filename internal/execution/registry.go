package execution

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
	keepOutput     = 256 << 20 // bytes of memory, all threads together
	maxListedExecs = 1000
)

// Teller tells those who follow a thread of its execs. It asks for what it tells only when there are any.
type Teller interface {
	ExecStarted(t sandbox.Thread, info func() sandbox.ExecInfo)
	ExecEnded(t sandbox.Thread, info func() (sandbox.ExecInfo, sandbox.Result))
}

// Registry holds the execs that callers can still ask for: running ones and the newest ended ones.
type Registry struct {
	tell  Teller // nil: none is told
	mu    sync.Mutex
	byID  map[string]*Exec
	of    map[sandbox.Thread]*threadExecs
	ended list.List // *Exec, oldest first
	alive int       // execs that run, or are about to
	shut  bool      // none may begin any more
	held  int64     // bytes of memory that the ended ones take
}

// threadExecs is those of one thread.
type threadExecs struct {
	all   map[string]*Exec
	ended []*Exec // oldest first
}

// NewRegistry returns a registry without execs. tell hears of each that starts and ends; nil: none does.
func NewRegistry(tell Teller) *Registry {
	return &Registry{tell: tell, byID: map[string]*Exec{}, of: map[sandbox.Thread]*threadExecs{}}
}

// know makes an exec known. g.mu is held.
func (g *Registry) know(e *Exec) {
	g.byID[e.ID] = e
	mine := g.of[e.Thread]
	if mine == nil {
		mine = &threadExecs{all: map[string]*Exec{}}
		g.of[e.Thread] = mine
	}
	mine.all[e.ID] = e
}

// Running returns how many execs run, including execs that are about to start.
func (g *Registry) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive
}

// Begin counts an exec that is about to run, for add or cancel; false: none may begin any more.
func (g *Registry) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.alive++
	}
	return !g.shut
}

// Cancel takes a begin back.
func (g *Registry) Cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alive--
}

// Close lets no exec begin, and reports whether it was the first to say so.
func (g *Registry) Close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.shut
	g.shut = true
	return first
}

// Unfinished is every exec that runs.
func (g *Registry) Unfinished() []*Exec {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*Exec
	for _, e := range g.byID {
		if e.Info().Status == sandbox.StatusRunning {
			list = append(list, e)
		}
	}
	return list
}

// RunningIn is every exec of a thread that runs.
func (g *Registry) RunningIn(t sandbox.Thread) []*Exec {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*Exec
	if mine := g.of[t]; mine != nil {
		for _, e := range mine.all {
			if e.Info().Status == sandbox.StatusRunning {
				list = append(list, e)
			}
		}
	}
	return list
}

// Add makes an exec known that begin counted.
func (g *Registry) Add(e *Exec) {
	g.mu.Lock()
	g.know(e)
	g.mu.Unlock()
	if g.tell != nil {
		g.tell.ExecStarted(e.Thread, e.Info)
	}
}

// End counts out an exec that ended, and keeps it for those who ask again.
func (g *Registry) End(e *Exec) {
	g.mu.Lock()
	g.alive--
	g.keep(e)
	g.mu.Unlock()
	if g.tell != nil {
		g.tell.ExecEnded(e.Thread, e.outcome)
	}
}

// keep adds an ended exec and lets go of the oldest ones that are too many.
func (g *Registry) keep(e *Exec) {
	g.know(e)
	e.place = g.ended.PushBack(e)
	e.log.mu.Lock()
	e.held = e.log.cost() + e.request()
	e.log.mu.Unlock()
	g.held += e.held
	mine := g.of[e.Thread]
	mine.ended = append(mine.ended, e)
	for len(mine.ended) > keepPerThread {
		g.forget(mine.ended[0])
	}
	for g.held > keepOutput && g.ended.Len() > 0 {
		g.forget(g.oldest())
	}
}

func (g *Registry) oldest() *Exec {
	e, _ := g.ended.Front().Value.(*Exec)
	return e
}

func (g *Registry) forget(e *Exec) {
	g.held -= e.held
	g.ended.Remove(e.place)
	delete(g.byID, e.ID)
	mine := g.of[e.Thread]
	if mine == nil {
		return
	}
	delete(mine.all, e.ID)
	if i := slices.Index(mine.ended, e); i >= 0 {
		mine.ended = slices.Delete(mine.ended, i, i+1)
	}
	if len(mine.all) == 0 && len(mine.ended) == 0 {
		delete(g.of, e.Thread)
	}
}

// Expire lets go of execs that ended long ago.
func (g *Registry) Expire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.ended.Len() > 0 && now.Sub(g.oldest().Started)-g.oldest().Spec.Deadline > keepEnded {
		g.forget(g.oldest())
	}
}

// Find returns an exec by its id; nil: there is none.
func (g *Registry) Find(id string) *Exec {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byID[id]
}

// Get finds an exec of a thread; another thread's is NotFound.
func (g *Registry) Get(t sandbox.Thread, id string) (*Exec, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.byID[id]
	if !ok || e.Thread != t {
		return nil, sandbox.Errorf(sandbox.NotFound, "thread %q has no exec %.80q, or it ended long ago: the audit log knows", t.ID, id)
	}
	return e, nil
}

// List returns the execs of a thread, newest first.
func (g *Registry) List(t sandbox.Thread) []sandbox.ExecInfo {
	g.mu.Lock()
	mine := []*Exec{}
	if known := g.of[t]; known != nil {
		mine = slices.AppendSeq(mine, maps.Values(known.all))
	}
	g.mu.Unlock()
	sort.Slice(mine, func(i, j int) bool { return mine[i].Started.After(mine[j].Started) })
	infos := make([]sandbox.ExecInfo, 0, len(mine))
	for _, e := range mine[:min(len(mine), maxListedExecs)] {
		infos = append(infos, e.Info())
	}
	return infos
}

// AddLost remembers an exec that a former server began and that ended with it.
func (g *Registry) AddLost(a audit.Record) {
	e := &Exec{
		ID: a.Exec, Started: a.Time,
		Thread: sandbox.Thread{Owner: sandbox.Owner{Tenant: a.Tenant, User: a.User}, ID: a.Thread},
		Spec:   Spec{Action: a.Action, Subject: a.Subject, Deadline: time.Since(a.Time)},
	}
	e.log.begin(0)
	e.Finish(sandbox.Result{ExecID: a.Exec, Status: sandbox.StatusLost, Files: []sandbox.FileChange{}, DurationMillis: time.Since(a.Time).Milliseconds()}, nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keep(e)
}
