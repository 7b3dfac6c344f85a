package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Who runs a thread. Servers share a data folder and a Redis; each is a replica. Before a replica does
// anything with the sandbox of a thread it holds the thread: it has the lease in Redis, which says that
// nobody else may take it, and the claim on disk (package claim), which says that it did. A hold lives as long
// as a box or a request needs it. A box's use costs no look at either, as long as the lease was renewed in time.

// peers is what the orchestrator needs to know of the other replicas.
type peers interface {
	// ID names this replica.
	ID() string
	// Alive reports whether the process of a replica is there, even if it does not answer.
	Alive(id string) bool
	// Answers asks a replica whether it serves, and waits a few seconds at most.
	Answers(ctx context.Context, id string) bool
	// Others are the other replicas whose processes are there.
	Others() ([]string, error)
	// TakesWork asks a replica whether it serves and is not stopping, as Answers does.
	TakesWork(ctx context.Context, id string) bool
	// Unsettled reports whether there may be a replica that ended and was not buried yet.
	Unsettled() bool
}

// alone is a server without others on its data folder.
type alone string

func (a alone) ID() string                             { return string(a) }
func (a alone) Alive(id string) bool                   { return id == string(a) }
func (a alone) Answers(context.Context, string) bool   { return true }
func (a alone) TakesWork(context.Context, string) bool { return false }
func (a alone) Others() ([]string, error)              { return nil, nil }
func (a alone) Unsettled() bool                        { return false }

const (
	// leaseTime is how long a thread stays ours without a sign of life. It bounds how long a server may be
	// stopped until another one takes its sandboxes; one that has ended is known at once.
	leaseTime = 12 * time.Second
	// renewEvery leaves three tries.
	renewEvery = 3 * time.Second
	// takeTimeout bounds taking a thread with adopting its sandbox.
	takeTimeout = 30 * time.Second
	// pageTimeout bounds the wait for a claim's page, which another server holds while it removes a sandbox.
	pageTimeout = 10 * time.Second
	// renewParallel is how many leases that were lost are taken again side by side.
	renewParallel = 8
)

// elsewhere says that another replica holds the thread.
type elsewhere struct{ replica string }

func (e *elsewhere) Error() string { return "the thread is held by replica " + e.replica }

// notHere gives the error of a thread that another server runs its kind.
func notHere(err error) error {
	var e *elsewhere
	if errors.As(err, &e) {
		return sandbox.Wrap(sandbox.Unavailable, err, "another server runs the thread; try again")
	}
	return err
}

// hold is our ownership of one thread. It is in holds from the first try to take it until it is given up.
type hold struct {
	thread sandbox.Thread
	ready  chan struct{} // closed when taking has ended, well or with err
	err    error
	ended  chan struct{} // closed when it is out of the map

	token   atomic.Int64
	renewed atomic.Int64 // when the lease was last known to be ours: time since holds.epoch
	lost    atomic.Bool  // another replica has the thread
	// page is the claim when it was last seen to be ours; of holds.renewing.
	page lockedfile.Stamp
	// unremoved: the sandbox could not be removed. The claim stays, for whoever tries again.
	unremoved atomic.Bool

	refs int // of boxes and requests; of holds.mu
}

// holds are the threads that are ours.
type holds struct {
	epoch time.Time

	mu  sync.Mutex
	all map[sandbox.Thread]*hold

	renewing sync.Mutex // held by renewAll
}

func (h *holds) init() { h.epoch, h.all = time.Now(), map[sandbox.Thread]*hold{} }

func (h *holds) list() []*hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*hold, 0, len(h.all))
	for _, x := range h.all {
		list = append(list, x)
	}
	return list
}

func (h *holds) has(t sandbox.Thread) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[t] != nil
}

// acquire makes the thread ours until release; elsewhere: another replica has it. A sandbox that a
// replica which ended left for it is adopted, or removed. from is a living replica from which it may be
// taken because its lease ran out, or "".
func (r *Orchestrator) acquire(ctx context.Context, t sandbox.Thread, from string) (*hold, error) {
	for {
		r.holds.mu.Lock()
		h := r.holds.all[t]
		if h == nil {
			h = &hold{thread: t, ready: make(chan struct{}), ended: make(chan struct{})}
			r.holds.all[t] = h
			r.wg.Go(func() { r.take(h, from) })
		}
		going := h.lost.Load() || h.refs < 0
		if !going {
			h.refs++
		}
		r.holds.mu.Unlock()
		wait := h.ready
		if going {
			wait = h.ended
		}
		select {
		case <-wait:
		case <-ctx.Done():
			if !going {
				r.release(h)
			}
			return nil, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the thread is being taken over; try again")
		}
		if going {
			continue
		}
		return h, h.err // of one that failed nobody needs to let go
	}
}

// take tries to get the lease and the claim.
func (r *Orchestrator) take(h *hold, from string) {
	ctx, cancel := context.WithTimeout(r.ctx, takeTimeout)
	defer cancel()
	former, err := r.claimThread(ctx, h, from)
	if err == nil && former.Sandbox != "" {
		err = r.inherit(ctx, h, former)
	}
	if err != nil {
		h.err = err
		r.forgetHold(h)
	}
	close(h.ready)
	if err == nil {
		r.release(h) // the reference of taking itself
	}
}

// claimThread takes the lease and then the claim, from a replica that ended, or from the one that is given. It
// gives the former claim.
func (r *Orchestrator) claimThread(ctx context.Context, h *hold, from string) (former ownerrecord.Claim, err error) {
	page, err := r.lockPage(ctx, h.thread)
	if err != nil {
		return former, err
	}
	defer page.Close()
	former, claimed, err := page.Claim()
	if err != nil {
		return former, sandbox.Wrap(sandbox.Internal, err, "the claim of the thread cannot be read")
	}
	me := r.peers.ID()
	if claimed && former.Replica != me && former.Replica != from && r.peers.Alive(former.Replica) {
		return former, &elsewhere{former.Replica}
	}
	lease, err := r.leaseOf(ctx, h.thread, former.Replica, from)
	if err != nil {
		return former, err
	}
	if err := page.Write(ownerrecord.Of(h.thread, me, lease.Token, former.Sandbox)); err != nil {
		return former, sandbox.Wrap(sandbox.Internal, err, "the claim of the thread cannot be written")
	}
	h.token.Store(lease.Token)
	r.wasRenewed(h)
	r.holds.mu.Lock()
	h.refs++ // until what is left of the former replica is looked at
	r.holds.mu.Unlock()
	return former, nil
}

// leaseOf gets the lease, which a replica that ended may still have. Of from, which lives, it must have run out.
func (r *Orchestrator) leaseOf(ctx context.Context, t sandbox.Thread, claimant, from string) (store.Lease, error) {
	me := r.peers.ID()
	if claimant == "" || claimant == from {
		claimant = me
	}
	lease, err := r.o.Store.TakeLease(ctx, t, me, claimant, leaseTime)
	if !errors.Is(err, sandbox.Conflict) {
		return lease, err
	}
	if r.peers.Alive(lease.Owner) {
		return lease, &elsewhere{lease.Owner}
	}
	return r.o.Store.TakeLease(ctx, t, me, lease.Owner, leaseTime)
}

func (r *Orchestrator) lockPage(ctx context.Context, t sandbox.Thread) (*ownerrecord.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return r.claims.Lock(ctx, t)
}

func (r *Orchestrator) wasRenewed(h *hold) { h.renewed.Store(int64(time.Since(r.holds.epoch))) }

// release gives up one reference of a hold; with the last one the thread is anybody's.
func (r *Orchestrator) release(h *hold) {
	r.holds.mu.Lock()
	h.refs--
	last := h.refs == 0 && !h.lost.Load()
	if last {
		h.refs = -1 // nobody joins it any more
	}
	r.holds.mu.Unlock()
	if last {
		select { // nobody waited for its end
		case <-h.ready:
			r.drop(h)
		default:
			r.wg.Go(func() { <-h.ready; r.drop(h) })
		}
	}
}

// drop erases the claim, releases the lease, and takes the hold out of the map.
func (r *Orchestrator) drop(h *hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanupTimeout)
	defer cancel()
	if h.err == nil && !h.unremoved.Load() {
		if err := r.giveUp(ctx, h); err != nil {
			r.leftBehind.Store(true)
			r.o.Log.Warn("thread not given free; it is when this server looks again, or ends", "thread", h.thread.String(), "error", err)
		}
	}
	r.forgetHold(h)
}

func (r *Orchestrator) giveUp(ctx context.Context, h *hold) error {
	page, err := r.lockPage(ctx, h.thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Claim()
	if err != nil || !ok || !r.ours(h, c) {
		return err
	}
	return errors.Join(page.Erase(), r.o.Store.ReleaseLease(ctx, h.thread, r.peers.ID()))
}

func (r *Orchestrator) forgetHold(h *hold) {
	r.holds.mu.Lock()
	defer r.holds.mu.Unlock()
	if r.holds.all[h.thread] == h {
		delete(r.holds.all, h.thread)
		close(h.ended)
	}
}

// ours reports whether a claim is that of a hold.
func (r *Orchestrator) ours(h *hold, c ownerrecord.Claim) bool {
	return c.Replica == r.peers.ID() && c.Token == h.token.Load()
}

// stillOurs reports whether nobody has taken the box's thread from us. As long as its lease was renewed in
// time that is so; else the claim is read. Whose claim cannot be read is taken for ours: nobody can take it.
func (r *Orchestrator) stillOurs(b *box) bool {
	h := b.held()
	if h == nil {
		return true
	}
	if h.lost.Load() {
		return false
	}
	if time.Since(r.holds.epoch)-time.Duration(h.renewed.Load()) < leaseTime {
		return true
	}
	return r.confirm(h)
}

// held is the hold of a box that may be starting just now; nil: it has none yet.
func (b *box) held() *hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hold
}

// confirm reads the claim. One that is another's ends the hold with its box.
func (r *Orchestrator) confirm(h *hold) bool {
	c, ok, err := r.claims.Read(h.thread)
	if err != nil {
		r.o.Log.Warn("claim not read", "thread", h.thread.String(), "error", err)
		return true
	}
	if ok && r.ours(h, c) {
		return true
	}
	// It may be between two tokens: under the lock it is not.
	ctx, cancel := context.WithTimeout(r.ctx, pageTimeout)
	defer cancel()
	page, err := r.claims.Lock(ctx, h.thread)
	if err != nil {
		return true
	}
	c, ok, err = page.Claim()
	page.Close()
	if err != nil || ok && r.ours(h, c) {
		return true
	}
	r.lose(h, c.Replica)
	return false
}

// lose lets go of a thread that another replica has taken. Its sandbox is that one's now.
func (r *Orchestrator) lose(h *hold, to string) {
	r.holds.mu.Lock()
	going := h.refs < 0 // we are giving it up ourselves just now
	r.holds.mu.Unlock()
	if going || h.lost.Swap(true) {
		return
	}
	r.o.Log.Warn("another server has taken the thread over", "thread", h.thread.String(), "replica", to)
	b := r.find(h.thread)
	if b == nil || b.held() != h {
		r.forgetHold(h)
		return
	}
	b.end(sandbox.StatusLost)
	r.wg.Go(func() {
		<-b.ready
		r.abandonTo(b)
	})
}

// abandonTo takes a box that is another replica's out of this process and leaves all of it in place.
func (r *Orchestrator) abandonTo(b *box) {
	if err := b.letGo(); err != nil {
		r.o.Log.Warn("sockets not closed", "thread", b.thread.String(), "error", err)
	}
	b.forbidWrappers()
	r.endSkills(b, false)
	if b.hold != nil {
		r.forgetHold(b.hold)
	}
	r.leaveMap(b)
}

// enterMap puts a box in. The caller holds Orchestrator.mu.
func (r *Orchestrator) enterMap(b *box) { r.boxes[b.thread], r.byID[b.id] = b, b }

// leaveMap takes a box out of the map, once.
func (r *Orchestrator) leaveMap(b *box) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boxes[b.thread] == b {
		delete(r.boxes, b.thread)
	}
	delete(r.byID, b.id)
	givePlaceBack(b)
	b.limits.Release()
	if !b.left {
		b.left = true
		close(b.gone)
		r.watches.sandboxEnded(b.thread)
	}
}

// withSandbox writes into the claim which sandbox the thread has from now on.
func (r *Orchestrator) withSandbox(ctx context.Context, h *hold, id sandbox.ID) error {
	page, err := r.lockPage(ctx, h.thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Claim()
	if err == nil && (!ok || !r.ours(h, c)) {
		err = &elsewhere{c.Replica}
	}
	if err == nil {
		err = page.Write(ownerrecord.Of(h.thread, r.peers.ID(), h.token.Load(), id))
	}
	return err
}

// removeSandbox has the driver remove the box's sandbox, unless another replica has adopted it. Nobody
// can adopt it meanwhile.
func (r *Orchestrator) removeSandbox(ctx context.Context, b *box) (theirs bool, err error) {
	if b.hold == nil { // it has never begun to exist
		return false, r.o.Driver.Remove(ctx, b.id)
	}
	page, err := r.lockPage(ctx, b.thread)
	if err != nil {
		return false, err
	}
	defer page.Close()
	c, ok, err := page.Claim()
	if err != nil {
		return false, fmt.Errorf("claim: %w", err)
	}
	if ok && c.Sandbox == b.id && !r.ours(b.hold, c) {
		return true, nil
	}
	return false, r.o.Driver.Remove(ctx, b.id)
}

// keepLeases renews what is held until the orchestrator is closed.
func (r *Orchestrator) keepLeases() {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		r.renewAll()
	}
}

// renewAll renews what is held, once. A lease that cannot be renewed ends nothing: Redis may be away, or may have lost
// it. Only a claim that is another's does.
func (r *Orchestrator) renewAll() {
	r.holds.renewing.Lock()
	defer r.holds.renewing.Unlock()
	tokens := map[sandbox.Thread]int64{}
	var held []*hold
	for _, h := range r.holds.list() {
		select {
		case <-h.ready:
		default:
			continue
		}
		if h.err == nil && !h.lost.Load() && r.stillNamed(h) {
			held, tokens[h.thread] = append(held, h), h.token.Load()
		}
	}
	failed := r.o.Store.KeepLeases(r.ctx, r.peers.ID(), tokens, leaseTime)
	var wg sync.WaitGroup
	free := make(chan struct{}, renewParallel)
	unrenewed, why := 0, error(nil)
	for _, h := range held {
		switch err := failed[h.thread]; {
		case err == nil:
			r.wasRenewed(h)
		case errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Conflict): // Redis lost it, or was away for longer than it lasts
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				r.renewAgain(h)
			})
		default:
			unrenewed, why = unrenewed+1, err
		}
	}
	wg.Wait()
	if unrenewed > 0 && r.ctx.Err() == nil {
		r.o.Log.Warn("leases not renewed", "threads", unrenewed, "error", why)
	}
}

// stillNamed is confirm for every round: it costs one stat as long as nobody writes the claim.
func (r *Orchestrator) stillNamed(h *hold) bool {
	now := time.Now()
	page, err := r.claims.Stamp(h.thread) // before the text, so that no change falls between
	if err == nil && page != (lockedfile.Stamp{}) && page == h.page {
		return true
	}
	if c, ok, e := r.claims.Read(h.thread); err == nil && e == nil && ok && r.ours(h, c) {
		if !page.Racy(now) {
			h.page = page
		}
		return true
	}
	return r.confirm(h)
}

func (r *Orchestrator) renewAgain(h *hold) {
	ctx, cancel := context.WithTimeout(r.ctx, renewEvery)
	defer cancel()
	err := r.renewToken(ctx, h)
	if err == nil {
		r.wasRenewed(h)
		return
	}
	if r.ctx.Err() == nil {
		r.o.Log.Warn("lease not renewed", "thread", h.thread.String(), "error", err)
	}
}

// renewToken takes the lease again. The claim is ours, so that whoever has the lease meanwhile has not got
// further: when it finds us alive it gives the lease back.
func (r *Orchestrator) renewToken(ctx context.Context, h *hold) error {
	page, err := r.lockPage(ctx, h.thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Claim()
	if err != nil || !ok || !r.ours(h, c) {
		return err // the next round sees whose it is
	}
	lease, err := r.leaseOf(ctx, h.thread, "", "")
	if err != nil {
		return err
	}
	if err := page.Write(ownerrecord.Of(h.thread, r.peers.ID(), lease.Token, c.Sandbox)); err != nil {
		return err
	}
	h.token.Store(lease.Token)
	// The record went with the lease.
	if b := r.find(h.thread); b != nil && b.isReady() && b.endingStatus() == "" {
		r.attachAgain(ctx, b)
		return r.publish(ctx, b)
	}
	return nil
}

// publish says in the store what sandbox the thread has, for the replicas that do not run it.
func (r *Orchestrator) publish(ctx context.Context, b *box) error {
	return r.o.Store.PutSandbox(ctx, b.thread, store.SandboxRecord{ID: b.id, Info: b.snapshot(), Replica: r.peers.ID()})
}
