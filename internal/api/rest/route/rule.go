package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Rule is what a route declares beside its handler: who may call it, which server answers, which bodies it
// takes, and how its limits are counted. A route without a rule does not register. What a caller sees of
// the things behind a route is another question: the use cases answer it, by the caller's tenant and user.
type Rule struct {
	Roles    []sandbox.Role
	Operator bool // only an administrator of the operators' tenant
	Server   Server
	Counts   Counts
	// Threadless: a credential for some threads does for it, though it names none.
	Threadless bool
	// Endless: the answer goes on until the client or this server ends it.
	Endless bool
	// Follows: the answer goes on as long as something that was started otherwise. Of these and endless ones a
	// caller has a bounded number at once.
	Follows bool
	// Bodies are the media types that the route takes; nil: JSON.
	Bodies []string
	gone   *Deprecation // nil: it stays
}

// At returns the rule with the server that answers.
func (r Rule) At(s Server) Rule {
	r.Server = s
	return r
}

// WithExec returns the rule of a route that starts an exec.
func (r Rule) WithExec() Rule {
	r.Server, r.Counts = Holder, WithExec
	return r
}

// Streaming returns the rule of a route whose answer has no end of its own.
func (r Rule) Streaming() Rule {
	r.Endless = true
	return r
}

// Following returns the rule of a route whose answer follows what was started otherwise.
func (r Rule) Following() Rule {
	r.Follows = true
	return r
}

// Taking returns the rule of a route that takes bodies of these media types.
func (r Rule) Taking(types ...string) Rule {
	r.Bodies = types
	return r
}

// Counts says what of a request counts for the limits of its caller.
type Counts int

const (
	// OneRequest counts when it comes.
	OneRequest Counts = iota
	// WithExec: the use case counts the request together with the exec that it starts, in one round trip.
	WithExec
)

// AnyType stands for all media types. A browser asks before it sends a PUT to another site, so only a PUT
// takes it.
const AnyType = "*/*"

// The rules there are.
var (
	// Anyone needs no credential at all.
	Anyone = Rule{}
	// Agents: what a user does with its threads, and what it sees of its skills and plugins.
	Agents = Rule{Roles: []sandbox.Role{sandbox.RoleAgent, sandbox.RoleDeveloper, sandbox.RoleAdmin}}
	// Developers: changes of what a user's agents can do, and decisions about what they do.
	Developers = Rule{Roles: []sandbox.Role{sandbox.RoleDeveloper, sandbox.RoleAdmin}}
	// Admins: administration of a tenant.
	Admins = Rule{Roles: []sandbox.Role{sandbox.RoleAdmin}}
	// Auditors: the audit log as a whole.
	Auditors = Rule{Roles: []sandbox.Role{sandbox.RoleAdmin, sandbox.RoleAuditor}}
	// AuditReaders: the audit log, of which agents and developers see their own records.
	AuditReaders = Rule{Roles: []sandbox.Role{sandbox.RoleAgent, sandbox.RoleDeveloper, sandbox.RoleAdmin, sandbox.RoleAuditor}}
	// Everyone: what concerns each caller, whatever its credential is good for.
	Everyone = Rule{Roles: []sandbox.Role{sandbox.RoleAgent, sandbox.RoleDeveloper, sandbox.RoleAdmin, sandbox.RoleAuditor}, Threadless: true}
	// Operators: what all tenants share.
	Operators = Rule{Roles: []sandbox.Role{sandbox.RoleAdmin}, Operator: true}
)

// RolesExtension is where the document says who may call a route.
const (
	RolesExtension    = "x-skerry-roles"
	OperatorExtension = "x-skerry-operator"
	ruleKey           = "rule"
)

// ruled puts a rule onto the description of a route.
func (r Rule) ruled(op huma.Operation) huma.Operation {
	if r.gone != nil {
		r.gone.id = op.OperationID
	}
	op.Metadata = map[string]any{ruleKey: r}
	op.Extensions = map[string]any{RolesExtension: r.names()}
	if r.Operator {
		op.Extensions[OperatorExtension] = true
	}
	if len(r.Roles) > 0 {
		op.Security = []map[string][]string{{"bearer": {}}, {"apiKey": {}}}
	}
	return op
}

func (r Rule) names() []string {
	names := make([]string, len(r.Roles))
	for i, role := range r.Roles {
		names[i] = string(role)
	}
	return names
}

// Check says why a caller may not call a route.
func (r Rule) Check(c sandbox.Caller) error {
	switch {
	case !slices.Contains(r.Roles, c.Role):
		return sandbox.Errorf(sandbox.Forbidden, "the role %s may not do this: it takes %s", c.Role, strings.Join(r.names(), " or "))
	case r.Operator && !c.Operator:
		return sandbox.Errorf(sandbox.Forbidden, "all tenants share this: it takes an administrator of the operators' tenant (operator_tenant)")
	}
	return nil
}

// RuleOf returns the rule that an operation was given by On. A route without one is a mistake in this
// program.
func RuleOf(op huma.Operation) Rule {
	r, ok := op.Metadata[ruleKey].(Rule)
	if !ok {
		panic(fmt.Sprintf("rest: %s %s has no rule", op.Method, op.Path))
	}
	return r
}
