package app

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// ruled is a Decider that knows one set of rules.
type ruled struct{ set policy.Set }

func (d *ruled) Decide(ctx context.Context, r policy.Request) policy.Decision {
	return d.set.Decide(ctx, r)
}
func (*ruled) Requires(sandbox.Thread, sandbox.Tool) []string          { return nil }
func (*ruled) Hides(sandbox.Caller, sandbox.Thread, sandbox.Tool) bool { return false }

// rateGuard is the guard of a server of its own.
func rateGuard(t *testing.T, url, text string) *policy.Guard {
	t.Helper()
	rules, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return policy.New(policy.Options{Hub: struct{ policy.Hub }{}, Decider: &ruled{policy.Set{Global: rules}}, Counter: rateCounter{s}})
}

func permitted(t *testing.T, g *policy.Guard, tenant, user, code string) error {
	t.Helper()
	o := sandbox.Owner{Tenant: tenant, User: user}
	p := g.PlanRun(t.Context(), policy.Request{Kind: policy.KindCode, Caller: sandbox.Caller{Owner: o}, Thread: sandbox.Thread{Owner: o, ID: "t"}, Arguments: []byte(`{"code":"` + code + `"}`)}, nil)
	return g.Permit(t.Context(), p, "")
}

// TestRatesAcrossServers: the servers of one Redis keep to a rule's rate together and use all of it, each key by itself; a refused
// call counts nowhere; without Redis what has a rate is refused, and everything else goes on.
func TestRatesAcrossServers(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
default: allow
rules:
- id: mine
  match: {kind: execute_code}
  when: args.code != "free"
  limit: {calls: 20, per: 24h}
- id: ours
  match: {kind: execute_code}
  when: args.code != "free"
  limit: {calls: 30, per: 24h, by: all}
`
	alone := rateGuard(t, "", text) // embedded state
	for i := range 21 {
		if err := permitted(t, alone, "acme", "ann", "x"); (err == nil) != (i < 20) {
			t.Errorf("call %d of a server alone: %v", i, err)
		}
	}
	for name, start := range map[string]func(testing.TB) *redistest.Server{"redis": redistest.Start, "cluster": redistest.StartCluster} {
		t.Run(name, func(t *testing.T) {
			redis := start(t)
			guards := []*policy.Guard{rateGuard(t, redis.URL(), text), rateGuard(t, redis.URL(), text)}
			storm := func(tenant string) int64 {
				var n atomic.Int64
				var wg sync.WaitGroup
				for _, g := range guards {
					for range 2 {
						wg.Go(func() {
							for range 10 {
								err := permitted(t, g, tenant, "ann", "x")
								if err == nil {
									n.Add(1)
								} else if sandbox.KindOf(err) != sandbox.QuotaExceeded {
									t.Error(err)
								}
							}
						})
					}
				}
				wg.Wait()
				return n.Load()
			}
			if n := storm("acme"); n != 20 {
				t.Errorf("%d calls of 20 went through", n)
			}
			if n := storm("globex"); n != 10 {
				t.Errorf("%d calls of the 10 that are left for all went through", n)
			}
			if err := permitted(t, guards[0], "acme", "ann", "x"); err == nil || !strings.Contains(err.Error(), "the policy allows 20 calls in 24h0m0s (rule mine); the next one in 4") {
				t.Error(err)
			}
			redis.Stop()
			began := time.Now()
			if err := permitted(t, guards[0], "acme", "ann", "x"); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "(rule mine), and they cannot be counted now; try again") {
				t.Error(err)
			}
			t.Logf("refused without Redis within %s", time.Since(began))
			if err := permitted(t, guards[1], "acme", "ann", "free"); err != nil {
				t.Error(err)
			}
			redis.Continue()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				err := permitted(t, guards[1], "acme", "ann", "x")
				if sandbox.KindOf(err) == sandbox.QuotaExceeded {
					break
				}
				if err == nil || time.Now().After(deadline) {
					t.Fatalf("with Redis back: %v", err)
				}
			}
		})
	}
}
