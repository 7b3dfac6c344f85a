package rest

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestDeprecated: a route that its rule deprecates says so in the document, in the headers of each answer, and once a
// caller in the log. Another says nothing.
func TestDeprecated(t *testing.T) {
	t.Parallel()
	libraries()
	var log bytes.Buffer
	table := route.NewTable()
	who := "ann"
	engine := gin.New()
	group := engine.Group("", func(c *gin.Context) {
		ctx := exchange.Within(c.Request.Context(), slog.Default(), sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: who}, Actor: who}, c.Request)
		c.Request = c.Request.WithContext(ctx)
	}, route.NewDeprecations(table, slog.New(slog.NewTextHandler(&log, nil))).Warn)
	cfg := apiConfig("1")
	api := route.NewAPI(table, humagin.NewWithGroup(engine, group, cfg), humagin.New(engine, cfg))
	answer := func(context.Context, *struct{}) (*struct{}, error) { return nil, nil }
	gone := route.Agents.Deprecated(route.Deprecation{Since: time.Unix(1688169599, 0), Sunset: time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC), Instead: "GET /api/new"})
	route.Register(api, route.On("GET", "/api/old", "old", route.TagServer, gone, "Old"), answer)
	route.Register(api, route.On("GET", "/api/new", "new", route.TagServer, route.Agents, "New"), answer)

	get := func(path string) http.Header {
		rec := httptest.NewRecorder()
		engine.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if rec.Code >= 400 {
			t.Fatalf("%s: %d %s", path, rec.Code, rec.Body)
		}
		return rec.Header()
	}
	for _, who = range []string{"ann", "bob", "ann"} {
		h := get("/api/old")
		for name, want := range map[string]string{
			"Deprecation": "@1688169599", "Sunset": "Tue, 01 Jun 2027 00:00:00 GMT", "Link": `</docs#old>; rel="deprecation"; type="text/html"`,
		} {
			if h.Get(name) != want {
				t.Errorf("%s: %q, want %q", name, h.Get(name), want)
			}
		}
	}
	if h := get("/api/new"); h.Get("Deprecation") != "" || h.Get("Sunset") != "" || h.Get("Link") != "" {
		t.Errorf("a route that stays has %v", h)
	}
	if lines := strings.TrimSpace(log.String()); strings.Count(lines, "a deprecated route is used") != 2 || !strings.Contains(lines, "actor=bob") || !strings.Contains(lines, "use GET /api/new. It may be gone from 2027-06-01 on.") {
		t.Errorf("the log: %s", lines)
	}
	paths := api.OpenAPI().Paths
	if op := paths["/api/old"].Get; !op.Deprecated || !strings.Contains(op.Description, "Deprecated since 2023-06-30: use GET /api/new.") {
		t.Errorf("the document: %v %q", op.Deprecated, op.Description)
	}
	if paths["/api/new"].Get.Deprecated {
		t.Error("the document deprecates a route that stays")
	}
}
