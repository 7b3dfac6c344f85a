package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// access is the rule of a route: who may call it. Each route names one where it is registered, and one
// that names none does not register. What a caller sees of the things behind a route is another question:
// the use cases answer it, by the caller's tenant and user.
type access struct {
	roles    []sandbox.Role
	operator bool // only an administrator of the operators' tenant
}

// The rules there are.
var (
	// anyone needs no credential at all.
	anyone = access{}
	// agents: what a user does with its threads, and what it sees of its skills and plugins.
	agents = access{roles: []sandbox.Role{sandbox.RoleAgent, sandbox.RoleDeveloper, sandbox.RoleAdmin}}
	// developers: changes of what a user's agents can do, and decisions about what they do.
	developers = access{roles: []sandbox.Role{sandbox.RoleDeveloper, sandbox.RoleAdmin}}
	// admins: administration of a tenant.
	admins = access{roles: []sandbox.Role{sandbox.RoleAdmin}}
	// auditors: the audit log as a whole.
	auditors = access{roles: []sandbox.Role{sandbox.RoleAdmin, sandbox.RoleAuditor}}
	// auditReaders: the audit log, of which agents and developers see their own records.
	auditReaders = access{roles: sandbox.Roles()}
	// operators: what all tenants share.
	operators = access{roles: []sandbox.Role{sandbox.RoleAdmin}, operator: true}
)

// rolesExtension is where the document says who may call a route.
const (
	rolesExtension    = "x-skerry-roles"
	operatorExtension = "x-skerry-operator"
	ruleKey           = "access"
)

// ruled puts a rule onto the description of a route.
func (a access) ruled(op huma.Operation) huma.Operation {
	op.Metadata = map[string]any{ruleKey: a}
	op.Extensions = map[string]any{rolesExtension: a.names()}
	if a.operator {
		op.Extensions[operatorExtension] = true
	}
	if len(a.roles) > 0 {
		op.Security = []map[string][]string{{"bearer": {}}, {"apiKey": {}}}
	}
	return op
}

func (a access) names() []string {
	names := make([]string, len(a.roles))
	for i, r := range a.roles {
		names[i] = string(r)
	}
	return names
}

// check says why a caller may not call a route.
func (a access) check(c sandbox.Caller) error {
	switch {
	case !slices.Contains(a.roles, c.Role):
		return sandbox.Errorf(sandbox.Forbidden, "the role %s may not do this: it takes %s", c.Role, strings.Join(a.names(), " or "))
	case a.operator && !c.Operator:
		return sandbox.Errorf(sandbox.Forbidden, "all tenants share this: it takes an administrator of the operators' tenant (operator_tenant)")
	}
	return nil
}

// rule notes who may call a route. path is as in the document.
func (s *server) rule(method, path string, a access) {
	if s.rules == nil {
		s.rules = map[string]access{}
	}
	s.rules[method+" "+ginPath(path)] = a
}

// ginPath writes /a/{b} as gin does: /a/:b.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// ruleOf is the rule that an operation was given by on. A route without one is a mistake in this package.
func ruleOf(op huma.Operation) access {
	a, ok := op.Metadata[ruleKey].(access)
	if !ok {
		panic(fmt.Sprintf("httpserver: %s %s says not who may call it", op.Method, op.Path))
	}
	return a
}

// authorize refuses what the caller's role, or the threads of its credential, do not allow. It comes before
// anything is looked up, so that its answer says nothing about what there is.
func (s *server) authorize(c *gin.Context) {
	caller := callerOf(c.Request.Context())
	a, ok := s.rules[c.Request.Method+" "+c.FullPath()]
	err := sandbox.Errorf(sandbox.Forbidden, "no role may call this route")
	if ok {
		err = a.check(caller)
	}
	if err == nil {
		err = threadAllowed(c, caller)
	}
	if err == nil {
		return
	}
	p := s.problem(c.Request.Context(), err)
	s.refused(c.Request.Context(), caller, p.Detail, false)
	writeProblem(c.Writer, p)
	c.Abort()
}

// threadAllowed holds a credential for some threads to the routes that name one of them.
func threadAllowed(c *gin.Context, caller sandbox.Caller) error {
	if caller.Threads == nil {
		return nil
	}
	thread := c.Param("thread")
	if thread == "" && c.FullPath() == mcpPath {
		thread = c.GetHeader("Skerry-Thread")
	}
	if thread == "" || !caller.MayUse(thread) {
		return sandbox.Errorf(sandbox.Forbidden, "this credential is for the threads %s only", strings.Join(caller.Threads, ", "))
	}
	return nil
}

// refused tells the recorder that a credential did not do for a request.
func (s *server) refused(ctx context.Context, c sandbox.Caller, reason string, unseen bool) {
	if s.o.AuthRefused != nil {
		s.o.AuthRefused(ctx, c, reason, unseen)
	}
}
