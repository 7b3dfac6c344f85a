package rest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestHeldBodies: the JSON bodies of one caller, on all routes and of /mcp, take a bounded part of the server's memory. Short ones and
// uploads, which are not kept, always go through.
func TestHeldBodies(t *testing.T) {
	t.Parallel()
	b := held.New()
	b.Wait = time.Millisecond
	h := handler(t, filesWorld(t), func(o *Options) { o.Held = b })
	ann := held.CallerOf(sandbox.Caller{Owner: sandbox.Owner{Tenant: "default", User: "ann"}, Actor: "ann"})
	others := b.Of(ann)
	if err := others.Take(t.Context(), held.OfCaller-1000); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 2*held.Short)
	write := `{"path":"/mnt/user-data/workspace/a","content":"` + long + `"}`
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":"` + long + `"}}`
	accept := "Accept: application/json, text/event-stream"
	rec := send(h, http.MethodPut, filesURL, write)
	if wantProblem(t, rec, http.StatusTooManyRequests, "quota_exceeded"); rec.Header().Get("Retry-After") == "" {
		t.Errorf("%v", rec.Header())
	}
	wantProblem(t, send(h, http.MethodPost, "/mcp", call, "Skerry-Thread: t1", accept), http.StatusTooManyRequests, "quota_exceeded")
	wantProblem(t, send(h, http.MethodPost, "/api/threads/t1/exec", `{"command":"`+long+`"}`, "Idempotency-Key: k"), http.StatusTooManyRequests, "quota_exceeded")
	if rec := send(h, http.MethodPut, filesURL, `{"path":"/mnt/user-data/workspace/b","content":"b"}`); rec.Code != http.StatusCreated {
		t.Errorf("a short body: %d %s", rec.Code, rec.Body)
	}
	if rec := send(h, http.MethodPut, filesURL+"/content"+at("workspace/c"), long, "Content-Type: application/octet-stream"); rec.Code != http.StatusCreated {
		t.Errorf("an upload: %d %s", rec.Code, rec.Body)
	}
	others.End()
	if rec := send(h, http.MethodPut, filesURL, write); rec.Code != http.StatusCreated {
		t.Errorf("afterwards: %d %s", rec.Code, rec.Body)
	}
	if rec := send(h, http.MethodPost, "/mcp", call, "Skerry-Thread: t1", accept); rec.Code == http.StatusTooManyRequests {
		t.Errorf("/mcp afterwards: %d %s", rec.Code, rec.Body)
	}
	if err := b.Of(ann).Take(t.Context(), held.OfCaller); err != nil {
		t.Errorf("when all are answered: %v", err)
	}
}
