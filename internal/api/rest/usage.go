package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// usageRoutes are the routes of usage.
type usageRoutes struct {
	limits limiter // nil: the server counts none
}

type usageIn struct {
	From string `query:"from" format:"date" doc:"First day, in UTC; today when absent. Days are kept for 92 days"`
	To   string `query:"to" format:"date" doc:"Last day; today when absent"`
	By   string `query:"by" enum:"day,user,key" default:"day" doc:"What an item of the answer is about; user and key for administrators only"`
	User string `query:"user" maxLength:"128" doc:"Administrators only, unless it is the caller"`
}

func (s usageRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/usage", "getUsage", route.TagAdmin, route.Agents,
		"What was used on some days, and the limits: the caller's own, or for administrators the tenant's"), s.usage)
}

func (s usageRoutes) usage(ctx context.Context, in *usageIn) (*route.Body[sandbox.UsageReport], error) {
	if s.limits == nil {
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
	r, err := s.limits.Usage(ctx, exchange.CallerOf(ctx), q)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(r), nil
}
