package rest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestFollowEvents: events are named by their kinds, and have their ids; the end of the thread, and what else ends a stream,
// is one, too.
func TestFollowEvents(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	h := handler(t, w)
	const route = "/api/threads/t1/events"
	w.watched <- nil
	rec := send(h, "GET", route, "")
	const want = "id: 1\nevent: started\ndata: {\"id\":\"1\",\"kind\":\"started\"}\n\n" +
		"id: 2\nevent: exec.started\ndata: {\"id\":\"2\",\"kind\":\"exec.started\"}\n\nevent: end\ndata: {}\n\n"
	if got := strings.ReplaceAll(rec.Body.String(), ": \n\n", ""); rec.Code != 200 || rec.Header().Get("Content-Type") != "text/event-stream" || got != want {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), got)
	}
	for what, url := range map[string]string{"header": route, "query": route + "?after=gone"} {
		w.watched <- sandbox.Errorf(sandbox.Unavailable, "another server")
		rec = send(h, "GET", url, "", map[string]string{"header": "Last-Event-ID: gone", "query": "Accept: text/event-stream"}[what])
		if got := rec.Body.String(); !strings.Contains(got, "event: reset\n") || !strings.Contains(got, "event: error\ndata: {") || !strings.Contains(got, `"code":"unavailable"`) {
			t.Errorf("%s: %s", what, got)
		}
	}
	w.err = sandbox.Errorf(sandbox.NotFound, "there is no thread")
	wantProblem(t, send(h, "GET", route, ""), 404, "not_found")
	wantProblem(t, send(h, "GET", route+"?after="+strings.Repeat("a", 300), ""), 400, "invalid")
}

// TestPromptETag: a caller that has the prompt gets 304 without it.
func TestPromptETag(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t))
	const route = "/api/threads/t1/prompt"
	rec := send(h, "GET", route, "")
	if m := decodeBody(t, rec); rec.Header().Get("ETag") != `"abc"` || m["version"] != "abc" || rec.Header().Get("Cache-Control") != "private, no-cache" {
		t.Errorf("%v %v", rec.Header(), m)
	}
	for given, want := range map[string]int{
		`"abc"`: http.StatusNotModified, `"x", W/"abc"`: http.StatusNotModified, "*": http.StatusNotModified,
		`"ab"`: http.StatusOK, "abc": http.StatusOK, `"x","y"`: http.StatusOK,
	} {
		rec := send(h, "GET", route, "", "If-None-Match: "+given)
		if rec.Code != want || (want == http.StatusNotModified) != (rec.Body.Len() == 0) || rec.Header().Get("ETag") != `"abc"` {
			t.Errorf("If-None-Match %s: %d %v %s", given, rec.Code, rec.Header(), rec.Body)
		}
	}
}
