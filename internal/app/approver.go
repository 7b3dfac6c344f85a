package app

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/approval"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// approver asks people for the policy.
type approver struct{ *approval.Approvals }

// Approve waits until a person has decided.
func (a approver) Approve(ctx context.Context, r policy.ApprovalRequest) error {
	c := sandbox.ApprovalCall{
		Thread: r.Request.Thread, Caller: r.Request.Caller, Exec: r.Request.Exec, Server: r.Request.Server, Tool: r.Request.Printed, Skill: r.Request.Skill,
		ArgsHash: r.ArgsHash, Bytes: int64(len(r.Request.Arguments)), Shown: r.Shown, Record: r.Attempt,
	}
	if r.Request.Kind != policy.KindToolCall && r.Request.Kind != policy.KindUpstream {
		c.Tool = string(r.Request.Kind)
	}
	if r.Request.Annotations.Said {
		hints, err := json.Marshal(r.Request.Annotations)
		if err != nil {
			return err
		}
		c.Annotations = hints
	}
	for _, rule := range r.Decision.Why.Rules {
		if rule.Effect == policy.RequireApproval && c.Why == "" {
			c.Why = strings.TrimSuffix("rule "+rule.Rule+": "+rule.Text, ": ")
		}
	}
	return a.Ask(ctx, c)
}

// openApprovals begins to take decisions. What waits for them comes in by p.approvals.
func (p *App) openApprovals(context.Context) error {
	o := approval.Options{
		Store: p.store, Grants: p.store, Audit: p.audit, Replica: p.peers.ID(), Alive: p.peers.Alive, Timeout: p.cfg.Approvals.Timeout, Log: p.log,
		Waits: func(ctx context.Context, a sandbox.Approval) func(sandbox.Approval) {
			return p.orch.Runs.ApprovalWaits(ctx, a)
		},
	}
	if c := p.cfg.Approvals; c.WebhookURL != "" {
		o.Webhook = &approval.Webhook{URL: c.WebhookURL, Secret: []byte(c.WebhookSecret)}
	}
	p.approvals = approval.New(o)
	p.onClose(func() error { p.approvals.Close(); return nil })
	return nil
}
