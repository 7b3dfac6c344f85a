package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Peers are the other servers of the data folder, as ownership sees them.
type Peers interface {
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
	// Unsettled reports whether there may be a replica that exited and is not settled yet.
	Unsettled() bool
}

// Sandboxes are those of this server, as ownership sees them.
type Sandboxes interface {
	// Inherit adopts the sandbox that a former owner of the thread has left, or removes it.
	Inherit(ctx context.Context, own *Ownership, former ownerrecord.OwnerRecord) error
	// Lost ends this server's part in the sandbox of a thread that another server has taken. False: there is none.
	Lost(own *Ownership) bool
}

// Alone returns the peers of a server that has no others on its data folder.
func Alone(id string) Peers { return alone(id) }

type alone string

func (a alone) ID() string                             { return string(a) }
func (a alone) Alive(id string) bool                   { return id == string(a) }
func (a alone) Answers(context.Context, string) bool   { return true }
func (a alone) TakesWork(context.Context, string) bool { return false }
func (a alone) Others() ([]string, error)              { return nil, nil }
func (a alone) Unsettled() bool                        { return false }

const (
	// LeaseTime is how long a thread stays ours without a sign of life. It bounds how long a server may be
	// stopped before another one takes its sandboxes. A server that exited is noticed at once.
	LeaseTime = 12 * time.Second
	// renewEvery leaves three tries.
	renewEvery = 3 * time.Second
	// TakeTimeout bounds taking a thread, with the adoption of its sandbox.
	TakeTimeout = 30 * time.Second
	// pageTimeout bounds the wait for an owner record's page, which another server holds while it removes a sandbox.
	pageTimeout = 10 * time.Second
	// giveUpTimeout bounds giving a thread up, which outlives the request that did.
	giveUpTimeout = 10 * time.Second
	// renewParallel is how many leases that were lost are taken again side by side.
	renewParallel = 8
)

// Elsewhere is the error of a thread that another replica owns.
type Elsewhere struct{ Replica string }

func (e *Elsewhere) Error() string { return "the thread is owned by replica " + e.Replica }

// NotHere maps the error of a thread that another server runs to its kind.
func NotHere(err error) error {
	var e *Elsewhere
	if errors.As(err, &e) {
		return sandbox.Wrap(sandbox.Unavailable, err, "another server runs the thread; try again")
	}
	return err
}

// Ownership is this server's ownership of one thread. Owners has it from the first try to take it until it is given up.
type Ownership struct {
	Thread sandbox.Thread
	ready  chan struct{} // closed when taking has ended, well or with err
	err    error
	ended  chan struct{} // closed when it is out of the map

	Token   atomic.Int64
	renewed atomic.Pointer[time.Time] // when the lease was last known to be ours
	lost    atomic.Bool               // another replica has the thread
	// page is the owner record when it was last seen to be ours; of Renewal.renewing.
	page lockedfile.Stamp
	// Unremoved: the sandbox could not be removed. The owner record stays for the next try.
	Unremoved atomic.Bool

	refs int // of instances and requests; of Owners.mu
}

// markRenewed notes that the lease is ours now.
func (own *Ownership) markRenewed() {
	now := time.Now()
	own.renewed.Store(&now)
}

// Owners are the threads that this server owns.
type Owners struct {
	store     *store.Store
	Book      *ownerrecord.Book
	peers     Peers
	sandboxes Sandboxes
	log       *slog.Logger
	ctx       context.Context // ends with the server
	wg        *sync.WaitGroup // of the server: what runs in the background
	// LeftBehind: there may be owner records that name no server, or this one for a thread that is not in all.
	LeftBehind atomic.Bool

	mu  sync.Mutex
	all map[sandbox.Thread]*Ownership
}

// Options are the parts that Owners work with.
type Options struct {
	Store     *store.Store
	Book      *ownerrecord.Book
	Peers     Peers
	Sandboxes Sandboxes
	Log       *slog.Logger
	// Group counts what runs in the background, which ends with the context.
	Group *sync.WaitGroup
}

// New returns the owners of a server that has no threads yet.
func New(ctx context.Context, x Options) *Owners {
	return &Owners{
		store: x.Store, Book: x.Book, peers: x.Peers, sandboxes: x.Sandboxes, log: x.Log, ctx: ctx, wg: x.Group,
		all: map[sandbox.Thread]*Ownership{},
	}
}

// All returns the ownerships of this server.
func (o *Owners) All() []*Ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]*Ownership, 0, len(o.all))
	for _, x := range o.all {
		list = append(list, x)
	}
	return list
}

// Owns reports whether the thread is this server's, or about to be.
func (o *Owners) Owns(t sandbox.Thread) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[t] != nil
}

// Acquire makes the thread ours until Release. Elsewhere: another replica owns it. A sandbox that a
// replica which ended left for it is adopted, or removed. from is a living replica from which it may be
// taken because its lease ran out, or "".
func (o *Owners) Acquire(ctx context.Context, t sandbox.Thread, from string) (*Ownership, error) {
	for {
		o.mu.Lock()
		own := o.all[t]
		if own == nil {
			own = &Ownership{Thread: t, ready: make(chan struct{}), ended: make(chan struct{})}
			o.all[t] = own
			o.wg.Go(func() { o.take(own, from) })
		}
		going := own.lost.Load() || own.refs < 0
		if !going {
			own.refs++
		}
		o.mu.Unlock()
		wait := own.ready
		if going {
			wait = own.ended
		}
		select {
		case <-wait:
		case <-ctx.Done():
			if !going {
				o.Release(own)
			}
			return nil, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the thread is being taken over; try again")
		}
		if going {
			continue
		}
		return own, own.err // a failed one needs no Release
	}
}

// take tries to get the lease and the owner record.
func (o *Owners) take(own *Ownership, from string) {
	ctx, cancel := context.WithTimeout(o.ctx, TakeTimeout)
	defer cancel()
	former, err := o.writeOwner(ctx, own, from)
	if err == nil && former.Sandbox != "" {
		err = o.sandboxes.Inherit(ctx, own, former)
	}
	if err != nil {
		own.err = err
		o.Forget(own)
		if other := (*Elsewhere)(nil); !errors.As(err, &other) { // told after Forget, as drop does
			o.LeftBehind.Store(true)
		}
	}
	close(own.ready)
	if err == nil {
		o.Release(own) // the reference of taking itself
	}
}

// writeOwner takes the lease and then the owner record, from a replica that ended, or from the given one. It
// returns the former owner record.
func (o *Owners) writeOwner(ctx context.Context, own *Ownership, from string) (former ownerrecord.OwnerRecord, err error) {
	page, err := o.LockPage(ctx, own.Thread)
	if err != nil {
		return former, err
	}
	defer page.Close()
	former, found, err := page.Record()
	if err != nil {
		return former, sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be read")
	}
	me := o.peers.ID()
	if found && former.Replica != me && former.Replica != from && o.peers.Alive(former.Replica) {
		return former, &Elsewhere{former.Replica}
	}
	lease, err := o.leaseOf(ctx, own.Thread, former.Replica, from)
	if err != nil {
		return former, err
	}
	if err := page.Write(ownerrecord.Of(own.Thread, me, lease.Token, former.Sandbox)); err != nil {
		return former, sandbox.Wrap(sandbox.Internal, err, "the owner record of the thread cannot be written")
	}
	own.Token.Store(lease.Token)
	own.markRenewed()
	o.mu.Lock()
	own.refs++ // until what is left of the former replica is looked at
	o.mu.Unlock()
	return former, nil
}

// leaseOf gets the lease, which a replica that ended may still have. Of from, which lives, it must have run out.
func (o *Owners) leaseOf(ctx context.Context, t sandbox.Thread, leaseOwner, from string) (store.Lease, error) {
	me := o.peers.ID()
	if leaseOwner == "" || leaseOwner == from {
		leaseOwner = me
	}
	lease, err := o.store.TakeLease(ctx, t, me, leaseOwner, LeaseTime)
	if !errors.Is(err, sandbox.Conflict) {
		return lease, err
	}
	if o.peers.Alive(lease.Owner) {
		return lease, &Elsewhere{lease.Owner}
	}
	return o.store.TakeLease(ctx, t, me, lease.Owner, LeaseTime)
}

// LockPage locks the thread's owner record until the page is closed.
func (o *Owners) LockPage(ctx context.Context, t sandbox.Thread) (*ownerrecord.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return o.Book.Lock(ctx, t)
}

// Release ends one use of an ownership. With the last use this server releases the thread.
func (o *Owners) Release(own *Ownership) {
	o.mu.Lock()
	own.refs--
	last := own.refs == 0 && !own.lost.Load()
	if last {
		own.refs = -1 // Acquire and Join leave it alone from here on
	}
	o.mu.Unlock()
	if last {
		select { // the caller may have left before taking ended
		case <-own.ready:
			o.drop(own)
		default:
			o.wg.Go(func() { <-own.ready; o.drop(own) })
		}
	}
}

// drop erases the owner record, releases the lease, and takes the ownership out of the map.
func (o *Owners) drop(own *Ownership) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), giveUpTimeout)
	defer cancel()
	var other *Elsewhere
	stays := own.Unremoved.Load() || own.err != nil && !errors.As(own.err, &other)
	if own.err == nil && !stays {
		if err := o.giveUp(ctx, own); err != nil {
			stays = true
			o.log.Warn("thread not given free; it is when this server looks again, or ends", "thread", own.Thread.String(), "error", err)
		}
	}
	o.Forget(own)
	if stays { // told after Forget: a look before it takes the owner record for that of a thread in use
		o.LeftBehind.Store(true)
	}
}

func (o *Owners) giveUp(ctx context.Context, own *Ownership) error {
	page, err := o.LockPage(ctx, own.Thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err != nil || !ok || !o.ours(own, c) {
		return err
	}
	return errors.Join(page.Erase(), o.store.ReleaseLease(ctx, own.Thread, o.peers.ID()))
}

// Forget takes an ownership out of the map and leaves the owner record as it is.
func (o *Owners) Forget(own *Ownership) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all[own.Thread] == own {
		delete(o.all, own.Thread)
		close(own.ended)
	}
}

// ours reports whether an owner record is that of an ownership.
func (o *Owners) ours(own *Ownership, c ownerrecord.OwnerRecord) bool {
	return c.Replica == o.peers.ID() && c.Token == own.Token.Load()
}

// Current reports whether no other server has taken the thread. As long as the lease was renewed in time that is so; else
// the owner record is read. An unreadable one counts as ours: no server can take it.
func (o *Owners) Current(own *Ownership) bool {
	if own == nil {
		return true
	}
	if own.lost.Load() {
		return false
	}
	if time.Since(*own.renewed.Load()) < LeaseTime {
		return true
	}
	return o.Confirm(own)
}

// Retain counts in another use of an ownership, for release.
func (o *Owners) Retain(own *Ownership) {
	o.mu.Lock()
	own.refs++
	o.mu.Unlock()
}

// Remove has remove called with a sandbox, unless another replica has adopted it. No server can adopt it meanwhile.
func (o *Owners) Remove(ctx context.Context, own *Ownership, id sandbox.ID, remove func(context.Context, sandbox.ID) error) (theirs bool, err error) {
	page, err := o.LockPage(ctx, own.Thread)
	if err != nil {
		return false, err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err != nil {
		return false, fmt.Errorf("owner record: %w", err)
	}
	if ok && c.Sandbox == id && !o.ours(own, c) {
		return true, nil
	}
	return false, remove(ctx, id)
}

// BeginHandOver lets no request join an ownership that only its instance uses, if free, called then, agrees.
func (o *Owners) BeginHandOver(own *Ownership, free func() bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own.refs != 1 || own.lost.Load() || !free() { // the one is the instance's
		return false
	}
	own.refs = -1
	return true
}

// HandOver makes the owner record of a thread name no server, with the sandbox, and releases the lease. leave closes what
// this server has open of the sandbox, before another one can open it; it is not called when the thread is another one's.
func (o *Owners) HandOver(ctx context.Context, own *Ownership, id sandbox.ID, leave func()) error {
	page, err := o.LockPage(ctx, own.Thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err != nil || !ok || !o.ours(own, c) {
		return err // it is another's by now
	}
	leave()
	err = page.Write(ownerrecord.Of(own.Thread, Nobody, c.Token, id))
	return errors.Join(err, o.store.ReleaseLease(ctx, own.Thread, o.peers.ID()))
}

// Ending returns a channel that is closed when the thread is given up, and whether that has begun; nil: it is not ours.
func (o *Owners) Ending(t sandbox.Thread) (ended <-chan struct{}, going bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	own := o.all[t]
	if own == nil {
		return nil, false
	}
	return own.ended, own.refs < 0
}

// Confirm reads the owner record. If another server has the thread, the ownership ends with its instance.
func (o *Owners) Confirm(own *Ownership) bool {
	c, ok, err := o.Book.Read(own.Thread)
	if err != nil {
		o.log.Warn("owner record not read", "thread", own.Thread.String(), "error", err)
		return true
	}
	if ok && o.ours(own, c) {
		return true
	}
	// It may be between two tokens: under the lock it is not.
	ctx, cancel := context.WithTimeout(o.ctx, pageTimeout)
	defer cancel()
	page, err := o.Book.Lock(ctx, own.Thread)
	if err != nil {
		return true
	}
	c, ok, err = page.Record()
	page.Close()
	if err != nil || ok && o.ours(own, c) {
		return true
	}
	o.lose(own, c.Replica)
	return false
}

// lose lets go of a thread that another replica has taken. Its sandbox is that one's now.
func (o *Owners) lose(own *Ownership, to string) {
	o.mu.Lock()
	going := own.refs < 0 // we are giving it up ourselves just now
	o.mu.Unlock()
	if going || own.lost.Swap(true) {
		return
	}
	o.log.Warn("another server has taken the thread over", "thread", own.Thread.String(), "replica", to)
	if !o.sandboxes.Lost(own) {
		o.Forget(own)
	}
}

// SetSandbox writes into the owner record which sandbox the thread has from now on.
func (o *Owners) SetSandbox(ctx context.Context, own *Ownership, id sandbox.ID) error {
	page, err := o.LockPage(ctx, own.Thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err == nil && (!ok || !o.ours(own, c)) {
		err = &Elsewhere{c.Replica}
	}
	if err == nil {
		err = page.Write(ownerrecord.Of(own.Thread, o.peers.ID(), own.Token.Load(), id))
	}
	return err
}

// Join takes part in an ownership of the thread that is there, or is just being taken; nil: there is none.
func (o *Owners) Join(t sandbox.Thread) *Ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	own := o.all[t]
	if own == nil || own.refs <= 0 || own.lost.Load() {
		return nil
	}
	own.refs++
	return own
}

// RecordFor writes an owner record that names no server for a sandbox, when its thread has none.
func (o *Owners) RecordFor(ctx context.Context, t sandbox.Thread, id sandbox.ID) error {
	page, err := o.LockPage(ctx, t)
	if err != nil {
		return err
	}
	defer page.Close()
	if _, ok, err := page.Record(); err != nil || ok {
		return err
	}
	return page.Write(ownerrecord.Of(t, Nobody, 0, id))
}

// Nobody is the placeholder owner of a sandbox that no server owns.
const Nobody = "nobody"

// Record is the owner record of a thread, also of another replica; the zero Claim when there is none.
func (o *Owners) Record(t sandbox.Thread) ownerrecord.OwnerRecord {
	c, _, err := o.Book.Read(t)
	if err != nil {
		o.log.Warn("owner record not read", "thread", t.String(), "error", err)
	}
	return c
}

// GiveBack makes an owner record again what it was, for the next try.
func (o *Owners) GiveBack(ctx context.Context, own *Ownership, former ownerrecord.OwnerRecord) error {
	page, err := o.LockPage(context.WithoutCancel(ctx), own.Thread)
	if err != nil {
		return err
	}
	defer page.Close()
	if c, ok, err := page.Record(); err != nil || !ok || !o.ours(own, c) {
		return err
	}
	o.LeftBehind.Store(true)
	return errors.Join(page.Write(former), o.store.ReleaseLease(context.WithoutCancel(ctx), own.Thread, o.peers.ID()))
}
