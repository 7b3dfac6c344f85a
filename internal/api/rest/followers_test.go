package rest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestFollowers: an owner follows so many streams at once, whatever they are; others do not notice.
func TestFollowers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.follow = func(context.Context, uint64, func(sandbox.Event) error) error { return nil }
	o, _ := w.options(t)
	o.Keys, o.Anonymous = w, nil
	served := func(rw http.ResponseWriter, _ *http.Request, _ sandbox.Caller, _ string) {
		rw.WriteHeader(http.StatusNoContent)
	}
	o.Adapters = []Adapter{{Routes: []AdapterRoute{
		{Method: http.MethodPost, Path: "/other/follow", Follows: true, Serve: served},
		{Method: http.MethodPost, Path: "/other/watch", Endless: true, Serve: served},
		{Method: http.MethodPost, Path: "/other/start", Serve: served},
	}}}
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	ann, bob := sandbox.Owner{Tenant: "acme", User: "ann"}, sandbox.Owner{Tenant: "acme", User: "bob"}
	var leave func()
	for range maxFollowing {
		if leave, err = s.followers.enter(ann); err != nil {
			t.Fatal(err)
		}
	}
	follow := []string{"GET /api/threads/t1/execs/ex1/events", "POST /other/follow", "POST /other/watch", "GET " + filesURL + "/watch" + at("workspace"), "GET /mcp/t1"}
	for _, request := range follow {
		method, path, _ := strings.Cut(request, " ")
		rec := send(h, method, path, "", "X-API-Key: ann")
		if wantProblem(t, rec, http.StatusTooManyRequests, "quota_exceeded"); !strings.Contains(rec.Body.String(), "follows 512 streams") {
			t.Errorf("%s: %s", request, rec.Body)
		}
	}
	listen := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`
	for _, body := range []string{listen, "[" + listen + "]"} {
		wantProblem(t, send(h, "POST", "/mcp/t1", body, "X-API-Key: ann"), http.StatusTooManyRequests, "quota_exceeded")
	}
	if rec := send(h, "POST", "/other/start", "", "X-API-Key: ann"); rec.Code != http.StatusNoContent {
		t.Errorf("what starts something: %d", rec.Code)
	}
	if rec := send(h, "POST", "/other/follow", "", "X-API-Key: bob"); rec.Code != http.StatusNoContent {
		t.Errorf("another user: %d", rec.Code)
	}
	leave()
	for range 3 { // each gives its place back
		if rec := send(h, "GET", "/api/threads/t1/execs/ex1/events", "", "X-API-Key: ann"); rec.Code != http.StatusOK {
			t.Errorf("one has left: %d %s", rec.Code, rec.Body)
		}
	}
	if n := s.followers.streams.Of(bob); n != 0 {
		t.Errorf("%d places are not given back", n)
	}
}

// TestEventsRevokedKey: a key that is revoked ends the stream of an exec, which goes on.
func TestEventsRevokedKey(t *testing.T) {
	t.Parallel()
	h := newMCPHost(t)
	began := make(chan struct{})
	h.w.follow = func(ctx context.Context, _ uint64, emit func(sandbox.Event) error) error {
		if err := emit(sandbox.Event{N: 1, Type: sandbox.EventStarted}); err != nil {
			return err
		}
		close(began)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return emit(sandbox.Event{N: 2, Type: sandbox.EventStdout, Data: []byte("a secret")})
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/api/threads/t1/execs/ex1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", "ann")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // test
	<-began
	h.w.mu.Lock()
	h.w.revoked = true
	h.w.mu.Unlock()
	text, err := io.ReadAll(res.Body)
	if err != nil || strings.Contains(string(text), "a secret") || !strings.Contains(string(text), "event: error") || !strings.Contains(string(text), "unauthorized") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestManyValues: a value has two bytes and takes a hundred of memory, so that values are counted first.
func TestManyValues(t *testing.T) {
	t.Parallel()
	many := `{"command":"true","env":[` + strings.Repeat("[],", 300_000) + `0]}`
	h := handler(t, newWorld(t))
	for _, url := range []string{execURL, "/mcp/t1"} {
		rec := send(h, "POST", url, many, "Accept: application/json, text/event-stream")
		if wantProblem(t, rec, 400, "invalid"); !strings.Contains(rec.Body.String(), "the body has more than 250000 values") {
			t.Errorf("%s: %s", url, rec.Body)
		}
	}
	if err := route.CheckJSON([]byte(`{"command":"` + strings.Repeat("[,", 300_000) + `"}`)); err != nil {
		t.Errorf("a long text: %v", err)
	}
}

// TestMCPBatch: the messages of a batch count as one request and are handled at once, so there are few of them.
func TestMCPBatch(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t))
	batch := func(n int) string {
		return "[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, n-1) + `{"jsonrpc":"2.0","id":2,"method":"ping"}]`
	}
	const accept = "Accept: application/json, text/event-stream"
	if rec := send(h, "POST", "/mcp/t1", batch(2), accept); rec.Code != http.StatusOK {
		t.Errorf("two: %d %s", rec.Code, rec.Body)
	}
	rec := send(h, "POST", "/mcp/t1", batch(33), accept)
	if wantProblem(t, rec, 400, "invalid"); !strings.Contains(rec.Body.String(), "a batch of 33 messages") {
		t.Errorf("%s", rec.Body)
	}
}
