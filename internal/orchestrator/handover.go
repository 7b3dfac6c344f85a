package orchestrator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// How a server that stops gives its threads to those that go on. A thread can be handed over when no exec runs and no
// request is about it; then its owner record names nobody, its lease is released, and whoever is asked next adopts the
// sandbox. An exec is never moved: its deadline, its token and its callers are here, so its thread stays until it ends.

const (
	// handOverParallel is how many threads are handed over side by side.
	handOverParallel = 8
	// lastEntryBefore is how long before the end of a drain a busy sandbox takes its last exec: those that come
	// later wait until it is handed over, so that no short one is ended by the drain.
	lastEntryBefore = 5 * time.Second
	// drainTargetsTime is how long the list of servers that take work is believed.
	drainTargetsTime = 250 * time.Millisecond
)

// drain is the end of this server's work. It does not change, but for the count.
type drain struct {
	passOn bool      // others take what is not here
	until  time.Time // when busy sandboxes take the last exec; zero: at any time
	handed atomic.Int64
}

// lastEntry is when sandboxes take the last exec in a drain that ends with ctx.
func (r *Orchestrator) lastEntry(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return end.Add(-min(lastEntryBefore, time.Until(end)/4))
}

// drainTargets are the replicas that take work, as of a moment.
type drainTargets struct {
	mu   sync.Mutex
	at   time.Time
	list []string
	next int
}

// drainTarget returns a replica that takes work, each in its turn; "" when there is none.
func (r *Orchestrator) drainTarget(ctx context.Context) string {
	h := &r.drainTargets
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) > drainTargetsTime {
		others, err := r.peers.Others()
		if err != nil {
			r.o.Log.Error("other servers not known", "error", err)
		}
		h.list = r.takeWork(context.WithoutCancel(ctx), others) // others believe it, too
		h.at = time.Now()
	}
	if len(h.list) == 0 {
		return ""
	}
	h.next++
	return h.list[h.next%len(h.list)]
}

// takeWork returns those of the replicas that take work.
func (r *Orchestrator) takeWork(ctx context.Context, replicas []string) []string {
	yes := make([]bool, len(replicas))
	var wg sync.WaitGroup
	for i, id := range replicas {
		wg.Go(func() { yes[i] = r.peers.TakesWork(ctx, id) })
	}
	wg.Wait()
	var list []string
	for i, id := range replicas {
		if yes[i] {
			list = append(list, id)
		}
	}
	return list
}

// PassOn returns the replica to which work goes that any server could do, while this one stops: "" when it does not,
// or there is none.
func (r *Orchestrator) PassOn(ctx context.Context) string {
	if d := r.draining.Load(); d == nil || !d.passOn {
		return ""
	}
	return r.drainTarget(ctx)
}

// Stopping ends when this server begins to stop: streams without an end must not keep threads here.
func (r *Orchestrator) Stopping() context.Context { return r.stopping }

// joinOwnership takes part in an ownership of the thread that is there, or is just being taken; nil: there is none.
func (r *Orchestrator) joinOwnership(t sandbox.Thread) *ownership {
	r.ownerships.mu.Lock()
	defer r.ownerships.mu.Unlock()
	own := r.ownerships.all[t]
	if own == nil || own.refs <= 0 || own.lost.Load() {
		return nil
	}
	own.refs++
	return own
}

// waitForHandOver lets a request wait whose thread is being handed over just now, or that comes so late in a drain that
// the thread is to be handed over first.
func (r *Orchestrator) waitForHandOver(ctx context.Context, t sandbox.Thread) error {
	d := r.draining.Load()
	if d == nil || !d.passOn {
		return nil
	}
	r.ownerships.mu.Lock()
	own := r.ownerships.all[t]
	going := own != nil && own.refs < 0
	r.ownerships.mu.Unlock()
	if own == nil || !going && (d.until.IsZero() || time.Now().Before(d.until)) {
		return nil
	}
	select {
	case <-own.ended:
		return nil
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "this server is stopping and still runs something of the thread; try again")
	}
}

// handOverAll hands over what can be now, and gives how many threads are left. When nobody is there to take them, they
// stay: the next server adopts what is left of this one.
func (r *Orchestrator) handOverAll(ctx context.Context) (left int) {
	d := r.draining.Load()
	if d == nil || !d.passOn || r.drainTarget(ctx) == "" {
		return 0
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, handOverParallel)
	for _, inst := range r.all() {
		if !r.beginHandOver(inst) {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			r.handOver(ctx, inst)
			d.handed.Add(1)
		})
	}
	wg.Wait()
	return len(r.all())
}

// beginHandOver takes an instance out of use when nobody uses it: no exec comes any more, and no request joins its ownership.
func (r *Orchestrator) beginHandOver(inst *instance) bool {
	if !inst.isReady() || inst.owned() == nil {
		return false
	}
	r.ownerships.mu.Lock()
	defer r.ownerships.mu.Unlock()
	if inst.ownership.refs != 1 || inst.ownership.lost.Load() { // the one is the instance's
		return false
	}
	inst.mu.Lock()
	defer inst.mu.Unlock()
	if inst.ending != "" || inst.running > 0 {
		return false
	}
	inst.ending, inst.ownership.refs = sandbox.StatusLost, -1
	return true
}

// handOver gives a thread free, with its sandbox. When its owner record cannot be written it stays this server's until that ends.
func (r *Orchestrator) handOver(ctx context.Context, inst *instance) {
	ctx, cancel := detached(ctx, cleanupTimeout)
	defer cancel()
	err := func() error {
		page, err := r.lockPage(ctx, inst.thread)
		if err != nil {
			return err
		}
		defer page.Close()
		c, ok, err := page.Record()
		if err != nil || !ok || !r.ours(inst.ownership, c) {
			return err // it is another's by now
		}
		// Before anybody can open sockets of the same names.
		if err := inst.letGo(); err != nil {
			r.o.Log.Warn("sockets not closed", "thread", inst.thread.String(), "error", err)
		}
		inst.forbidWrappers()
		r.endSkills(inst, false)
		err = page.Write(ownerrecord.Of(inst.thread, nobody, c.Token, inst.id))
		return errors.Join(err, r.o.Store.ReleaseLease(ctx, inst.thread, r.peers.ID()))
	}()
	if err != nil {
		r.o.Log.Error("thread not handed over in order; another server takes it when this one has ended", "thread", inst.thread.String(), "error", err)
	}
	r.abandonTo(inst)
}
