package pool

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// templatePool is what a server has of one template. It is guarded by inventory.mu.
type templatePool struct {
	template instance.Template
	idle     []*instance.Pooled // the oldest first
	making   []*instance.Pooled
	image    string // what the image is now
	asked    time.Time
	pause    time.Duration // after a failure
	until    time.Time     // of the pause
}

// fits reports whether one is neither too old nor of a former image.
func (s *templatePool) fits(x *instance.Pooled, now time.Time) bool {
	return (s.image == "" || x.Image == s.image) && now.Sub(x.Made) < time.Duration(s.template.Pool.MaxAgeSeconds)*time.Second
}

// inventory is what a server has waiting.
type inventory struct {
	mu      sync.Mutex
	pools   map[string]*templatePool // of the templates that have a pool; the map does not change
	known   map[sandbox.ID]bool
	leaving int // that are being removed
	shut    bool
	rush    time.Time // when the present run of claims began
	picked  time.Time // the last of them
}

func newInventory(templates map[string]instance.Template) *inventory {
	s := &inventory{pools: map[string]*templatePool{}, known: map[sandbox.ID]bool{}}
	for name, t := range templates {
		if t.Pool != nil && t.Pool.Target > 0 {
			s.pools[name] = &templatePool{template: t}
		}
	}
	return s
}

// list returns the pools by the names of their templates.
func (s *inventory) list() []*templatePool {
	list := make([]*templatePool, 0, len(s.pools))
	for _, of := range s.pools {
		list = append(list, of)
	}
	slices.SortFunc(list, func(a, b *templatePool) int { return strings.Compare(a.template.Name, b.template.Name) })
	return list
}

// pick takes one for a thread, the oldest first; nil: none waits. It is known until the claim has ended.
func (s *inventory) pick(template string) *instance.Pooled {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.pools[template]
	if of == nil || s.shut {
		return nil
	}
	i := slices.IndexFunc(of.idle, func(x *instance.Pooled) bool { return of.fits(x, time.Now()) })
	if i < 0 {
		return nil
	}
	got := of.idle[i]
	of.idle = slices.Delete(of.idle, i, i+1)
	now := time.Now()
	if now.Sub(s.picked) > rushPause {
		s.rush = now
	}
	s.picked = now
	return got
}

// putBack undoes a pick.
func (s *inventory) putBack(x *instance.Pooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.pools[x.Template.Name]
	of.idle = slices.Insert(of.idle, 0, x)
}

// rushes reports whether threads are getting sandboxes right now: making new ones would slow their first execs. A run of
// claims that goes on for long counts no longer. The caller holds mu.
func (s *inventory) rushes(now time.Time) bool {
	return now.Sub(s.picked) < rushPause && now.Sub(s.rush) < rushMost
}

// begin adds a sandbox that is being made.
func (s *inventory) begin(of *templatePool, x *instance.Pooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[x.ID] = true
	of.making = append(of.making, x)
}

// add puts a finished sandbox where threads find it, if it is wanted and err is nil. When not, it counts as leaving.
func (s *inventory) add(of *templatePool, x *instance.Pooled, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.making = slices.DeleteFunc(of.making, func(y *instance.Pooled) bool { return x == y })
	if err == nil && !x.Unwanted {
		of.idle, of.pause = append(of.idle, x), 0
		return true
	}
	if !x.Unwanted {
		s.leaving++
		of.pause = min(max(2*of.pause, firstPause), lastPause)
		of.until = time.Now().Add(of.pause)
	}
	return false
}

// remove takes out a sandbox that must not be handed out; nil: none waits under that id. It counts as leaving.
func (s *inventory) remove(id sandbox.ID) *instance.Pooled {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.pools {
		if i := slices.IndexFunc(of.idle, func(x *instance.Pooled) bool { return x.ID == id }); i >= 0 {
			got := of.idle[i]
			of.idle = slices.Delete(of.idle, i, i+1)
			s.leaving++
			return got
		}
	}
	return nil
}

// evict takes out the surplus that over reports, less the sandboxes that are leaving. It takes them from the
// template with most waiting sandboxes. Where none waits, it cancels what is being made. The caller removes
// the returned sandboxes.
func (s *inventory) evict(over func() int) (out []*instance.Pooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := over() - s.leaving; n > 0; n-- {
		var most *templatePool
		for _, of := range s.list() {
			if most == nil || len(of.idle) > len(most.idle) {
				most = of
			}
		}
		switch {
		case most == nil:
			return out
		case len(most.idle) > 0:
			out = append(out, most.idle[0])
			most.idle = most.idle[1:]
			s.leaving++
		default:
			s.cancelOne()
		}
	}
	return out
}

// cancelOne cancels the making of one sandbox. The caller holds mu.
func (s *inventory) cancelOne() {
	for _, of := range s.pools {
		if i := slices.IndexFunc(of.making, func(x *instance.Pooled) bool { return !x.Unwanted }); i >= 0 {
			of.making[i].Unwanted = true
			of.making[i].Cancel()
			s.leaving++
			return
		}
	}
}

// empty takes out all that wait. None is handed out from then on.
func (s *inventory) empty() (all []*instance.Pooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	for _, of := range s.pools {
		all = append(all, of.idle...)
		of.idle = nil
	}
	s.leaving += len(all)
	return all
}

// unfit takes out what does not fit any more.
func (s *inventory) unfit(of *templatePool, now time.Time) (old, former []*instance.Pooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.idle = slices.DeleteFunc(of.idle, func(x *instance.Pooled) bool {
		switch {
		case of.fits(x, now):
			return false
		case of.image != "" && x.Image != of.image:
			former = append(former, x)
		default:
			old = append(old, x)
		}
		s.leaving++
		return true
	})
	return old, former
}

// left counts a leaving sandbox as removed.
func (s *inventory) left(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving--
	delete(s.known, id)
}

func (s *inventory) forget(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

func (s *inventory) isKnown(id sandbox.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

// levels is how many wait and are being made, by template.
func (s *inventory) levels() []metrics.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []metrics.Pool
	for _, of := range s.pools {
		all = append(all, metrics.Pool{Template: of.template.Name, Waiting: len(of.idle), Starting: len(of.making), Target: of.template.Pool.Target})
	}
	return all
}

// waiting returns the sandboxes that wait.
func (s *inventory) waiting() (all []*instance.Pooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.pools {
		all = append(all, of.idle...)
	}
	return all
}

// count is what the store is told of a pool: how many there are, and how many may begin to be made now. cold: callers' own
// starts come first.
func (s *inventory) count(of *templatePool, now time.Time, cold bool) store.PoolCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := of.template.Pool
	c := store.PoolCount{Have: len(of.idle) + len(of.making), Target: want.Target}
	most := want.Target
	if cold {
		most = want.Min
	}
	if !now.Before(of.until) && !s.rushes(now) {
		c.Want = max(0, min(most-c.Have, want.Burst-len(of.making)))
	}
	return c
}
