package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// policyRoutes are the routes of the policy.
type policyRoutes struct {
	policy rules // nil: there are none
}

// Scopes of rules.
const (
	scopeServer = "server"
	scopeTenant = "tenant"
)

// policyRules is the state of one file of rules.
type policyRules struct {
	Scope    string     `json:"scope" enum:"server,tenant"`
	Source   string     `json:"source" enum:"built-in,file,none"`
	Text     string     `json:"text" doc:"The rules that count, as YAML; see docs/policy.md"`
	Digest   string     `json:"digest" doc:"Of the text; part of each decision"`
	LoadedAt *time.Time `json:"loaded_at,omitempty"`
	Problem  string     `json:"problem,omitempty" doc:"Why what stands in the file does not count: the rules from before do"`
}

func rulesOf(scope string, s policy.Status) policyRules {
	r := policyRules{Scope: scope, Source: s.Source, Text: s.Text, Digest: s.Digest}
	if !s.LoadedAt.IsZero() {
		at := s.LoadedAt.UTC()
		r.LoadedAt = &at
	}
	if s.Problem != nil {
		r.Problem = s.Problem.Error()
	}
	return r
}

// PolicyScope chooses whose rules are meant.
type PolicyScope struct {
	Scope string `query:"scope" enum:"server,tenant" doc:"server: those of all tenants, for operators, who get them when this is absent; tenant: the tenant's own, which can only narrow them"`
}

// tenant returns the tenant whose own rules are meant, "" for the server's.
func (p PolicyScope) tenant(c sandbox.Caller) (scope, tenant string, err error) {
	switch {
	case p.Scope == scopeTenant || p.Scope == "" && !c.Operator:
		return scopeTenant, c.Tenant, nil
	case !c.Operator:
		return "", "", sandbox.Errorf(sandbox.Forbidden, "the server's rules are those of all tenants: they take an administrator of the operators' tenant (operator_tenant); scope=tenant are your own")
	}
	return scopeServer, "", nil
}

func (s policyRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/policy", "getPolicy", route.TagAdmin, route.Admins, "The rules that count"), s.getPolicy)
	route.Register(api, route.On(http.MethodPut, "/api/policy", "putPolicy", route.TagAdmin, route.Admins, "Replace the rules in one step; wrong ones are refused, and a tenant's empty text takes them away"), s.putPolicy)
	route.Register(api, route.On(http.MethodPost, "/api/policy/test", "testPolicy", route.TagAdmin, route.Admins, "What the rules, or others, say of a call, made up or of the audit log"), s.testPolicy)
	route.Register(api, route.On(http.MethodPost, "/api/policy/replay", "replayPolicy", route.TagAdmin, route.Admins, "What other rules would have said of the calls of the last week, or of another time"), s.replayPolicy)
}

var errNoPolicy = sandbox.Errorf(sandbox.NotSupported, "this server has no rules")

// scoped says who asks, and whose rules are meant.
func (s policyRoutes) scoped(ctx context.Context, p PolicyScope) (c sandbox.Caller, scope, tenant string, err error) {
	if s.policy == nil {
		return c, "", "", errNoPolicy
	}
	c = exchange.CallerOf(ctx)
	scope, tenant, err = p.tenant(c)
	return c, scope, tenant, err
}

func (s policyRoutes) getPolicy(ctx context.Context, in *PolicyScope) (*route.Body[policyRules], error) {
	_, scope, tenant, err := s.scoped(ctx, *in)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(rulesOf(scope, s.policy.Status(tenant))), nil
}

func (s policyRoutes) putPolicy(ctx context.Context, in *struct {
	PolicyScope
	Body struct {
		Text   string `json:"text" maxLength:"262144" doc:"A whole file of rules, as YAML"`
		Digest string `json:"digest,omitempty" maxLength:"64" doc:"Of the rules that are to be replaced: 409 when they are others by now"`
	}
},
) (*route.Body[policyRules], error) {
	c, scope, tenant, err := s.scoped(ctx, in.PolicyScope)
	if err != nil {
		return nil, err
	}
	status, err := s.policy.PutPolicy(ctx, c, tenant, in.Body.Text, in.Body.Digest)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(rulesOf(scope, status)), nil
}

func (s policyRoutes) testPolicy(ctx context.Context, in *struct {
	PolicyScope
	Body struct {
		Text   string         `json:"text,omitempty" maxLength:"262144" doc:"Rules to try in place of those of the scope; those that count when absent"`
		Call   *policy.Sample `json:"call,omitempty" doc:"A call that is made up; its tenant is the caller's"`
		Record string         `json:"record,omitempty" maxLength:"64" doc:"Id of an audit record of the tenant: a tool call, exec, code or script; its arguments are tried as they were kept, which is redacted"`
	}
},
) (*route.Body[policy.Trial], error) {
	c, _, tenant, err := s.scoped(ctx, in.PolicyScope)
	if err != nil {
		return nil, err
	}
	if (in.Body.Call == nil) == (in.Body.Record == "") {
		return nil, sandbox.InvalidField("body", "has to have call or record, not both and not neither")
	}
	trial, err := s.policy.TryPolicy(ctx, c, tenant, in.Body.Text, in.Body.Call, in.Body.Record)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(trial), nil
}

func (s policyRoutes) replayPolicy(ctx context.Context, in *struct {
	PolicyScope
	Body struct {
		Text  string    `json:"text,omitempty" maxLength:"262144" doc:"Rules to try in place of those of the scope; those that count when absent"`
		Since time.Time `json:"since,omitzero" doc:"RFC 3339; a week before until when absent"`
		Until time.Time `json:"until,omitzero" doc:"RFC 3339; now when absent"`
		User  string    `json:"user,omitempty" maxLength:"128" doc:"Only calls of this user"`
	}
},
) (*route.Body[policy.PastReport], error) {
	c, _, tenant, err := s.scoped(ctx, in.PolicyScope)
	if err != nil {
		return nil, err
	}
	report, err := s.policy.Past(ctx, c, tenant, in.Body.Text, policy.PastQuery{Since: in.Body.Since, Until: in.Body.Until, User: in.Body.User})
	if err != nil {
		return nil, err
	}
	return route.BodyOf(report), nil
}
