package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

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

// keepSigned signs the head while there are records that no signature covers, until stop is closed.
func (l *Log) keepSigned(stop <-chan struct{}) {
	tick := time.NewTicker(l.o.SignWithin)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		case <-l.signNow:
		}
		l.sign()
	}
}

// signLast signs the head when the log is closed.
func (l *Log) signLast() {
	if l.o.Signer != nil {
		l.sign()
	}
}

// sign records a signature of the last durable record, unless one covers it already.
func (l *Log) sign() {
	ctx, cancel := context.WithTimeout(context.Background(), signTimeout)
	defer cancel()
	l.mu.Lock()
	last, due := l.appended.Load(), l.appended.Load() > l.signed && l.broken == nil && !l.closed
	l.mu.Unlock()
	if !due || l.durable(ctx, last) != nil {
		return
	}
	l.mu.Lock()
	h := l.durably
	l.mu.Unlock()
	h.Time = time.Now().UTC()
	h, err := l.o.Signer.Sign(ctx, h)
	if err == nil {
		err = l.noteHead(h)
	}
	l.mu.Lock()
	was := l.signErr
	l.signErr = err
	l.mu.Unlock()
	switch {
	case was == nil && err != nil:
		l.log.Error("the audit log cannot be signed; it goes on unsigned", "error", err)
	case was != nil && err == nil:
		l.log.Info("the audit log is signed again")
	}
}

// noteHead appends a signed head.
func (l *Log) noteHead(h Head) error {
	r, err := record.OfLog(ActionHead, fmt.Sprintf("record %d", h.Seq))
	if err != nil {
		return err
	}
	if r.Args, err = json.Marshal(h); err != nil {
		return err
	}
	if l.unsignedAtOpen > 0 {
		r.Detail = fmt.Sprintf("%d records before the start of the server were not signed when it ended", l.unsignedAtOpen)
	}
	r.Outcome = "ok"
	if r, err = l.append(r); err != nil {
		return err
	}
	if l.ship != nil {
		l.ship.wake()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signed, l.signedAt, l.unsignedAtOpen = record.CoveredBy(r, h), h.Time, 0
	return nil
}

// resumed takes a record into account that an open log begins with.
func (l *Log) resumed(r Record) {
	if h, ok := record.HeadOf(r); ok {
		l.signed, l.signedAt = record.CoveredBy(r, h), h.Time
	}
}

// Checkpoint signs the head now and returns it.
func (l *Log) Checkpoint(ctx context.Context) (Head, error) {
	l.mu.Lock()
	last := l.appended.Load()
	l.mu.Unlock()
	if err := l.durable(ctx, last); err != nil {
		return Head{}, err
	}
	l.mu.Lock()
	h := l.durably
	l.mu.Unlock()
	h.Time = time.Now().UTC()
	if l.o.Signer == nil || h.Seq == 0 {
		return h, nil
	}
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	return l.o.Signer.Sign(ctx, h)
}
