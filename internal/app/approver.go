package app

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/approval"
	"github.com/skerry-sandbox/skerry/internal/execution/run"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/threadevents"
)

// approver asks people for the policy.
type approver struct{ *approval.Approvals }

// Approve waits until a person has decided.
func (a approver) Approve(ctx context.Context, r policy.ApprovalRequest) error {
	c := sandbox.ApprovalCall{
		Thread: r.Request.Thread, Caller: r.Request.Caller, Exec: r.Request.Exec, Server: r.Request.Server, Tool: r.Request.Printed,
		ArgsHash: r.ArgsHash, Bytes: int64(len(r.Request.Arguments)), Shown: r.Shown, Record: r.Attempt,
	}
	if r.Request.Kind != policy.KindToolCall && r.Request.Kind != policy.KindUpstream {
		c.Tool = string(r.Request.Kind)
	}
	if r.Request.Kind == policy.KindSkillRun { // a call of a script is approved as the same call of an agent is
		c.Skill, c.SkillDigest = r.Request.Skill, r.Request.SkillDigest
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

// openApprovals begins to take decisions. holds hold the deadlines of execs whose calls wait for them; feeds tell those who
// follow threads.
func (b *builder) openApprovals(f *foundation, holds *run.Holds, feeds *threadevents.Feeds) *approval.Approvals {
	o := approval.Options{
		Store: f.store, Grants: f.store, Audit: f.audit, Replica: f.data.peers.ID(), Alive: f.data.peers.Alive, Timeout: b.cfg.Approvals.Timeout, Log: b.log,
		Waits: func(ctx context.Context, a sandbox.Approval) func(sandbox.Approval) {
			decided, told := holds.ApprovalWaits(ctx, a), feeds.ApprovalWaits(a)
			return func(a sandbox.Approval) { decided(a); told(a) }
		},
	}
	if c := b.cfg.Approvals; c.WebhookURL != "" {
		o.Webhook = &approval.Webhook{URL: c.WebhookURL, Secret: []byte(c.WebhookSecret)}
	}
	a := approval.New(o)
	b.onClose(func() error { a.Close(); return nil })
	return a
}
