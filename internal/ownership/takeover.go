package ownership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

const (
	// lookEvery is how often it is looked for replicas that ended.
	lookEvery = time.Second
	// lookAnyway is how often all owner records are read when no replica is known to have ended: a replica that died in the middle of a
	// take-over may have left records of a third one.
	lookAnyway = 30 * time.Second
	// TakeOverParallel is how many threads are taken over side by side.
	TakeOverParallel = 8
)

// Settlement ends what servers that exited have begun.
type Settlement interface {
	// Settle does so for one, after its threads were taken.
	Settle(ctx context.Context, exited ExitedReplica) error
}

// Takeover takes the threads of servers that exited, or that do not answer.
type Takeover struct {
	owners     *Owners
	settlement Settlement
	store      *store.Store
	peers      Peers
	log        *slog.Logger
	ctx        context.Context // ends with the server
	// settleReplicas calls settle for each replica that exited and is not settled; nil: there is none.
	settleReplicas func(settle func(ExitedReplica) error) error
	stopped        atomic.Bool // this server hands its threads over
}

// NewTakeover returns what takes over the threads of other servers. settleReplicas calls settle for each replica that
// exited and is not settled yet; nil: there is none.
func NewTakeover(o *Owners, s Settlement, settleReplicas func(settle func(ExitedReplica) error) error) *Takeover {
	return &Takeover{owners: o, settlement: s, store: o.store, peers: o.peers, log: o.log, ctx: o.ctx, settleReplicas: settleReplicas}
}

// Stop ends taking over: this server hands over its own threads.
func (k *Takeover) Stop() { k.stopped.Store(true) }

// ExitedReplica is a replica that ended.
type ExitedReplica struct {
	Replica string
	// Slot is that of its audit log.
	Slot int
}

// errNotTaken says that threads of an exited replica are not taken yet.
var errNotTaken = errors.New("threads of it are not taken over yet")

// Watch takes over what other replicas leave, until the server ends.
func (k *Takeover) Watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	silent := map[string]time.Time{} // replica that does not answer -> since when we know
	for n := 0; ; n++ {
		select {
		case <-k.ctx.Done():
			return
		case <-tick.C:
		}
		if !k.stopped.Load() { // else it would take again what it hands over
			k.LookAtPeers(n, silent)
		}
	}
}

// LookAtPeers is the n-th look of lookAfterPeers. As long as no other server ended, or is silent, it reads no owner record.
func (k *Takeover) LookAtPeers(n int, silent map[string]time.Time) {
	if time.Duration(n)*lookEvery%lookAnyway == 0 || k.owners.LeftBehind.Load() || k.peers.Unsettled() {
		k.TakeOverExited(k.ctx)
	}
	if time.Duration(n)*lookEvery%renewEvery == 0 {
		k.TakeOverSilent(silent)
	}
}

// TakeOverExited takes the threads of replicas that exited, and then settles these. What fails is tried again.
func (k *Takeover) TakeOverExited(ctx context.Context) {
	k.owners.LeftBehind.Store(false)
	records, err := k.owners.Book.All()
	if err != nil {
		k.owners.LeftBehind.Store(true)
		k.log.Error("records not read", "error", err)
		return
	}
	alive := map[string]bool{k.peers.ID(): true}
	var left []ownerrecord.OwnerRecord
	for _, c := range records {
		known, seen := alive[c.Replica]
		if !seen {
			known = k.peers.Alive(c.Replica)
			alive[c.Replica] = known
		}
		// A record of our own without an ownership is of a sandbox that could not be removed.
		if !known || c.Replica == k.peers.ID() && !k.owners.Owns(c.Thread()) {
			left = append(left, c)
		}
	}
	k.TakeOver(ctx, left, "")
	if len(left) > 0 { // until a look finds nothing
		k.owners.LeftBehind.Store(true)
	}
	if k.settleReplicas == nil {
		return
	}
	if err := k.settleReplicas(func(d ExitedReplica) error { return k.settleReplica(ctx, d) }); err != nil && !errors.Is(err, errNotTaken) && ctx.Err() == nil {
		k.log.Error("what a former server left is not settled; tried again", "error", err)
	}
}

// TakeOver takes threads, some side by side. from is as for acquire.
func (k *Takeover) TakeOver(ctx context.Context, records []ownerrecord.OwnerRecord, from string) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, TakeOverParallel)
	for _, c := range records {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			own, err := k.owners.Acquire(ctx, c.Thread(), from)
			var other *Elsewhere
			switch {
			case err == nil:
				k.owners.Release(own) // its instance has it, if there is one
			case !errors.As(err, &other) && ctx.Err() == nil:
				k.log.Warn("thread not taken over; tried again", "thread", c.Thread().String(), "error", err)
			}
		})
	}
}

// TakeOverSilent takes threads whose server is there but does not answer, and whose lease ran out: a stopped
// process, say. That a lease is not there is no proof by itself, for Redis may have lost it: a whole lease time must
// pass in which the server could have taken it again.
func (k *Takeover) TakeOverSilent(silent map[string]time.Time) {
	others, err := k.peers.Others()
	if err != nil {
		k.log.Error("other servers not known", "error", err)
		return
	}
	for replica := range silent {
		if !slices.Contains(others, replica) {
			delete(silent, replica)
		}
	}
	for _, replica := range others {
		if k.peers.Answers(k.ctx, replica) {
			delete(silent, replica)
			continue
		}
		since, known := silent[replica]
		if !known {
			silent[replica] = time.Now()
			continue
		}
		if time.Since(since) <= LeaseTime {
			continue
		}
		records, err := k.owners.Book.All()
		if err != nil {
			return
		}
		k.TakeOver(k.ctx, k.expired(slices.DeleteFunc(records, func(c ownerrecord.OwnerRecord) bool { return c.Replica != replica })), replica)
	}
}

// settleReplica has a replica that ended settled, once no thread is its any more.
func (k *Takeover) settleReplica(ctx context.Context, d ExitedReplica) error {
	records, err := k.owners.Book.All()
	if err != nil {
		return err
	}
	for _, c := range records {
		if c.Replica == d.Replica {
			return errNotTaken
		}
	}
	return k.settlement.Settle(ctx, d)
}

// expired returns the owner records without a lease.
func (k *Takeover) expired(records []ownerrecord.OwnerRecord) []ownerrecord.OwnerRecord {
	var list []ownerrecord.OwnerRecord
	for _, c := range records {
		if _, err := k.store.Lease(k.ctx, c.Thread()); errors.Is(err, sandbox.NotFound) {
			list = append(list, c)
		}
	}
	return list
}
