package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/policy/replay"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// PolicyFile is where the server's rules are.
func PolicyFile(cfg config.Config) string {
	return cmp.Or(cfg.Policy, filepath.Join(cfg.Data, "policy", "policy.yaml"))
}

// openPolicy reads the rules and follows their files; each change is recorded, and reaches running sandboxes.
func (b *builder) openPolicy(f *foundation, tools *hub.Hub) (*policy.Engine, error) {
	e, err := policy.Open(policy.EngineOptions{
		File: PolicyFile(b.cfg), Needed: b.cfg.Policy != "", Tenants: filepath.Join(b.cfg.Data, "policy", "tenants"), Log: b.log,
		Changed: func(tenant string, s policy.Status) {
			tools.Announce()
			rec := audit.Record{Tenant: cmp.Or(tenant, b.cfg.OperatorTenant), Action: audit.ActionConfigReload, Phase: audit.PhaseResult, Subject: "policy", Outcome: "ok", Detail: s.Source + " " + s.Digest}
			if s.Problem != nil {
				rec.Outcome, rec.Detail = "error", s.Problem.Error()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if _, err := f.audit.Append(ctx, rec); err != nil {
				b.log.Error("a change of the policy is not recorded", "error", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	b.onClose(e.Close)
	return e, nil
}

// rateCounter counts what rules limit in the state store, for all servers together.
type rateCounter struct{ store *store.Store }

// Take counts a call, in one round trip.
func (c rateCounter) Take(ctx context.Context, rates []policy.Rate) (*policy.Rate, time.Duration, error) {
	checks := make([]store.Check, 0, len(rates))
	for _, r := range rates {
		scope := sha256.Sum256([]byte(r.Key)) // names of any length and kind are in it
		checks = append(checks, store.Check{
			Kind: store.CheckRate, Limit: "policy", Scope: hex.EncodeToString(scope[:]), Max: int64(r.Calls), Every: r.Per / time.Duration(r.Calls),
		})
	}
	refused, err := c.store.AdmitShared(ctx, checks)
	if err != nil || refused == nil {
		return nil, 0, err
	}
	return &rates[refused.Check], refused.Wait, nil
}

// policyAdmin is the policy with each change by a caller on the record.
type policyAdmin struct {
	*policy.Engine
	*replay.Replay
	access *access
}

// PutPolicy replaces rules.
func (a policyAdmin) PutPolicy(ctx context.Context, c sandbox.Caller, tenant, text, digest string) (policy.Status, error) {
	subject := "server"
	if tenant != "" {
		subject = "tenant " + tenant
	}
	var s policy.Status
	err := a.access.recorded(ctx, c, audit.ActionPolicyChange, subject, func(rec *audit.Record) (err error) {
		if s, err = a.Put(ctx, tenant, text, digest); err == nil {
			rec.Subject += ": " + cmp.Or(s.Digest, s.Source)
		}
		return err
	})
	return s, err
}
