package rest

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// roleKeys answers for keys that are named as what they are: "agent", "operator", "ci" (an agent's, for the
// threads ci-* only).
type roleKeys struct{ *world }

func (roleKeys) Authenticate(_ context.Context, cred auth.Credential) (sandbox.Caller, error) {
	secret := cred.Secret
	c := sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, Actor: "ann", Role: sandbox.Role(secret), KeyID: "k", Method: sandbox.ByKey}
	switch secret {
	case "operator":
		c.Tenant, c.Role = "ops", sandbox.RoleAdmin
	case "ci":
		c.Role, c.Threads = sandbox.RoleAdmin, []string{"ci-*"}
	}
	return c, nil
}

var pathParameter = regexp.MustCompile(`:[a-z]+`)

// TestRoleMatrix calls every route that gin knows with every role: what its rule refuses is a 403 that comes
// before anything else, what it allows is not.
func TestRoleMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.streamsEnd = true
	var refused int
	o, _ := w.options(t)
	o.Keys, o.Anonymous, o.OperatorTenant = roleKeys{w}, nil, "ops"
	o.AuthRefused = func(_ context.Context, c sandbox.Caller, _ string, _ bool) {
		if c.Tenant != "" {
			refused++
		}
	}
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	calls, no := 0, 0
	for _, known := range s.routes {
		key := known.Method + " " + known.Path
		rule, ruled := s.table.Rules()[key]
		if !ruled {
			t.Errorf("%s: no rule says who may call it", key)
		}
		url := pathParameter.ReplaceAllString(known.Path, "t1")
		for _, who := range []string{"", "agent", "developer", "admin", "auditor", "operator", "ci", "nobody"} {
			calls++
			want := wantRefused(rule, known.Path, who)
			rec := send(h, known.Method, url, "", "X-API-Key: "+who)
			got := rec.Code == http.StatusForbidden && (strings.Contains(rec.Body.String(), "the role ") || strings.Contains(rec.Body.String(), "this credential is for") || strings.Contains(rec.Body.String(), "operators' tenant"))
			if who == "" {
				got = rec.Code == http.StatusUnauthorized
			}
			if want {
				no++
			}
			if got != want {
				t.Errorf("%s as %q: %d %s, want it refused: %v", key, who, rec.Code, rec.Body, want)
			}
		}
	}
	if calls < 600 || no < 100 || refused == 0 {
		t.Errorf("%d calls, %d refused: the matrix is not whole", calls, no)
	}
	t.Logf("%d routes, %d calls, %d refused", len(s.routes), calls, no)
}

func wantRefused(rule route.Rule, path, who string) bool {
	if len(rule.Roles) == 0 {
		return false
	}
	switch who {
	case "":
		return true
	case "ci": // "t1" is none of its threads, and the other routes are no threads'
		return !rule.Threadless
	case "operator":
		return rule.Check(sandbox.Caller{Role: sandbox.RoleAdmin, Operator: true}) != nil
	}
	return rule.Check(sandbox.Caller{Role: sandbox.Role(who)}) != nil
}

// TestThreadScope: a credential for some threads is valid for these, by path and by header. It is not valid
// for a route that names no thread, nor for a thread that only a header names.
func TestThreadScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w, func(o *Options) { o.Keys, o.Anonymous = roleKeys{w}, nil })
	for url, want := range map[string]bool{
		"GET /api/threads/ci-1/execs": true, "GET /api/threads/ci-/execs": true, "GET /api/threads/other/execs": false,
		"GET /api/threads": false, "GET /api/skills": false, "GET /api/keys": false, "POST /mcp/ci-1": true, "POST /mcp/other": false, "POST /mcp": true,
	} {
		method, path, _ := strings.Cut(url, " ")
		rec := send(h, method, path, "", "X-API-Key: ci", "Skerry-Thread: ci-1")
		if (rec.Code != http.StatusForbidden) != want {
			t.Errorf("%s: %d %s", url, rec.Code, rec.Body)
		}
	}
	if rec := send(h, "POST", "/mcp", "", "X-API-Key: ci", "Skerry-Thread: other"); rec.Code != http.StatusForbidden {
		t.Errorf("another thread by header: %d", rec.Code)
	}
}

// TestNoRuleNoRoute: a route without a role does not register, and a route that gin has and no rule
// names answers no caller.
func TestNoRuleNoRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.handler(); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "has no rule") {
				t.Errorf("a route without a rule was registered: %v", v)
			}
		}()
		route.Register(route.NewAPI(s.table, nil, nil), huma.Operation{Method: "GET", Path: "/api/new", OperationID: "new"}, func(context.Context, *struct{}) (*struct{}, error) { return nil, nil })
	}()
	engine, checks := gin.New(), s.checks()
	engine.Group("", checks.access.Authenticate, checks.authorize.Authorize).GET("/new", func(c *gin.Context) { c.String(http.StatusOK, "open") })
	if rec := send(s.exchanges(engine), "GET", "/new", ""); rec.Code != http.StatusForbidden {
		t.Errorf("a route without a rule answers %d", rec.Code)
	}
}
