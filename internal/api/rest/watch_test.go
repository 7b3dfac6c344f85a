package rest

import (
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestWatchFiles: changes are events; the end of the sandbox, and what else ends a watch, is one, too.
func TestWatchFiles(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	h := handler(t, w)
	const route = filesURL + "/watch"
	const begin = "event: started\ndata: {}\n\n" +
		`event: change` + "\n" + `data: {"path":"/mnt/user-data/workspace/a","change":"created","is_dir":true}` + "\n\n" +
		`event: change` + "\n" + `data: {"path":"/mnt/user-data/workspace/b","change":"deleted","is_dir":false}` + "\n\n"
	w.watched <- nil
	rec := send(h, "GET", route+at("workspace"), "")
	if got := strings.ReplaceAll(rec.Body.String(), ": \n\n", ""); rec.Code != 200 || rec.Header().Get("Content-Type") != "text/event-stream" || got != begin+"event: end\ndata: {}\n\n" {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), got)
	}
	w.watched <- sandbox.Errorf(sandbox.NotFound, "there is no such thread")
	rec = send(h, "GET", route+at("workspace")+"&recursive=false", "")
	if got := rec.Body.String(); !strings.Contains(got, `"is_dir":false`) || !strings.Contains(got, "event: error\ndata: {") || !strings.Contains(got, `"code":"not_found"`) {
		t.Error(got)
	}
	w.err = sandbox.Errorf(sandbox.CapacityExceeded, "no more")
	wantProblem(t, send(h, "GET", route+at("workspace"), ""), 503, "capacity_exceeded")
	wantProblem(t, send(h, "GET", route+"?path=/etc", ""), 403, "forbidden")
	wantProblem(t, send(h, "GET", route+at("workspace")+"&recursive=maybe", ""), 400, "invalid")
}
