package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestLists: each list of the document takes limit and cursor, and says what is wrong with a limit.
func TestLists(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t))
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(send(h, "GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	lists := 0
	for path, ops := range doc.Paths {
		op, ok := ops["get"]
		if !ok {
			continue
		}
		shape := doc.Components.Schemas[strings.TrimPrefix(op.Responses["200"].Content["application/json"].Schema.Ref, "#/components/schemas/")]
		if shape.Properties["next_cursor"] == nil {
			continue
		}
		lists++
		url := strings.NewReplacer("{thread}", "t1", "{name}", "x").Replace(path)
		for _, limit := range []string{"abc", "0", "-1", "1001", "1.5"} {
			p := wantProblem(t, send(h, "GET", url+"?limit="+limit, ""), http.StatusBadRequest, "invalid")
			if faulty(p) != "limit" || !strings.Contains(p["detail"].(string), "limit") {
				t.Errorf("GET %s?limit=%s: %+v", url, limit, p)
			}
		}
		p := wantProblem(t, send(h, "GET", url+"?cursor="+strings.Repeat("x", 600), ""), http.StatusBadRequest, "invalid")
		if faulty(p) != "cursor" {
			t.Errorf("GET %s with a long cursor: %+v", url, p)
		}
	}
	if lists < 15 {
		t.Errorf("only %d lists in the document", lists)
	}
}

// faulty is the one field that a problem names.
func faulty(problem map[string]any) string {
	errs, _ := problem["errors"].([]any)
	if len(errs) != 1 {
		return ""
	}
	field, _ := errs[0].(map[string]any)["field"].(string)
	return field
}

func TestPages(t *testing.T) {
	t.Parallel()
	items := []sandbox.Template{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	var seen string
	for in := (route.ListIn{Limit: 3}); ; {
		b, err := route.PageIn(in, items, func(t sandbox.Template) string { return t.Name })
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range b.Body.Items {
			seen += i.Name
		}
		if in.Cursor = b.Body.NextCursor; in.Cursor == "" {
			break
		}
		items = items[1:] // what goes before the place moves nothing
	}
	if seen != "abcd" {
		t.Errorf("%q", seen)
	}
	if b, err := route.PageIn(route.ListIn{}, []sandbox.Template(nil), func(t sandbox.Template) string { return t.Name }); err != nil || b.Body.Items == nil || b.Body.NextCursor != "" {
		t.Errorf("%+v %v", b, err)
	}
	if _, err := route.PageIn(route.ListIn{Cursor: "gone"}, items, func(t sandbox.Template) string { return t.Name }); err == nil {
		t.Error("a cursor that leads nowhere was taken")
	}
}

// scoped notes whose rules a request is about.
type scoped struct{ rules []string }

func (s *scoped) see(what, tenant string) { s.rules = append(s.rules, what+" "+tenant) }

func (s *scoped) Status(tenant string) policy.Status {
	s.see("get", tenant)
	return policy.Status{Source: "none"}
}

func (s *scoped) PutPolicy(_ context.Context, _ sandbox.Caller, tenant, _, _ string) (policy.Status, error) {
	s.see("put", tenant)
	return policy.Status{Source: "file"}, nil
}

func (s *scoped) Past(_ context.Context, _ sandbox.Caller, tenant, _ string, _ policy.PastQuery) (policy.PastReport, error) {
	s.see("replay", tenant)
	return policy.PastReport{}, nil
}

func (s *scoped) TryPolicy(_ context.Context, _ sandbox.Caller, tenant, _ string, _ *policy.Sample, _ string) (policy.Trial, error) {
	s.see("test", tenant)
	return policy.Trial{}, nil
}

// TestPolicyScope: an operator who names the tenant's rules does not get, and above all does not replace, the server's.
func TestPolicyScope(t *testing.T) {
	t.Parallel()
	rules := &scoped{}
	h := handler(t, newWorld(t), func(o *Options) { o.Policy = rules })
	for _, scope := range []string{"?scope=tenant", "?scope=server", ""} {
		send(h, "GET", "/api/policy"+scope, "")
		send(h, "PUT", "/api/policy"+scope, `{"text":""}`)
		send(h, "POST", "/api/policy/test"+scope, `{"record":"r1"}`)
		send(h, "POST", "/api/policy/replay"+scope, `{"since":"2026-01-01T00:00:00Z"}`)
	}
	if got, want := strings.Join(rules.rules, ","), "get default,put default,test default,replay default,get ,put ,test ,replay ,get ,put ,test ,replay "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, method := range []string{"GET", "PUT"} {
		if p := wantProblem(t, send(h, method, "/api/policy?scope=all", `{"text":""}`), 400, "invalid"); faulty(p) != "scope" {
			t.Errorf("%s: %+v", method, p)
		}
	}
}
