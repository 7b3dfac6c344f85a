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
// nobody else may take it, and the owner record on disk (package ownerrecord), which says that it did. An ownership lives as long
// as an instance or a request needs it. An instance's use costs no look at either, as long as the lease was renewed in time.

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
	// pageTimeout bounds the wait for an owner record's page, which another server holds while it removes a sandbox.
	pageTimeout = 10 * time.Second
	// renewParallel is how many leases that were lost are taken again side by side.
	renewParallel = 8
)

// elsewhere says that another replica holds the thread.
type elsewhere struct{ replica string }

func (e *elsewhere) Error() string { return "the thread is held by replica " + e.replica }

// notHere maps the error of a thread that another server runs to its kind.
func notHere(err error) error {
	var e *elsewhere
	if errors.As(err, &e) {
		return sandbox.Wrap(sandbox.Unavailable, err, "another server runs the thread; try again")
	}
	return err
}

// ownership is our ownership of one thread. It is in holds from the first try to take it until it is given up.
type ownership struct {
	thread sandbox.Thread
	ready  chan struct{} // closed when taking has ended, well or with err
	err    error
	ended  chan struct{} // closed when it is out of the map

	token   atomic.Int64
	renewed atomic.Int64 // when the lease was last known to be ours: time since holds.epoch
	lost    atomic.Bool  // another replica has the thread
	// page is the owner record when it was last seen to be ours; of holds.renewing.
	page lockedfile.Stamp
	// unremoved: the sandbox could not be removed. The owner record stays, for whoever tries again.
	unremoved atomic.Bool

	refs int // of instances and requests; of holds.mu
}

// ownerships are the threads that are ours.
type ownerships struct {
	epoch time.Time

	mu  sync.Mutex
	all map[sandbox.Thread]*ownership

	renewing sync.Mutex // held by renewAll
}

func (all *ownerships) init() { all.epoch, all.all = time.Now(), map[sandbox.Thread]*ownership{} }

func (all *ownerships) list() []*ownership {
	all.mu.Lock()
	defer all.mu.Unlock()
	list := make([]*ownership, 0, len(all.all))
	for _, x := range all.all {
		list = append(list, x)
	}
	return list
}

func (all *ownerships) has(t sandbox.Thread) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.all[t] != nil
}

// acquire makes the thread ours until release; elsewhere: another replica has it. A sandbox that a
// replica which ended left for it is adopted, or removed. from is a living replica from which it may be
// taken because its lease ran out, or "".
func (r *Orchestrator) acquire(ctx context.Context, t sandbox.Thread, from string) (*ownership, error) {
	for {
		r.ownerships.mu.Lock()
		own := r.ownerships.all[t]
		if own == nil {
			own = &ownership{thread: t, ready: make(chan struct{}), ended: make(chan struct{})}
			r.ownerships.all[t] = own
			r.wg.Go(func() { r.take(own, from) })
		}
		going := own.lost.Load() || own.refs < 0
		if !going {
			own.refs++
		}
		r.ownerships.mu.Unlock()
		wait := own.ready
		if going {
			wait = own.ended
		}
		select {
		case <-wait:
		case <-ctx.Done():
			if !going {
				r.release(own)
			}
			return nil, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the thread is being taken over; try again")
		}
		if going {
			continue
		}
		return own, own.err // of one that failed nobody needs to let go
	}
}

// take tries to get the lease and the owner record.
func (r *Orchestrator) take(own *ownership, from string) {
	ctx, cancel := context.WithTimeout(r.ctx, takeTimeout)
	defer cancel()
	former, err := r.writeOwner(ctx, own, from)
	if err == nil && former.Sandbox != "" {
		err = r.inherit(ctx, own, former)
	}
	if err != nil {
		own.err = err
		r.forgetOwnership(own)
	}
	close(own.ready)
	if err == nil {
		r.release(own) // the reference of taking itself
	}
}

// writeOwner takes the lease and then the owner record, from a replica that ended, or from the one that is given. It
// gives the former owner record.
func (r *Orchestrator) writeOwner(ctx context.Context, own *ownership, from string) (former ownerrecord.OwnerRecord, err error) {
	page, err := r.lockPage(ctx, own.thread)
	if err != nil {
		return former, err
	}
	defer page.Close()
	former, claimed, err := page.Record()
	if err != nil {
		return former, sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be read")
	}
	me := r.peers.ID()
	if claimed && former.Replica != me && former.Replica != from && r.peers.Alive(former.Replica) {
		return former, &elsewhere{former.Replica}
	}
	lease, err := r.leaseOf(ctx, own.thread, former.Replica, from)
	if err != nil {
		return former, err
	}
	if err := page.Write(ownerrecord.Of(own.thread, me, lease.Token, former.Sandbox)); err != nil {
		return former, sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be written")
	}
	own.token.Store(lease.Token)
	r.wasRenewed(own)
	r.ownerships.mu.Lock()
	own.refs++ // until what is left of the former replica is looked at
	r.ownerships.mu.Unlock()
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
	return r.owners.Lock(ctx, t)
}

func (r *Orchestrator) wasRenewed(own *ownership) {
	own.renewed.Store(int64(time.Since(r.ownerships.epoch)))
}

// release gives up one reference of an ownership; with the last one the thread is anybody's.
func (r *Orchestrator) release(own *ownership) {
	r.ownerships.mu.Lock()
	own.refs--
	last := own.refs == 0 && !own.lost.Load()
	if last {
		own.refs = -1 // nobody joins it any more
	}
	r.ownerships.mu.Unlock()
	if last {
		select { // nobody waited for its end
		case <-own.ready:
			r.drop(own)
		default:
			r.wg.Go(func() { <-own.ready; r.drop(own) })
		}
	}
}

// drop erases the owner record, releases the lease, and takes the hold out of the map.
func (r *Orchestrator) drop(own *ownership) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanupTimeout)
	defer cancel()
	if own.err == nil && !own.unremoved.Load() {
		if err := r.giveUp(ctx, own); err != nil {
			r.leftBehind.Store(true)
			r.o.Log.Warn("thread not given free; it is when this server looks again, or ends", "thread", own.thread.String(), "error", err)
		}
	}
	r.forgetOwnership(own)
}

func (r *Orchestrator) giveUp(ctx context.Context, own *ownership) error {
	page, err := r.lockPage(ctx, own.thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err != nil || !ok || !r.ours(own, c) {
		return err
	}
	return errors.Join(page.Erase(), r.o.Store.ReleaseLease(ctx, own.thread, r.peers.ID()))
}

func (r *Orchestrator) forgetOwnership(own *ownership) {
	r.ownerships.mu.Lock()
	defer r.ownerships.mu.Unlock()
	if r.ownerships.all[own.thread] == own {
		delete(r.ownerships.all, own.thread)
		close(own.ended)
	}
}

// ours reports whether an owner record is that of an ownership.
func (r *Orchestrator) ours(own *ownership, c ownerrecord.OwnerRecord) bool {
	return c.Replica == r.peers.ID() && c.Token == own.token.Load()
}

// stillOurs reports whether nobody has taken the instance's thread from us. As long as its lease was renewed in
// time that is so; else the owner record is read. Whose owner record cannot be read is taken for ours: nobody can take it.
func (r *Orchestrator) stillOurs(inst *instance) bool {
	own := inst.owned()
	if own == nil {
		return true
	}
	if own.lost.Load() {
		return false
	}
	if time.Since(r.ownerships.epoch)-time.Duration(own.renewed.Load()) < leaseTime {
		return true
	}
	return r.confirm(own)
}

// owned is the ownership of an instance that may be starting just now; nil: it has none yet.
func (inst *instance) owned() *ownership {
	inst.mu.Lock()
	defer inst.mu.Unlock()
	return inst.ownership
}

// confirm reads the owner record. One that is another's ends the ownership with its instance.
func (r *Orchestrator) confirm(own *ownership) bool {
	c, ok, err := r.owners.Read(own.thread)
	if err != nil {
		r.o.Log.Warn("owner record not read", "thread", own.thread.String(), "error", err)
		return true
	}
	if ok && r.ours(own, c) {
		return true
	}
	// It may be between two tokens: under the lock it is not.
	ctx, cancel := context.WithTimeout(r.ctx, pageTimeout)
	defer cancel()
	page, err := r.owners.Lock(ctx, own.thread)
	if err != nil {
		return true
	}
	c, ok, err = page.Record()
	page.Close()
	if err != nil || ok && r.ours(own, c) {
		return true
	}
	r.lose(own, c.Replica)
	return false
}

// lose lets go of a thread that another replica has taken. Its sandbox is that one's now.
func (r *Orchestrator) lose(own *ownership, to string) {
	r.ownerships.mu.Lock()
	going := own.refs < 0 // we are giving it up ourselves just now
	r.ownerships.mu.Unlock()
	if going || own.lost.Swap(true) {
		return
	}
	r.o.Log.Warn("another server has taken the thread over", "thread", own.thread.String(), "replica", to)
	inst := r.find(own.thread)
	if inst == nil || inst.owned() != own {
		r.forgetOwnership(own)
		return
	}
	inst.end(sandbox.StatusLost)
	r.wg.Go(func() {
		<-inst.ready
		r.abandonTo(inst)
	})
}

// abandonTo takes an instance that is another replica's out of this process and leaves all of it in place.
func (r *Orchestrator) abandonTo(inst *instance) {
	if err := inst.letGo(); err != nil {
		r.o.Log.Warn("sockets not closed", "thread", inst.thread.String(), "error", err)
	}
	inst.forbidWrappers()
	r.endSkills(inst, false)
	if inst.ownership != nil {
		r.forgetOwnership(inst.ownership)
	}
	r.leaveMap(inst)
}

// enterMap puts an instance in. The caller holds Orchestrator.mu.
func (r *Orchestrator) enterMap(inst *instance) {
	r.instances[inst.thread], r.byID[inst.id] = inst, inst
}

// leaveMap takes an instance out of the map, once.
func (r *Orchestrator) leaveMap(inst *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[inst.thread] == inst {
		delete(r.instances, inst.thread)
	}
	delete(r.byID, inst.id)
	givePlaceBack(inst)
	inst.limits.Release()
	if !inst.left {
		inst.left = true
		close(inst.gone)
		r.watches.sandboxEnded(inst.thread)
	}
}

// withSandbox writes into the owner record which sandbox the thread has from now on.
func (r *Orchestrator) withSandbox(ctx context.Context, own *ownership, id sandbox.ID) error {
	page, err := r.lockPage(ctx, own.thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err == nil && (!ok || !r.ours(own, c)) {
		err = &elsewhere{c.Replica}
	}
	if err == nil {
		err = page.Write(ownerrecord.Of(own.thread, r.peers.ID(), own.token.Load(), id))
	}
	return err
}

// removeSandbox has the driver remove the instance's sandbox, unless another replica has adopted it. Nobody
// can adopt it meanwhile.
func (r *Orchestrator) removeSandbox(ctx context.Context, inst *instance) (theirs bool, err error) {
	if inst.ownership == nil { // it has never begun to exist
		return false, r.o.Driver.Remove(ctx, inst.id)
	}
	page, err := r.lockPage(ctx, inst.thread)
	if err != nil {
		return false, err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err != nil {
		return false, fmt.Errorf("claim: %w", err)
	}
	if ok && c.Sandbox == inst.id && !r.ours(inst.ownership, c) {
		return true, nil
	}
	return false, r.o.Driver.Remove(ctx, inst.id)
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
// it. Only an owner record that is another's does.
func (r *Orchestrator) renewAll() {
	r.ownerships.renewing.Lock()
	defer r.ownerships.renewing.Unlock()
	tokens := map[sandbox.Thread]int64{}
	var held []*ownership
	for _, own := range r.ownerships.list() {
		select {
		case <-own.ready:
		default:
			continue
		}
		if own.err == nil && !own.lost.Load() && r.stillNamed(own) {
			held, tokens[own.thread] = append(held, own), own.token.Load()
		}
	}
	failed := r.o.Store.KeepLeases(r.ctx, r.peers.ID(), tokens, leaseTime)
	var wg sync.WaitGroup
	free := make(chan struct{}, renewParallel)
	unrenewed, why := 0, error(nil)
	for _, own := range held {
		switch err := failed[own.thread]; {
		case err == nil:
			r.wasRenewed(own)
		case errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Conflict): // Redis lost it, or was away for longer than it lasts
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				r.renewAgain(own)
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

// stillNamed is confirm for every round: it costs one stat as long as nobody writes the owner record.
func (r *Orchestrator) stillNamed(own *ownership) bool {
	now := time.Now()
	page, err := r.owners.Stamp(own.thread) // before the text, so that no change falls between
	if err == nil && page != (lockedfile.Stamp{}) && page == own.page {
		return true
	}
	if c, ok, e := r.owners.Read(own.thread); err == nil && e == nil && ok && r.ours(own, c) {
		if !page.Racy(now) {
			own.page = page
		}
		return true
	}
	return r.confirm(own)
}

func (r *Orchestrator) renewAgain(own *ownership) {
	ctx, cancel := context.WithTimeout(r.ctx, renewEvery)
	defer cancel()
	err := r.renewToken(ctx, own)
	if err == nil {
		r.wasRenewed(own)
		return
	}
	if r.ctx.Err() == nil {
		r.o.Log.Warn("lease not renewed", "thread", own.thread.String(), "error", err)
	}
}

// renewToken takes the lease again. The owner record is ours, so that whoever has the lease meanwhile has not got
// further: when it finds us alive it gives the lease back.
func (r *Orchestrator) renewToken(ctx context.Context, own *ownership) error {
	page, err := r.lockPage(ctx, own.thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err != nil || !ok || !r.ours(own, c) {
		return err // the next round sees whose it is
	}
	lease, err := r.leaseOf(ctx, own.thread, "", "")
	if err != nil {
		return err
	}
	if err := page.Write(ownerrecord.Of(own.thread, r.peers.ID(), lease.Token, c.Sandbox)); err != nil {
		return err
	}
	own.token.Store(lease.Token)
	// The record went with the lease.
	if inst := r.find(own.thread); inst != nil && inst.isReady() && inst.endingStatus() == "" {
		r.attachAgain(ctx, inst)
		return r.publish(ctx, inst)
	}
	return nil
}

// publish says in the store what sandbox the thread has, for the replicas that do not run it.
func (r *Orchestrator) publish(ctx context.Context, inst *instance) error {
	return r.o.Store.PutSandbox(ctx, inst.thread, store.SandboxRecord{ID: inst.id, Info: inst.snapshot(), Replica: r.peers.ID()})
}
