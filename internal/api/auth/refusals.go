package auth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// A flood of refused credentials must not fill the disk with records. Each minute a bounded number is
// recorded one by one, for each address and in all; the rest is counted.
const (
	refusalsEach  = 10
	refusalsInAll = 200
	refusalEvery  = time.Minute
	// refusalSources bounds the addresses that are counted apart; those beyond are counted together.
	refusalSources = 256
)

// Refusals records refused credentials, within bounds. It is safe for concurrent use.
type Refusals struct {
	record func(ctx context.Context, c sandbox.Caller, reason string)

	mu    sync.Mutex
	inAll int
	by    map[string]*refused
}

// refused is what came from one address since the last summary.
type refused struct {
	recorded, counted int
	last              sandbox.Caller
}

// others stands for the addresses that are not counted apart.
const others = "others"

// NewRefusals makes Refusals that write by record.
func NewRefusals(record func(ctx context.Context, c sandbox.Caller, reason string)) *Refusals {
	return &Refusals{record: record, by: map[string]*refused{}}
}

// Add records a refusal, or counts it. count is true when the refusal is only counted.
func (r *Refusals) Add(ctx context.Context, c sandbox.Caller, reason string, count bool) {
	if r.admit(c, count) {
		r.record(ctx, c, reason)
	}
}

func (r *Refusals) admit(c sandbox.Caller, count bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := c.Tenant + " " + site(c.Source)
	if r.by[key] == nil && len(r.by) >= refusalSources {
		key, c = others, sandbox.Caller{Source: others}
	}
	s := r.by[key]
	if s == nil {
		s = &refused{}
		r.by[key] = s
	}
	s.last = c
	if count || s.recorded >= refusalsEach || r.inAll >= refusalsInAll {
		s.counted++
		return false
	}
	s.recorded++
	r.inAll++
	return true
}

// Summarize records what was only counted, and begins anew.
func (r *Refusals) Summarize(ctx context.Context) {
	r.mu.Lock()
	by := r.by
	r.by, r.inAll = map[string]*refused{}, 0
	r.mu.Unlock()
	for _, s := range by {
		if s.counted == 0 {
			continue
		}
		c := sandbox.Caller{Owner: s.last.Owner, Source: s.last.Source}
		r.record(ctx, c, fmt.Sprintf("%d more were refused within %s, the last at the request %q", s.counted, refusalEvery, s.last.RequestID))
	}
}

// Run summarizes every minute until ctx ends, and then once more.
func (r *Refusals) Run(ctx context.Context) {
	tick := time.NewTicker(refusalEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.Summarize(ctx)
		case <-ctx.Done():
			r.Summarize(context.WithoutCancel(ctx))
			return
		}
	}
}
