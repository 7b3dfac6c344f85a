package rest

import (
	"net/http"
	"strings"
	"testing"
)

// TestUnknownQuery: no route of the API answers a query with a parameter that it does not have, and each says which
// it has. To pass over a misspelt filter would answer more than was asked for.
func TestUnknownQuery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.options(t)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, route := range s.routes {
		if !strings.HasPrefix(route.Path, "/api/") {
			continue
		}
		path := strings.NewReplacer(":thread", "main", "*path", "x").Replace(route.Path)
		for i := strings.Index(path, ":"); i >= 0; i = strings.Index(path, ":") {
			end := strings.IndexByte(path[i:]+"/", '/')
			path = path[:i] + "x" + path[min(i+end, len(path)):]
		}
		rec := send(h, route.Method, path+"?nosuch=1", "", "X-API-Key: root")
		if rec.Code != http.StatusBadRequest || route.Method != http.MethodHead && !strings.Contains(rec.Body.String(), `unknown query parameter \"nosuch\": this route takes `) {
			t.Errorf("%s %s: %d %.200s", route.Method, path, rec.Code, rec.Body)
		}
		tried++
	}
	if tried < 80 {
		t.Errorf("only %d routes", tried)
	}
	rec := send(h, http.MethodGet, "/api/audit?outcom=denied", "", "X-API-Key: root")
	if !strings.Contains(rec.Body.String(), `unknown query parameter \"outcom\": this route takes action, cursor, exec, limit, outcome, q, since, thread, tool, until, user`) {
		t.Error(rec.Body)
	}
}

// TestUnknownFilterValue: an outcome or action that no record can have is an error, and not an empty list.
func TestUnknownFilterValue(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t))
	for query, says := range map[string]string{"outcome=deny": "denied", "action=toolcall": "tool_call"} {
		rec := send(h, http.MethodGet, "/api/audit?"+query, "", "X-API-Key: root")
		if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), says) {
			t.Errorf("%s: %d %s", query, rec.Code, rec.Body)
		}
	}
	if rec := send(h, http.MethodGet, "/api/audit?outcome=denied&action=tool_call", "", "X-API-Key: root"); rec.Code != http.StatusOK {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
