package rest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// limiting is a limiter that notes what it is asked.
type limiting struct {
	err   error
	asked []string
	query sandbox.UsageQuery
}

func (l *limiting) Request(context.Context, sandbox.Caller) error {
	l.asked = append(l.asked, "request")
	return l.err
}

func (l *limiting) Defer(ctx context.Context) context.Context {
	l.asked = append(l.asked, "defer")
	return ctx
}

func (l *limiting) Settle(context.Context, sandbox.Caller) { l.asked = append(l.asked, "settle") }

func (l *limiting) Usage(_ context.Context, c sandbox.Caller, q sandbox.UsageQuery) (sandbox.UsageReport, error) {
	l.query = q
	return sandbox.UsageReport{By: q.By, Items: []sandbox.UsageItem{{User: c.User}}, Limits: []sandbox.LimitState{}}, nil
}

// TestLimitMet: the answer says which limit of whom was met, how much it is, and when to come again.
func TestLimitMet(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t), &limiting{}
	h := handler(t, w, func(o *Options) { o.Limits = l })
	free := time.Now().Add(90 * time.Second).UTC()
	hit := &sandbox.LimitHit{Limit: "execs", Scope: "user", Who: "ann", Max: 2, Used: 2, Wait: 1500 * time.Millisecond, FreeAt: free}
	l.err = &sandbox.Error{Kind: sandbox.QuotaExceeded, Detail: "too many", Limit: hit}
	rec := send(h, "GET", "/api/threads/t1", "")
	m := wantProblem(t, rec, 429, "quota_exceeded")
	limit, _ := m["limit"].(map[string]any)
	if rec.Header().Get("Retry-After") != "2" || limit["limit"] != "execs" || limit["scope"] != "user" || limit["who"] != "ann" || limit["max"] != 2.0 || limit["used"] != 2.0 || limit["retry_after_s"] != 2.0 || limit["free_at"] == nil {
		t.Errorf("%v %v", rec.Header(), m)
	}
	// The end of a sandbox is unknown.
	hit.Limit, hit.Wait, hit.FreeAt = "sandboxes", 0, time.Time{}
	rec = send(h, "GET", "/api/threads/t1", "")
	limit, _ = wantProblem(t, rec, 429, "quota_exceeded")["limit"].(map[string]any)
	if rec.Header().Get("Retry-After") != "10" || limit["retry_after_s"] != nil || limit["free_at"] != nil {
		t.Errorf("%v %v", rec.Header(), limit)
	}
	// Waiting does not delete files.
	hit.Limit = "disk_mib"
	if rec = send(h, "GET", "/api/threads/t1", ""); rec.Code != 413 || rec.Header().Get("Retry-After") != "" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
	if m := wantProblem(t, send(h, "POST", "/mcp", "{}", "Skerry-Thread: t1"), 413, "quota_exceeded"); m["limit"] == nil {
		t.Errorf("%v", m)
	}
}

// TestRequestsAreCounted: each request counts once; a request that starts an exec counts with the exec's own
// limits.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t), &limiting{}
	h := handler(t, w, func(o *Options) { o.Limits = l })
	for _, c := range []struct {
		method, url, body string
		want              []string
	}{
		{"POST", "/api/threads/t1/exec", `{"command":"true"}`, []string{"defer", "settle"}},
		{"POST", "/api/threads/t1/exec", `{"nonsense":1}`, []string{"defer", "settle"}},
		{"POST", "/api/threads/t1/execute_code", `{"code":"1"}`, []string{"defer", "settle"}},
		{"GET", "/api/threads/t1", "", []string{"request"}},
		{"GET", "/healthz", "", nil},
	} {
		l.asked = nil
		if send(h, c.method, c.url, c.body); !slices.Equal(l.asked, c.want) {
			t.Errorf("%s %s: %v", c.method, c.url, l.asked)
		}
	}
	l.asked = nil
	send(h, "GET", "/api/threads", "", "Authorization: Basic wrong")
	if l.asked != nil {
		t.Errorf("somebody unknown is asked about: %v", l.asked)
	}
}

func TestUsageRoute(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t), &limiting{}
	h := handler(t, w, func(o *Options) { o.Limits = l })
	m := decodeBody(t, send(h, "GET", "/api/usage?from=2026-01-01&to=2026-01-31&by=user", ""))
	if m["by"] != "user" || len(m["items"].([]any)) != 1 || !l.query.From.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) || l.query.To.Day() != 31 {
		t.Errorf("%v %+v", m, l.query)
	}
	wantProblem(t, send(h, "GET", "/api/usage?from=yesterday", ""), 400, "invalid")
	wantProblem(t, send(h, "GET", "/api/usage?by=week", ""), 400, "invalid")
	wantProblem(t, send(handler(t, w), "GET", "/api/usage", ""), 501, "not_supported")
}

// TestCountsOfRoutes: what of a request counts is declared with its route. Each join of a terminal counts, too: it is
// recorded, and a client could join again and again.
func TestCountsOfRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.handler(); err != nil {
		t.Fatal(err)
	}
	others := map[string]route.Counts{
		"POST /api/threads/:thread/exec": route.WithExec, "POST /api/threads/:thread/execute_code": route.WithExec,
		"POST /api/threads/:thread/skills/:skill/run": route.WithExec,
	}
	for name, r := range s.table.Rules() {
		if r.Counts != others[name] {
			t.Errorf("%s counts %v, want %v", name, r.Counts, others[name])
		}
	}
}
