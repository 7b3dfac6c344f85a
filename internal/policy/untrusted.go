package policy

import (
	"context"
)

// Untrusted is a Decider that wants an approval for each script of a skill from an untrusted source. It does
// so also where the rules of Decider say nothing of them: the configuration says who trusts the sources.
type Untrusted struct{ Decider }

// Decide asks the rules first: what they deny stays denied.
func (u Untrusted) Decide(ctx context.Context, r Request) Decision {
	d := u.Decider.Decide(ctx, r)
	if r.Kind != KindSkillRun || !r.Untrusted || d.Effect() != Allow {
		return d
	}
	d.Why.Effect = RequireApproval
	d.Why.Rules = append(d.Why.Rules, Reason{Rule: "trust_installs", Effect: RequireApproval, Text: "the skill comes from a source that is not trusted"})
	return d
}
