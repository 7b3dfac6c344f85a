package policy

import (
	"context"
	"testing"
)

// says is a Decider that always says the same.
type says struct {
	AllowAll
	effect Effect
}

func (s says) Decide(context.Context, Request) Decision { return Decision{Why: Why{Effect: s.effect}} }

func TestUntrustedScriptsWantAnApproval(t *testing.T) {
	script := Request{Kind: KindSkillRun, Untrusted: true}
	for _, c := range []struct {
		rules Effect
		r     Request
		want  Effect
	}{
		{Allow, script, RequireApproval},
		{Deny, script, Deny},
		{RequireApproval, script, RequireApproval},
		{Allow, Request{Kind: KindSkillRun}, Allow},
		{Allow, Request{Kind: KindExec, Untrusted: true}, Allow},
	} {
		d := Untrusted{says{effect: c.rules}}.Decide(t.Context(), c.r)
		if d.Effect() != c.want || c.rules == Allow && c.want == RequireApproval && d.Why.Rules[0].Rule != "trust_installs" {
			t.Errorf("%s, %+v: %+v", c.rules, c.r, d)
		}
	}
}
