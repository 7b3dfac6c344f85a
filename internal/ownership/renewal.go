package ownership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/ownerrecord"
	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Tokens are the tokens that sandboxes know.
type Tokens interface {
	// Renewed tells the thread's sandbox that the ownership has another token.
	Renewed(ctx context.Context, own *Ownership) error
}

// Renewal renews the leases of the threads that this server owns.
type Renewal struct {
	owners *Owners
	tokens Tokens
	store  *store.Store
	peers  Peers
	log    *slog.Logger
	ctx    context.Context // ends with the server

	renewing sync.Mutex // one round at a time; guards the pages of ownerships
}

// NewRenewal returns the renewal of a server's leases.
func NewRenewal(o *Owners, tokens Tokens) *Renewal {
	return &Renewal{owners: o, tokens: tokens, store: o.store, peers: o.peers, log: o.log, ctx: o.ctx}
}

// Run renews the leases until the server ends.
func (n *Renewal) Run() {
	for range every.Tick(n.ctx, renewEvery) {
		n.RenewAll()
	}
}

// RenewAll renews what is held, once. A lease that cannot be renewed ends nothing: Redis may be away, or may have lost
// it. Only an owner record that is another's does.
func (n *Renewal) RenewAll() {
	n.renewing.Lock()
	defer n.renewing.Unlock()
	tokens := map[sandbox.Thread]int64{}
	var owned []*Ownership
	for _, own := range n.owners.All() {
		select {
		case <-own.ready:
		default:
			continue
		}
		if own.err == nil && !own.lost.Load() && n.stillNamed(own) {
			owned, tokens[own.Thread] = append(owned, own), own.Token.Load()
		}
	}
	failed := n.store.RenewLeases(n.ctx, n.peers.ID(), tokens, LeaseTime)
	var wg sync.WaitGroup
	free := make(chan struct{}, renewParallel)
	unrenewed, why := 0, error(nil)
	for _, own := range owned {
		switch err := failed[own.Thread]; {
		case err == nil:
			own.markRenewed()
		case errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Conflict): // Redis lost it, or was away for longer than it lasts
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				n.renewAgain(own)
			})
		default:
			unrenewed, why = unrenewed+1, err
		}
	}
	wg.Wait()
	if unrenewed > 0 && n.ctx.Err() == nil {
		n.log.Warn("leases not renewed", "threads", unrenewed, "error", why)
	}
}

// stillNamed is confirm for every round: it costs one stat as long as no server writes the owner record.
func (n *Renewal) stillNamed(own *Ownership) bool {
	now := time.Now()
	page, err := n.owners.Book.Stamp(own.Thread) // before the text, so that no change falls between
	if err == nil && page != (lockedfile.Stamp{}) && page == own.page {
		return true
	}
	if c, ok, e := n.owners.Book.Read(own.Thread); err == nil && e == nil && ok && n.owners.ours(own, c) {
		if !page.Racy(now) {
			own.page = page
		}
		return true
	}
	return n.owners.Confirm(own)
}

func (n *Renewal) renewAgain(own *Ownership) {
	ctx, cancel := context.WithTimeout(n.ctx, renewEvery)
	defer cancel()
	err := n.renewToken(ctx, own)
	if err == nil {
		own.markRenewed()
		return
	}
	if n.ctx.Err() == nil {
		n.log.Warn("lease not renewed", "thread", own.Thread.String(), "error", err)
	}
}

// renewToken takes the lease again. The owner record is ours, so a server that took the lease meanwhile
// returns it when it finds us alive.
func (n *Renewal) renewToken(ctx context.Context, own *Ownership) error {
	page, err := n.owners.LockPage(ctx, own.Thread)
	if err != nil {
		return err
	}
	defer page.Close()
	c, ok, err := page.Record()
	if err != nil || !ok || !n.owners.ours(own, c) {
		return err // the next round sees whose it is
	}
	lease, err := n.owners.leaseOf(ctx, own.Thread, "", "")
	if err != nil {
		return err
	}
	if err := page.Write(ownerrecord.Of(own.Thread, n.peers.ID(), lease.Token, c.Sandbox)); err != nil {
		return err
	}
	own.Token.Store(lease.Token)
	return n.tokens.Renewed(ctx, own)
}
