package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// healthRoutes are the routes of probes and metrics.
type healthRoutes struct {
	ready   func(ctx context.Context) []Check // nil: the server is always ready
	metrics http.Handler                      // nil: there are none
	version string
}

// readyTimeout bounds the question whether the server's dependencies answer.
const readyTimeout = 5 * time.Second

// health is the answer of /healthz.
type health struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}

// readiness is the answer of /readyz as JSON.
type readiness struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

func (s healthRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/healthz", "healthz", route.TagServer, route.Anyone, "Whether the process lives"),
		func(context.Context, *struct{}) (*route.Body[health], error) {
			return route.BodyOf(health{Status: "ok", Version: s.version}), nil
		})
	op := route.On(http.MethodGet, "/readyz", "readyz", route.TagServer, route.Anyone, "Whether the server can work: 200 or 503, one line per dependency (JSON with Accept: application/json)")
	op.Responses = textResponses("200", "503")
	route.Register(api, op, s.readyz)
	op = route.On(http.MethodGet, "/metrics", "metrics", route.TagServer, route.Operators, "Prometheus metrics; with a key that has administration rights")
	op.Responses = textResponses("200")
	op.Responses["default"] = api.ProblemResponse()
	route.Register(api, op, s.scrape)
}

func textResponses(statuses ...string) map[string]*huma.Response {
	out := map[string]*huma.Response{}
	for _, status := range statuses {
		out[status] = &huma.Response{Description: "Text", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}
	}
	return out
}

func (s healthRoutes) readyz(ctx context.Context, _ *struct{}) (*route.Written, error) {
	r := readiness{Ready: true, Checks: []Check{}}
	if s.ready != nil {
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		r.Checks = append(r.Checks, s.ready(ctx)...)
	}
	for _, c := range r.Checks {
		r.Ready = r.Ready && c.OK
	}
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	return &route.Written{Body: func(c huma.Context) {
		g := humagin.Unwrap(c)
		if strings.Contains(c.Header("Accept"), "application/json") {
			route.WriteJSON(g.Writer, status, r)
			return
		}
		g.String(status, "%s", r.lines())
	}}, nil
}

func (r readiness) lines() string {
	var b strings.Builder
	for _, c := range r.Checks {
		state := "ok"
		if !c.OK {
			state = "not ready"
		}
		line := fmt.Sprintf("%s: %s %s", c.Name, state, strings.ReplaceAll(c.Detail, "\n", " "))
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	if len(r.Checks) == 0 {
		b.WriteString("ready\n")
	}
	return b.String()
}

func (s healthRoutes) scrape(ctx context.Context, _ *struct{}) (*route.Written, error) {
	if s.metrics == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "this server has no metrics")
	}
	return &route.Written{Body: func(c huma.Context) {
		g := humagin.Unwrap(c)
		s.metrics.ServeHTTP(g.Writer, g.Request)
	}}, nil
}
