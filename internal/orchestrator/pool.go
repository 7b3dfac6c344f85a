package orchestrator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// The pool is the sandboxes that are ready before a thread asks for one: template by template, as many as its
// "pool" says. One is made like any other, with a workspace of its own that is empty, and no thread. When a new
// thread takes it (claimed.go), the workspace becomes the thread's by one rename, which the sandbox's mount does
// not notice, and what depends on the user is put into folders that it has mounted: no engine is asked.
//
// A server hands out only what it made itself. How many wait is in the store, so that several servers
// together have what the template says. A pooled sandbox outlives its server by nothing: the next one removes it.

const (
	// poolEvery is how often the pool is looked after; also when one was made.
	poolEvery = time.Second
	// poolSaid is how long it counts what a server said of its pool.
	poolSaid = 10 * time.Second
	// imageEvery is how often it is asked whether a template's image is another one now.
	imageEvery = 5 * time.Second
	// imageTimeout bounds that question.
	imageTimeout = 10 * time.Second
	// firstPause and lastPause are between attempts to make one where that fails.
	firstPause, lastPause = time.Second, time.Minute
	// rushPause is how long after a claim nothing is made, and rushMost how long claims that go on can keep it so.
	rushPause, rushMost = 500 * time.Millisecond, 3 * time.Second
	// wayPause is how often it is looked whether a pooled sandbox has made way.
	wayPause = 5 * time.Millisecond
)

// pool of a template is the pool of one template. It is guarded by pool.mu.
type templatePool struct {
	template instance.Template
	idle     []*instance.Pooled // the oldest first
	making   []*instance.Pooled
	image    string // what the image is now
	asked    time.Time
	pause    time.Duration // after a failure
	until    time.Time     // of the pause
}

// pool is what a server has waiting.
type pool struct {
	mu        sync.Mutex
	templates map[string]*templatePool // of the templates that have one
	known     map[sandbox.ID]bool
	leaving   int // that are being removed
	shut      bool
	rush      time.Time // when the present run of claims began
	picked    time.Time // the last of them

	wake    chan struct{}
	callers atomic.Int32 // starts that a caller waits for
}

func (p *pool) init(templates map[string]instance.Template) {
	p.templates, p.known, p.wake = map[string]*templatePool{}, map[sandbox.ID]bool{}, make(chan struct{}, 1)
	for name, t := range templates {
		if t.Pool != nil && t.Pool.Target > 0 {
			p.templates[name] = &templatePool{template: t}
		}
	}
}

// nudge makes the next look come at once.
func (p *pool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pool) list() []*templatePool {
	list := make([]*templatePool, 0, len(p.templates))
	for _, tp := range p.templates { // the map does not change
		list = append(list, tp)
	}
	slices.SortFunc(list, func(a, b *templatePool) int { return strings.Compare(a.template.Name, b.template.Name) })
	return list
}

// pick takes one for a thread, the oldest first. It is known until the claim has ended.
func (p *pool) pick(template string) *instance.Pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	tp := p.templates[template]
	if tp == nil || p.shut {
		return nil
	}
	i := slices.IndexFunc(tp.idle, func(x *instance.Pooled) bool { return tp.fits(x, time.Now()) })
	if i < 0 {
		return nil
	}
	got := tp.idle[i]
	tp.idle = slices.Delete(tp.idle, i, i+1)
	now := time.Now()
	if now.Sub(p.picked) > rushPause {
		p.rush = now
	}
	p.picked = now
	return got
}

// putBack undoes a pick.
func (p *pool) putBack(x *instance.Pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tp := p.templates[x.Template.Name]
	tp.idle = slices.Insert(tp.idle, 0, x)
}

// rushes says whether threads are getting sandboxes right now: making new ones would slow their first execs. A run of claims
// that does not end counts no more after a while. The caller holds pool.mu.
func (p *pool) rushes(now time.Time) bool {
	return now.Sub(p.picked) < rushPause && now.Sub(p.rush) < rushMost
}

// fits says whether one is neither too old nor of a former image.
func (tp *templatePool) fits(x *instance.Pooled, now time.Time) bool {
	return (tp.image == "" || x.Image == tp.image) && now.Sub(x.Made) < time.Duration(tp.template.Pool.MaxAgeSeconds)*time.Second
}

// remove takes one out that must not be handed out any more; nil: none waits under that id.
func (p *pool) remove(id sandbox.ID) *instance.Pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tp := range p.templates {
		if i := slices.IndexFunc(tp.idle, func(x *instance.Pooled) bool { return x.ID == id }); i >= 0 {
			got := tp.idle[i]
			tp.idle = slices.Delete(tp.idle, i, i+1)
			p.leaving++
			return got
		}
	}
	return nil
}

func (p *pool) forget(id sandbox.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, id)
}

func (p *pool) isKnown(id sandbox.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[id]
}

// levels is how many wait and are being made, by template.
func (p *pool) levels() []metrics.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []metrics.Pool
	for _, tp := range p.templates {
		all = append(all, metrics.Pool{Template: tp.template.Name, Waiting: len(tp.idle), Starting: len(tp.making), Target: tp.template.Pool.Target})
	}
	return all
}

// keepPool fills the pool and takes out of it what is too old, until the orchestrator is closed.
func (r *Orchestrator) keepPool() {
	tick := time.NewTicker(poolEvery)
	defer tick.Stop()
	for swept := (time.Time{}); ; {
		if time.Since(swept) > reapEvery {
			r.sweepPool()
			swept = time.Now()
		}
		if !r.Draining() {
			r.evict()
			for _, tp := range r.pool.list() {
				r.tend(tp)
			}
		}
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		case <-r.pool.wake:
		}
	}
}

// tend looks after the pool of one template.
func (r *Orchestrator) tend(tp *templatePool) {
	r.lookAtImage(tp)
	r.pool.mu.Lock()
	now := time.Now()
	for _, x := range slices.Clone(tp.idle) {
		if tp.fits(x, now) {
			continue
		}
		tp.idle = slices.DeleteFunc(tp.idle, func(y *instance.Pooled) bool { return x == y })
		r.pool.leaving++
		why := "age"
		if tp.image != "" && x.Image != tp.image {
			why = "image"
		}
		r.wg.Go(func() { r.discard(x, why) })
	}
	count := store.PoolCount{Have: len(tp.idle) + len(tp.making), Want: r.wanted(tp, now), Target: tp.template.Pool.Target}
	r.pool.mu.Unlock()

	n, err := r.o.Store.SharePool(r.ctx, tp.template.Name, r.peers.ID(), count, poolSaid)
	if err != nil {
		if r.ctx.Err() == nil {
			r.o.Log.Warn("the pool is not refilled: its count cannot be told", "template", tp.template.Name, "error", err)
		}
		return
	}
	for range n {
		if !r.places.TakeSpare() {
			return
		}
		r.makePooled(tp)
	}
}

// wanted is how many may begin to be made now. The caller holds pool.mu.
func (r *Orchestrator) wanted(tp *templatePool, now time.Time) int {
	o, have := tp.template.Pool, len(tp.idle)+len(tp.making)
	most := o.Target
	if r.pool.callers.Load() > 0 { // callers' own starts come first
		most = o.Min
	}
	if now.Before(tp.until) || r.pool.rushes(now) {
		return 0
	}
	return max(0, min(most-have, o.Burst-len(tp.making)))
}

// lookAtImage asks, now and then, what the image of a template is now. While that cannot be told it counts as unchanged.
func (r *Orchestrator) lookAtImage(tp *templatePool) {
	if time.Since(tp.asked) < imageEvery { // only this goroutine uses it
		return
	}
	image, err := r.preparedImage(r.ctx, tp.template)
	tp.asked = time.Now()
	if err != nil {
		r.o.Log.Debug("image of a pool", "template", tp.template.Name, "error", err)
		return
	}
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	tp.image = image
}

// preparedImage brings a template's image to where the driver looks for it, and names it.
func (r *Orchestrator) preparedImage(ctx context.Context, t instance.Template) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.StartTime)
	defer cancel()
	if t.Prepare != nil {
		if err := t.Prepare(ctx); err != nil {
			return "", err
		}
	}
	return r.imageNow(ctx, t)
}

// imageNow names what a template's image is for good, "" where the driver cannot.
func (r *Orchestrator) imageNow(ctx context.Context, t instance.Template) (string, error) {
	teller, ok := r.o.Driver.(driver.ImageTeller)
	if !ok {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	return teller.ImageNow(ctx, t.Image)
}

// evict removes as many as there are too many by now, because callers have their places. It does not wait.
func (r *Orchestrator) evict() {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	for n := r.places.Over() - r.pool.leaving; n > 0; n-- {
		var most *templatePool
		for _, tp := range r.pool.list() {
			if most == nil || len(tp.idle) > len(most.idle) {
				most = tp
			}
		}
		switch {
		case most == nil:
			return
		case len(most.idle) > 0:
			x := most.idle[0]
			most.idle = most.idle[1:]
			r.pool.leaving++
			r.wg.Go(func() { r.discard(x, "room") })
		default:
			for _, tp := range r.pool.templates {
				if i := slices.IndexFunc(tp.making, func(x *instance.Pooled) bool { return !x.Unwanted }); i >= 0 {
					tp.making[i].Unwanted = true
					tp.making[i].Cancel()
					r.pool.leaving++
					break
				}
			}
		}
	}
}

// makeWay waits until the sandboxes that wait have room beside those of callers.
func (r *Orchestrator) makeWay(ctx context.Context) error {
	for r.places.Over() > 0 {
		r.evict()
		pause := time.NewTimer(wayPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "a sandbox that waits could not be removed to make room; try again")
		}
	}
	return nil
}

// emptyPool removes all that wait. None is made any more.
func (r *Orchestrator) emptyPool() {
	r.pool.mu.Lock()
	r.pool.shut = true
	var all []*instance.Pooled
	for _, tp := range r.pool.templates {
		all = append(all, tp.idle...)
		tp.idle = nil
	}
	r.pool.leaving += len(all)
	r.pool.mu.Unlock()
	var wg sync.WaitGroup
	free := make(chan struct{}, ownership.TakeOverParallel)
	for _, x := range all {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			r.discard(x, "stop")
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanupTimeout)
	defer cancel()
	for name := range r.pool.templates {
		if err := r.o.Store.LeavePool(ctx, name, r.peers.ID()); err != nil {
			r.o.Log.Debug("pool not left", "template", name, "error", err)
		}
	}
}
