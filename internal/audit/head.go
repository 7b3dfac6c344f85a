package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/journal"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
)

// Signer signs heads.
type Signer interface {
	// Sign fills in Signer and Signature. It keeps to ctx.
	Sign(ctx context.Context, h Head) (Head, error)
}

const (
	// DefaultSignWithin is how long after a record one is signed at the latest.
	DefaultSignWithin = time.Second
	// signTimeout bounds one signature.
	signTimeout = 5 * time.Second
)

func (o *Options) setSigning() {
	if o.SignEvery == 0 {
		o.SignEvery = record.DefaultSignEvery
	}
	if o.SignWithin <= 0 {
		o.SignWithin = DefaultSignWithin
	}
}

// coverage is which records a signature covers.
type coverage struct {
	every uint64
	due   chan struct{} // a token: a signature is due

	mu       sync.Mutex
	signed   uint64 // Seq of the last record that a signature covers
	signedAt time.Time
	// unsigned is how many records had no signature when the log was opened: its server did not end well.
	unsigned uint64
}

// observe takes a record into account that is in the log.
func (c *coverage) observe(r Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := record.HeadOf(r); ok {
		c.signed, c.signedAt, c.unsigned = record.CoveredBy(r, h), h.Time, 0
	}
	if r.Seq-c.signed >= c.every {
		token(c.due)
	}
}

// opened says which record is the last one of the log that was opened. A log that was never signed has nothing to tell.
func (c *coverage) opened(last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signed > 0 {
		c.unsigned = last - c.signed
	}
}

// last returns the Seq of the last record that a signature covers, and when that was made.
func (c *coverage) last() (seq uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signed, c.signedAt
}

// lacking is how many records had no signature when the log was opened, until there is one.
func (c *coverage) lacking() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsigned
}

// notary signs heads and records them.
type notary struct {
	journal  *journal.Journal
	coverage *coverage
	signer   Signer // nil: heads are not signed
	copies   copies
	log      *slog.Logger

	mu  sync.Mutex
	err error // why there is no newer signature
}

// keep signs the head while there are records that no signature covers, until stop is closed.
func (n *notary) keep(within time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(within)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		case <-n.coverage.due:
		}
		n.sign()
	}
}

// sign records a signature of the last durable record, unless one covers it already.
func (n *notary) sign() {
	ctx, cancel := context.WithTimeout(context.Background(), signTimeout)
	defer cancel()
	last := n.journal.Appended()
	if signed, _ := n.coverage.last(); last <= signed || !n.journal.Writable() || n.journal.Durable(ctx, last) != nil {
		return
	}
	h := n.journal.Durably()
	h.Time = time.Now().UTC()
	h, err := n.signer.Sign(ctx, h)
	if err == nil {
		err = n.record(h)
	}
	n.mu.Lock()
	was := n.err
	n.err = err
	n.mu.Unlock()
	switch {
	case was == nil && err != nil:
		n.log.Error("the audit log cannot be signed; it goes on unsigned", "error", err)
	case was != nil && err == nil:
		n.log.Info("the audit log is signed again")
	}
}

// record appends a signed head.
func (n *notary) record(h Head) error {
	r, err := record.OfLog(ActionHead, fmt.Sprintf("record %d", h.Seq))
	if err != nil {
		return err
	}
	if r.Args, err = json.Marshal(h); err != nil {
		return err
	}
	if lacking := n.coverage.lacking(); lacking > 0 {
		r.Detail = fmt.Sprintf("%d records before the start of the server were not signed when it ended", lacking)
	}
	r.Outcome = "ok"
	if _, err = n.journal.AppendOwn(r); err != nil {
		return err
	}
	if n.copies.ship != nil {
		n.copies.ship.wake()
	}
	return nil
}

// failed is why there is no newer signature, or nil.
func (n *notary) failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// checkpoint signs the head now and returns it.
func (n *notary) checkpoint(ctx context.Context) (Head, error) {
	if err := n.journal.Durable(ctx, n.journal.Appended()); err != nil {
		return Head{}, err
	}
	h := n.journal.Durably()
	h.Time = time.Now().UTC()
	if n.signer == nil || h.Seq == 0 {
		return h, nil
	}
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	return n.signer.Sign(ctx, h)
}
