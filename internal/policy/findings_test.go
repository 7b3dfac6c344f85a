package policy

import (
	"context"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// A rule can go by what looks poisoned in a tool's description.
func TestFindings(t *testing.T) {
	f := rules(t, "default: allow\nrules:\n- id: poisoned\n  effect: deny\n  when: '\"hide-from-user\" in findings'")
	for want, list := range map[Effect][]sandbox.Finding{
		Allow: {{Rule: "long-description"}},
		Deny:  {{Rule: "long-description"}, {Rule: "hide-from-user"}, {Rule: "hide-from-user"}},
	} {
		r := Sample{Server: "s", Tool: "x"}.Request()
		r.Findings = list
		if d := (&Set{Global: f}).Decide(context.Background(), r); d.Effect() != want {
			t.Errorf("%v: %+v", list, d.Why)
		}
	}
}
