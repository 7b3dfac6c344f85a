package policy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of a file of rules.
const (
	MaxFile      = 256 << 10 // bytes
	maxRules     = 500
	maxTests     = 500
	maxPatterns  = 100
	maxText      = 500  // characters of a reason
	maxCondition = 4096 // bytes of an expression
)

// Rules is a file of rules that was read and checked. It does not change.
type Rules struct {
	Text   []byte
	Digest string // of the text: the first 12 hex digits of its sha256

	byDefault    Effect
	rules        []*rule
	capabilities []grant
	tests        []test
}

// rule is one entry of "rules".
type rule struct {
	id      string
	line    int
	effect  Effect // "" only limits or redacts
	match   match
	when    *condition
	unless  *condition
	reason  string
	limit   *limit
	redact  Redaction
	held    []string // its conditions as they are written
	dynamic bool     // whether it holds depends on more than who calls which tool
}

// limit is what "limit" says.
type limit struct {
	calls int
	per   time.Duration
	by    []string
	bytes int64
	time  time.Duration
}

// grant is one entry of "capabilities": the tools that fit need them.
type grant struct {
	match match
	needs []string
}

// restricts says that a rule may only take away, so that in doubt it holds.
func (r *rule) restricts() bool { return r.effect != Allow }

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// verdict is what rules say of a request: all that holds, put together.
type verdict struct {
	Decision
	decided bool // by a rule, not by the default
}

// judge asks all rules. prefix goes before their ids.
func (f *Rules) judge(ctx context.Context, r *Request, facts *facts, prefix string) verdict {
	var v verdict
	for _, x := range f.rules {
		if !x.match.fits(r, x.restricts()) {
			continue
		}
		holds, err := x.holds(ctx, facts)
		if err == nil && !holds {
			continue
		}
		reason := Reason{Rule: prefix + x.id, Effect: x.effect, Text: x.reason, Held: x.held}
		if err != nil {
			reason.Effect, reason.Error, reason.Held = Deny, err.Error(), nil
		}
		v.Why.Rules = append(v.Why.Rules, reason)
		if reason.Effect != "" {
			v.decided = true
		}
		if reason.Effect.strength() > v.Why.Effect.strength() {
			v.Why.Effect = reason.Effect
		}
		if err == nil {
			v.narrow(x, r, prefix)
		}
	}
	if !v.decided {
		v.Why.Effect = f.byDefault
	}
	return v
}

// holds asks the conditions of a rule whose match fits.
func (r *rule) holds(ctx context.Context, facts *facts) (bool, error) {
	if r.when != nil {
		if yes, err := r.when.eval(ctx, facts); err != nil || !yes {
			return false, err
		}
	}
	if r.unless != nil {
		if yes, err := r.unless.eval(ctx, facts); err != nil || yes {
			return false, err
		}
	}
	return true, nil
}

// narrow adds the limits and redactions of a rule: of two limits the narrower one counts.
func (v *verdict) narrow(x *rule, r *Request, prefix string) {
	if l := x.limit; l != nil {
		if l.calls > 0 {
			v.Limits.Rates = append(v.Limits.Rates, Rate{Rule: prefix + x.id, Key: l.key(prefix+x.id, r), Calls: l.calls, Per: l.per})
		}
		v.Limits.Bytes = narrower(v.Limits.Bytes, l.bytes)
		v.Limits.Time = narrower(v.Limits.Time, l.time)
	}
	v.Redact.Args = v.Redact.Args.and(x.redact.Args)
	v.Redact.Result = v.Redact.Result.and(x.redact.Result)
}

// narrower returns the smaller of two limits of which 0 is none.
func narrower[T cmp.Ordered](a, b T) T {
	var none T
	if a == none || b != none && b < a {
		return b
	}
	return a
}

// key is what calls are counted under.
func (l *limit) key(rule string, r *Request) string {
	parts := []string{rule}
	for _, by := range l.by {
		switch by {
		case "tenant":
			parts = append(parts, r.Thread.Tenant)
		case "user":
			parts = append(parts, r.Thread.Tenant, r.Thread.User)
		case "thread":
			parts = append(parts, r.Thread.String())
		case "key":
			parts = append(parts, r.Caller.KeyID)
		case "tool":
			parts = append(parts, r.Server, r.Tool)
		}
	}
	return strings.Join(parts, "\x00")
}

// and adds what others hide. It shares nothing that is changed.
func (h Hidden) and(o Hidden) Hidden {
	if h.empty() {
		return o
	}
	return Hidden{Fields: slices.Concat(h.Fields, o.Fields), Patterns: slices.Concat(h.Patterns, o.Patterns)}
}

// requires are the capabilities that a tool needs by these rules.
func (f *Rules) requires(t sandbox.Tool) []string {
	if len(f.capabilities) == 0 {
		return nil
	}
	r := Request{Kind: KindToolCall, Server: t.Server, Tool: t.Name, Annotations: ReadAnnotations(t.Annotations), Findings: t.Findings}
	var needs []string
	for _, g := range f.capabilities {
		if g.match.fits(&r, true) {
			needs = append(needs, g.needs...)
		}
	}
	return needs
}

// hides reports whether no call of a tool by this caller can be allowed, whatever its arguments and time.
func (f *Rules) hides(r *Request) bool {
	possible := f.byDefault != Deny
	for _, x := range f.rules {
		if !x.match.static(r, x.restricts()) {
			continue
		}
		if x.effect == Deny && !x.dynamic {
			return true
		}
		if x.effect == Allow || x.effect == RequireApproval {
			possible = true
		}
	}
	return !possible
}

// Set is all rules that count: those of the whole server, and each tenant's own, which can only narrow them.
type Set struct {
	Global  *Rules
	Tenants map[string]*Rules
	// Broken are tenants whose rules cannot be read, and were never read: all that they ask for is denied.
	Broken map[string]bool
}

// Decide asks the rules. What the tenant's own rules say is added: the stronger effect, the narrower limits and
// all redactions count.
func (s *Set) Decide(ctx context.Context, r Request) Decision {
	facts := facts{r: &r}
	v := s.Global.judge(ctx, &r, &facts, "")
	v.Why.Policy = s.Global.Digest
	tenant := r.Thread.Tenant
	if s.Broken[tenant] {
		v.Why.Effect, v.Why.Policy = Deny, v.Why.Policy+"+unreadable"
		v.Why.Rules = append(v.Why.Rules, Reason{Rule: "tenant:", Effect: Deny, Text: "the tenant's own rules cannot be read"})
		return v.Decision
	}
	own := s.Tenants[tenant]
	if own == nil {
		return v.Decision
	}
	o := own.judge(ctx, &r, &facts, "tenant:")
	v.Why.Policy += "+" + own.Digest
	v.Why.Rules = append(v.Why.Rules, o.Why.Rules...)
	if o.Why.Effect.strength() > v.Why.Effect.strength() {
		v.Why.Effect = o.Why.Effect
	}
	v.Limits.Rates = append(v.Limits.Rates, o.Limits.Rates...)
	v.Limits.Bytes, v.Limits.Time = narrower(v.Limits.Bytes, o.Limits.Bytes), narrower(v.Limits.Time, o.Limits.Time)
	v.Redact.Args, v.Redact.Result = v.Redact.Args.and(o.Redact.Args), v.Redact.Result.and(o.Redact.Result)
	// The same rule may stand in both files: a tenant's rate is counted for this tenant alone.
	for i := range v.Limits.Rates {
		if strings.HasPrefix(v.Limits.Rates[i].Rule, "tenant:") {
			v.Limits.Rates[i].Key = tenant + "\x00" + v.Limits.Rates[i].Key
		}
	}
	return v.Decision
}

// Requires are the capabilities that a tool needs in a tenant, beside those of its server's configuration.
func (s *Set) Requires(tenant string, t sandbox.Tool) []string {
	needs := s.Global.requires(t)
	if own := s.Tenants[tenant]; own != nil {
		needs = append(needs, own.requires(t)...)
	}
	return needs
}

// Hides reports whether the rules deny a caller every call of a tool.
func (s *Set) Hides(c sandbox.Caller, t sandbox.Thread, tool sandbox.Tool) bool {
	r := Request{Kind: KindToolCall, Caller: c, Thread: t, Server: tool.Server, Tool: tool.Name, Annotations: ReadAnnotations(tool.Annotations), Findings: tool.Findings}
	if s.Broken[t.Tenant] || s.Global.hides(&r) {
		return true
	}
	own := s.Tenants[t.Tenant]
	return own != nil && own.hides(&r)
}

// Problem is one thing that is wrong with a file of rules.
type Problem struct {
	Line  int    `json:"line"`
	Field string `json:"field"`
	Text  string `json:"text"`
}

// Problems is the error of a file of rules. It names every problem.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, 0, len(p))
	for _, x := range p {
		switch {
		case x.Line == 0:
			lines = append(lines, x.Text)
		case x.Field == "":
			lines = append(lines, fmt.Sprintf("line %d: %s", x.Line, x.Text))
		default:
			lines = append(lines, fmt.Sprintf("line %d: %s: %s", x.Line, x.Field, x.Text))
		}
	}
	return strings.Join(lines, "\n")
}

// Tests is how many tests the file has. All of them passed.
func (f *Rules) Tests() int { return len(f.tests) }
