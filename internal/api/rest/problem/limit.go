package problem

import (
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limit is a limit of a tenant, user or key that a request met.
type Limit struct {
	Limit      string     `json:"limit" doc:"As in the configuration: execs, requests_per_minute …"`
	Scope      string     `json:"scope" enum:"tenant,user,key" doc:"Whose limit it is"`
	Who        string     `json:"who"`
	Max        int64      `json:"max"`
	Used       int64      `json:"used"`
	RetryAfter int        `json:"retry_after_s,omitempty" doc:"As Retry-After; absent when it is unknown or waiting does not help"`
	FreeAt     *time.Time `json:"free_at,omitempty"`
}

// limited adds a limit that was met. A limit of files has no Retry-After: waiting frees no space.
func (p *Problem) limited(h *sandbox.LimitHit) {
	p.Limit = &Limit{Limit: h.Limit, Scope: h.Scope, Who: h.Who, Max: h.Max, Used: h.Used, RetryAfter: h.RetryAfter()}
	if !h.FreeAt.IsZero() {
		p.Limit.FreeAt = &h.FreeAt
	}
	if p.Status != http.StatusTooManyRequests {
		return
	}
	retry := h.RetryAfter()
	if retry == 0 { // a sandbox may go at any time
		retry = defaultRetry
	}
	p.RetryAfter(retry)
}

// defaultRetry is the Retry-After of a limit of which it is unknown when it is free, in seconds.
const defaultRetry = 10
