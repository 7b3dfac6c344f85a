package rest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestAdapter: a route of another product's API goes the way of ours: its credential, role and threads are looked at,
// wherever the clients of that product put them.
func TestAdapter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var served []string
	serve := func(rw http.ResponseWriter, _ *http.Request, c sandbox.Caller, thread string) {
		served = append(served, c.User+" "+thread)
		rw.WriteHeader(http.StatusNoContent)
	}
	o := Adapter{
		Prepare: func(r *http.Request) { r.Header.Set("X-API-Key", r.Header.Get("Other-Token")) },
		Refused: func(status int, detail string) any { return map[string]any{"other": status, "why": detail} },
		Routes: []AdapterRoute{
			{Method: http.MethodPost, Path: "/other/:thread/go", Server: route.Holder, Serve: serve},
			{Method: http.MethodPost, Path: "/other.Service/Go", Thread: func(r *http.Request) string { return r.Header.Get("Other-Thread") }, Starts: true, Serve: serve},
			{Method: http.MethodGet, Path: "/other", Serve: serve},
		},
	}
	h := handler(t, w, func(opts *Options) {
		opts.Keys, opts.Anonymous, opts.Adapters = roleKeys{w}, nil, []Adapter{o}
	})
	for _, c := range []struct {
		request, key, thread string
		status               int
	}{
		{"POST /other/t1/go", "", "", http.StatusUnauthorized},
		{"POST /other/t1/go", "agent", "", http.StatusNoContent},
		{"POST /other/t1/go", "auditor", "", http.StatusForbidden},
		{"POST /other/t1/go", "ci", "ci-1", http.StatusForbidden}, // the path counts
		{"POST /other/ci-1/go", "ci", "", http.StatusNoContent},
		{"POST /other.Service/Go", "ci", "t1", http.StatusForbidden},
		{"POST /other.Service/Go", "ci", "ci-2", http.StatusNoContent},
		{"POST /other.Service/Go", "agent", "a/b", http.StatusBadRequest},
		{"GET /other", "ci", "", http.StatusForbidden},
		{"GET /other", "agent", "", http.StatusNoContent},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		before := len(served)
		rec := send(h, method, path, `{"any":"body"}`, "Other-Token: "+c.key, "Other-Thread: "+c.thread, "Content-Type: application/connect+json")
		if rec.Code != c.status || (len(served) > before) != (c.status == http.StatusNoContent) {
			t.Errorf("%s as %q for %q: %d %s", c.request, c.key, c.thread, rec.Code, rec.Body)
		}
	}
	rec := send(h, "GET", "/other", "", "Other-Token: ci")
	if !strings.Contains(rec.Body.String(), `{"other":403,"why":"this credential is for`) || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("refused in another shape: %s", rec.Body)
	}
	if got := strings.Join(served, ","); !strings.Contains(got, " ci-2") || !strings.Contains(got, " t1") {
		t.Error(got)
	}
}
