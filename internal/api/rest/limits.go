package rest

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// usageRoutes are the routes of usage.
type usageRoutes struct{ *server }

// limit refuses a request when there were too many. It comes after place: a request counts where it is answered.
func (s *server) limit(c *gin.Context) {
	if s.o.Limits == nil {
		return
	}
	ctx := c.Request.Context()
	caller := callerOf(ctx)
	if exchangeOf(ctx).rule.deferred {
		ctx = s.o.Limits.Defer(ctx)
		c.Request = c.Request.WithContext(ctx)
		defer s.o.Limits.Settle(context.WithoutCancel(ctx), caller)
		c.Next()
		return
	}
	if err := s.o.Limits.Request(ctx, caller); err != nil {
		writeProblem(c.Writer, s.problem(ctx, notStarted{err}))
		c.Abort()
	}
}

// limitShown is a limit of a tenant, user or key that a request met.
type limitShown struct {
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
	p.Limit = &limitShown{Limit: h.Limit, Scope: h.Scope, Who: h.Who, Max: h.Max, Used: h.Used, RetryAfter: h.RetryAfter()}
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
	p.header = http.Header{"Retry-After": {strconv.Itoa(retry)}}
}

// defaultRetry is the Retry-After of a limit of which it is unknown when it is free, in seconds.
const defaultRetry = 10

type usageIn struct {
	From string `query:"from" format:"date" doc:"First day, in UTC; today when absent. Days are kept for 92 days"`
	To   string `query:"to" format:"date" doc:"Last day; today when absent"`
	By   string `query:"by" enum:"day,user,key" default:"day" doc:"What an item of the answer is about; user and key for administrators only"`
	User string `query:"user" maxLength:"128" doc:"Administrators only, unless it is the caller"`
}

func (s usageRoutes) add() {
	register(s.server, s.api, on(http.MethodGet, "/api/usage", "getUsage", tagAdmin, agents,
		"What was used on some days, and the limits: the caller's own, or for administrators the tenant's"), s.usage)
}

func (s usageRoutes) usage(ctx context.Context, in *usageIn) (*body[sandbox.UsageReport], error) {
	if s.o.Limits == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "this server counts no usage")
	}
	q := sandbox.UsageQuery{By: in.By, User: in.User}
	for _, day := range []struct {
		name, text string
		to         *time.Time
	}{{"from", in.From, &q.From}, {"to", in.To, &q.To}} {
		if day.text == "" {
			continue
		}
		var err error
		if *day.to, err = time.ParseInLocation(time.DateOnly, day.text, time.UTC); err != nil {
			return nil, sandbox.InvalidField(day.name, "want a day such as 2026-01-31")
		}
	}
	if q.From.IsZero() && !q.To.IsZero() {
		q.From = q.To
	}
	r, err := s.o.Limits.Usage(ctx, callerOf(ctx), q)
	if err != nil {
		return nil, err
	}
	return bodyOf(r), nil
}
