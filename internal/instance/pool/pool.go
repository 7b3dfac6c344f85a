package pool

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

const (
	// every is how often the pool is looked after; also when one was made. sweepEvery is how often what other servers left is.
	every, sweepEvery = time.Second, 10 * time.Second
	// countTTL is how long the store counts what a server said of its pool.
	countTTL = 10 * time.Second
	// imageEvery is how often the driver is asked whether a template's image is another one now.
	imageEvery = 5 * time.Second
	// firstPause and lastPause are between attempts to make one where that fails.
	firstPause, lastPause = time.Second, time.Minute
	// rushPause is how long after a claim nothing is made, and rushMost how long claims that go on can keep it so.
	rushPause, rushMost = 500 * time.Millisecond, 3 * time.Second
	// evictPause is between looks whether a pooled sandbox has made way.
	evictPause = 5 * time.Millisecond
	// leaveTimeout bounds what the store is told at the end.
	leaveTimeout = 10 * time.Second
	// removeParallel is how many are removed side by side at the end.
	removeParallel = 8
)

// Reaper removes what no server knows.
type Reaper interface {
	// Note records what became of a sandbox that no server has.
	Note(t sandbox.Thread, id sandbox.ID, what string, err error)
	// ClearAway removes the run folder of a sandbox.
	ClearAway(id sandbox.ID)
}

// Copies are those of files, where sandboxes have disks of their own.
type Copies interface {
	// Sync returns nil when the driver's sandboxes see the server's disk.
	Sync(id sandbox.ID) *filesync.Sync
}

// Drain ends this server's work.
type Drain interface {
	// Draining reports whether this server makes no new sandboxes.
	Draining() bool
}

// Peers are the servers of the data folder.
type Peers interface {
	ID() string
	Alive(id string) bool
}

// Store counts the pools of all servers.
type Store interface {
	SharePool(ctx context.Context, template, replica string, c store.PoolCount, ttl time.Duration) (int, error)
	LeavePool(ctx context.Context, template, replica string) error
}

// Options are all needed.
type Options struct {
	Templates  map[string]instance.Template
	Root       Root
	RunRoot    string // of the run folders of sandboxes
	StartTime  time.Duration
	Driver     driver.Driver
	DriverName string
	Copies     Copies
	Reaper     Reaper
	Peers      Peers
	Places     *capacity.Places
	Folders    *workspace.Folders
	Records    *ownerrecord.Book
	Hooks      *hooks.Hooks
	Store      Store
	Audit      *audit.Log
	Metrics    *metrics.Metrics
	Log        *slog.Logger
	// Group counts what runs in the background, which ends with the context.
	Group *sync.WaitGroup
}

// Pool is what a server has waiting for threads.
type Pool struct {
	o         Options
	ctx       context.Context // ends with the server
	inventory *inventory
	wake      chan struct{} // holds a token: the next look comes at once
	cold      atomic.Int32  // starts that a caller waits for
}

// New returns a pool in which nothing waits. Keep fills it.
func New(ctx context.Context, o Options) *Pool {
	return &Pool{o: o, ctx: ctx, inventory: newInventory(o.Templates), wake: make(chan struct{}, 1)}
}

// Any reports whether a template has a pool.
func (p *Pool) Any() bool { return len(p.inventory.pools) > 0 }

// Pick takes one for a thread; nil: none waits. Its claim ends with its Forget, or PutBack undoes it.
func (p *Pool) Pick(template string) *instance.Pooled { return p.inventory.pick(template) }

// PutBack undoes a Pick.
func (p *Pool) PutBack(x *instance.Pooled) { p.inventory.putBack(x) }

// Knows reports whether one waits, is being made, or is being claimed.
func (p *Pool) Knows(id sandbox.ID) bool { return p.inventory.isKnown(id) }

// Levels is how many wait and are being made, by template.
func (p *Pool) Levels() []metrics.Pool { return p.inventory.levels() }

// Waiting are the sandboxes that wait.
func (p *Pool) Waiting() []*instance.Pooled { return p.inventory.waiting() }

// Cold counts a start that a caller waits for, until done is called: it comes before what the pool makes.
func (p *Pool) Cold() (done func()) {
	p.cold.Add(1)
	return func() { p.cold.Add(-1) }
}

// Ended reports whether a sandbox that ended was waiting here. Then it is removed.
func (p *Pool) Ended(id sandbox.ID) bool {
	x := p.inventory.remove(id)
	if x != nil {
		p.o.Group.Go(func() { p.discard(x, "ended") })
	}
	return x != nil
}

// Run fills the pool and takes out of it what is too old, until the server is closed. A server that drains
// fills none.
func (p *Pool) Run(drain Drain) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for swept := (time.Time{}); ; {
		if time.Since(swept) > sweepEvery {
			p.Sweep()
			swept = time.Now()
		}
		if !drain.Draining() {
			p.evict()
			for _, of := range p.inventory.list() {
				p.tend(of)
			}
		}
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		case <-p.wake:
		}
	}
}

// tend looks after the pool of one template.
func (p *Pool) tend(of *templatePool) {
	p.lookAtImage(of)
	now := time.Now()
	old, former := p.inventory.unfit(of, now)
	for _, x := range old {
		p.o.Group.Go(func() { p.discard(x, "age") })
	}
	for _, x := range former {
		p.o.Group.Go(func() { p.discard(x, "image") })
	}
	n, err := p.o.Store.SharePool(p.ctx, of.template.Name, p.o.Peers.ID(), p.inventory.count(of, now, p.cold.Load() > 0), countTTL)
	if err != nil {
		if p.ctx.Err() == nil {
			p.o.Log.Warn("the pool is not refilled: its count cannot be told", "template", of.template.Name, "error", err)
		}
		return
	}
	for range n {
		if !p.o.Places.TakeSpare() {
			return
		}
		p.start(of)
	}
}

// lookAtImage asks, now and then, what the image of a template is now. While that cannot be told it counts as unchanged.
func (p *Pool) lookAtImage(of *templatePool) {
	if time.Since(of.asked) < imageEvery { // only this goroutine uses it
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.o.StartTime)
	defer cancel()
	image, err := hooks.ImageNow(ctx, p.o.Driver, of.template)
	of.asked = time.Now()
	if err != nil {
		p.o.Log.Debug("image of a pool", "template", of.template.Name, "error", err)
		return
	}
	p.inventory.mu.Lock()
	defer p.inventory.mu.Unlock()
	of.image = image
}

// evict removes as many as there are too many by now, because callers have their places. It does not wait.
func (p *Pool) evict() {
	for _, x := range p.inventory.evict(p.o.Places.Over) {
		p.o.Group.Go(func() { p.discard(x, "room") })
	}
}

// MakeWay waits until the sandboxes that wait have room beside those of callers.
func (p *Pool) MakeWay(ctx context.Context) error {
	for p.o.Places.Over() > 0 {
		p.evict()
		pause := time.NewTimer(evictPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "a sandbox that waits could not be removed to make room; try again")
		}
	}
	return nil
}

// Empty removes all that wait, when the server has ended. None is made any more.
func (p *Pool) Empty() {
	var wg sync.WaitGroup
	free := make(chan struct{}, removeParallel)
	for _, x := range p.inventory.empty() {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			p.discard(x, "stop")
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), leaveTimeout)
	defer cancel()
	for name := range p.inventory.pools {
		if err := p.o.Store.LeavePool(ctx, name, p.o.Peers.ID()); err != nil {
			p.o.Log.Debug("pool not left", "template", name, "error", err)
		}
	}
}

// start begins to make one, whose place is taken.
func (p *Pool) start(of *templatePool) {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.StartTime)
	x := p.newPooled(of.template)
	x.Cancel = cancel
	p.inventory.begin(of, x)
	p.o.Group.Go(func() {
		defer cancel()
		err := p.attempt(ctx, x)
		if err != nil && p.ctx.Err() == nil {
			p.o.Log.Warn("no sandbox for the pool; tried again", "template", of.template.Name, "error", err)
		}
		if !p.inventory.add(of, x, cmp.Or(err, p.ctx.Err())) {
			p.discard(x, "unfinished")
		}
		select {
		case p.wake <- struct{}{}:
		default:
		}
	})
}

// newPooled is an instance without a thread, of which nothing is there yet.
func (p *Pool) newPooled(t instance.Template) *instance.Pooled {
	now := time.Now().UTC()
	x := &instance.Pooled{Made: now, Instance: instance.New(sandbox.Thread{}, t, sandbox.Info{
		ID: sandbox.NewID(), State: sandbox.Starting, Template: t.Name, Driver: p.o.DriverName, Runtime: t.Runtime, Warm: true,
	})}
	x.Pooled, x.Asked = x, now
	x.Forget = func() { p.inventory.forget(x.ID) }
	x.FileSync = p.o.Copies.Sync(x.ID)
	x.Dir = instance.RunDir(filepath.Join(p.o.RunRoot, string(x.ID)))
	x.Files = p.o.Root.folder(x.ID, p.o.Peers.ID())
	return x
}

// discard removes a sandbox that no thread gets, which counts as leaving. What cannot be removed now the sweep tries again.
func (p *Pool) discard(x *instance.Pooled, why string) {
	ctx := context.WithoutCancel(p.ctx)
	p.o.Hooks.Down(ctx, x.Instance)
	p.o.Places.LeaveSpare()
	p.inventory.left(x.ID)
	p.o.Metrics.Changed(audit.ActionSandboxPool, why)
	rec := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxRemove, audit.PhaseResult)
	rec.Sandbox, rec.Subject, rec.Outcome, rec.Detail = string(x.ID), x.Template.Name, "ok", "pool: "+why
	if _, err := p.o.Audit.Append(ctx, rec); err != nil {
		p.o.Log.Error("the audit log cannot be written", "error", err)
	}
}

// attempt makes one between the record of the attempt and that of its outcome.
func (p *Pool) attempt(ctx context.Context, x *instance.Pooled) error {
	rec := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxPool, audit.PhaseAttempt)
	rec.Sandbox, rec.Subject = string(x.ID), x.Template.Name
	instance.RecordLoosened(&rec, x.Template.Loosened)
	attempt, err := p.o.Audit.Append(ctx, rec)
	if err != nil {
		return err
	}
	err = p.o.Hooks.Up(ctx, &hooks.Start{Way: hooks.Pooled, Instance: x.Instance})
	result := audit.About(sandbox.Caller{}, sandbox.Thread{}, audit.ActionSandboxPool, audit.PhaseResult)
	result.Sandbox, result.Subject, result.Parent, result.Outcome = string(x.ID), x.Template.Name, attempt.ID, "ok"
	result.Millis = time.Since(x.Made).Milliseconds()
	if err != nil {
		result.Outcome, result.Detail = "error", string(sandbox.KindOf(err))
	}
	_, e := p.o.Audit.Append(context.WithoutCancel(ctx), result)
	return errors.Join(err, e)
}
