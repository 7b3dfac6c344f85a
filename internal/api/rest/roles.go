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

// rule is what a route declares beside its handler: who may call it, which server answers, and how its limits are
// counted. A route without a rule does not register. What a caller sees of the things behind a route is another
// question: the use cases answer it, by the caller's tenant and user.
type rule struct {
	roles    []sandbox.Role
	operator bool // only an administrator of the operators' tenant
	server   Server
	// deferred: the use case counts the request together with the exec that it starts, in one round trip.
	deferred bool
	// endless: the answer goes on until the client or this server ends it.
	endless bool
}

// at returns the rule with the server that answers.
func (r rule) at(s Server) rule {
	r.server = s
	return r
}

// withExec returns the rule of a route that starts an exec.
func (r rule) withExec() rule {
	r.server, r.deferred = Holder, true
	return r
}

// streaming returns the rule of a route whose answer has no end of its own.
func (r rule) streaming() rule {
	r.endless = true
	return r
}

// The rules there are.
var (
	// anyone needs no credential at all.
	anyone = rule{}
	// agents: what a user does with its threads, and what it sees of its skills and plugins.
	agents = rule{roles: []sandbox.Role{sandbox.RoleAgent, sandbox.RoleDeveloper, sandbox.RoleAdmin}}
	// developers: changes of what a user's agents can do, and decisions about what they do.
	developers = rule{roles: []sandbox.Role{sandbox.RoleDeveloper, sandbox.RoleAdmin}}
	// admins: administration of a tenant.
	admins = rule{roles: []sandbox.Role{sandbox.RoleAdmin}}
	// auditors: the audit log as a whole.
	auditors = rule{roles: []sandbox.Role{sandbox.RoleAdmin, sandbox.RoleAuditor}}
	// auditReaders: the audit log, of which agents and developers see their own records.
	auditReaders = rule{roles: sandbox.Roles()}
	// operators: what all tenants share.
	operators = rule{roles: []sandbox.Role{sandbox.RoleAdmin}, operator: true}
)

// rolesExtension is where the document says who may call a route.
const (
	rolesExtension    = "x-skerry-roles"
	operatorExtension = "x-skerry-operator"
	ruleKey           = "rule"
)

// ruled puts a rule onto the description of a route.
func (r rule) ruled(op huma.Operation) huma.Operation {
	op.Metadata = map[string]any{ruleKey: r}
	op.Extensions = map[string]any{rolesExtension: r.names()}
	if r.operator {
		op.Extensions[operatorExtension] = true
	}
	if len(r.roles) > 0 {
		op.Security = []map[string][]string{{"bearer": {}}, {"apiKey": {}}}
	}
	return op
}

func (r rule) names() []string {
	names := make([]string, len(r.roles))
	for i, role := range r.roles {
		names[i] = string(role)
	}
	return names
}

// check says why a caller may not call a route.
func (r rule) check(c sandbox.Caller) error {
	switch {
	case !slices.Contains(r.roles, c.Role):
		return sandbox.Errorf(sandbox.Forbidden, "the role %s may not do this: it takes %s", c.Role, strings.Join(r.names(), " or "))
	case r.operator && !c.Operator:
		return sandbox.Errorf(sandbox.Forbidden, "all tenants share this: it takes an administrator of the operators' tenant (operator_tenant)")
	}
	return nil
}

// rule notes the rule of a route. path is as in the document.
func (s *server) rule(method, path string, r rule) {
	if s.rules == nil {
		s.rules = map[string]rule{}
	}
	s.rules[method+" "+ginPath(path)] = r
}

// checkRules reports a route without a rule, or about a thread without the server that answers it.
func (s *server) checkRules() error {
	for _, route := range s.routes {
		r, ok := s.rules[route.Method+" "+route.Path]
		switch {
		case !ok:
			return fmt.Errorf("rest: %s %s: no rule says who may call it", route.Method, route.Path)
		case r.server == AnyServer && (strings.HasPrefix(route.Path, "/api/threads/:thread") || strings.HasPrefix(route.Path, mcpPath)):
			return fmt.Errorf("rest: %s %s: its rule names no server that answers", route.Method, route.Path)
		}
	}
	return nil
}

// ginPath writes /a/{b} as gin does: /a/:b.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// ruleOf is the rule that an operation was given by on. A route without one is a mistake in this package.
func ruleOf(op huma.Operation) rule {
	r, ok := op.Metadata[ruleKey].(rule)
	if !ok {
		panic(fmt.Sprintf("rest: %s %s has no rule", op.Method, op.Path))
	}
	return r
}

// authorize refuses what the caller's role, or the threads of its credential, do not allow. It comes before
// anything is looked up, so that its answer says nothing about what there is.
func (s *server) authorize(c *gin.Context) {
	caller := callerOf(c.Request.Context())
	r, ok := s.rules[c.Request.Method+" "+c.FullPath()]
	err := sandbox.Errorf(sandbox.Forbidden, "no role may call this route")
	if ok {
		exchangeOf(c.Request.Context()).rule = r
		err = r.check(caller)
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
