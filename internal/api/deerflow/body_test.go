package deerflow

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestManyValues: a body of 72 MiB would hold 24 million words, of sixteen bytes each and more.
func TestManyValues(t *testing.T) {
	t.Parallel()
	var c grepRequest
	err := decode([]byte(`{"include":[`+strings.Repeat(`"",`, maxValues)+`""]}`), &c)
	if sandbox.KindOf(err) != sandbox.Invalid || len(c.Include) > 0 {
		t.Errorf("%d words, %v", len(c.Include), err)
	}
	if err := decode([]byte(`{"pattern":"`+strings.Repeat("[,", maxValues)+`"}`), &c); err != nil {
		t.Errorf("a long text: %v", err)
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// TestHeld: the bodies and files of one key, in whichever sandboxes, take a bounded part of the server's memory.
func TestHeld(t *testing.T) {
	h, a, key := setup(t, "")
	a.held.Wait = time.Millisecond
	at := address(t, h, key)
	a.answers["GET /api/threads/talk/files/content"] = "text"
	others := a.held.Of(held.CallerOf(sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, Actor: "gateway"}))
	if err := others.Take(t.Context(), held.OfCaller-held.Copies*100); err != nil {
		t.Fatal(err)
	}
	ask := func(path string, size int64, body io.Reader) (int, string, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, at+path, body)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = size
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Header().Get("Retry-After"), w.Body.String()
	}
	for _, size := range []int64{101, maxBody, -1, maxBody + 1} {
		if status, retry, answer := ask("/v1/file/write", size, unread{t}); status != http.StatusTooManyRequests || retry == "" || !strings.Contains(answer, `"success":false`) || !strings.Contains(answer, "send fewer") {
			t.Errorf("a body of %d bytes: %d, Retry-After %q, %s", size, status, retry, answer)
		}
	}
	const read = `{"file":"/mnt/user-data/a"}`
	if status, retry, answer := ask("/v1/file/read", int64(len(read)), strings.NewReader(read)); status != http.StatusTooManyRequests || retry == "" {
		t.Errorf("a file of unknown size: %d, Retry-After %q, %s", status, retry, answer)
	}
	const list = `{"id":"b7"}`
	for range 50 { // what ends is free again
		if status, _, answer := ask("/v1/shell/sessions/create", int64(len(list)), strings.NewReader(list)); status != http.StatusOK {
			t.Fatalf("a small body: %d %s", status, answer)
		}
	}
	others.End()
	if status, _, answer := ask("/v1/file/read", -1, strings.NewReader(read)); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, answer)
	}
}

// TestHeldAnswers: what commands print, and lists, count as bodies and files do.
func TestHeldAnswers(t *testing.T) {
	h, a, key := setup(t, "")
	a.held.Wait = time.Millisecond
	at := address(t, h, key)
	long := strings.Repeat("x", 1<<20)
	a.answers["POST /api/threads/talk/exec"] = `{"status":"exited","stdout":"` + long + `"}`
	a.answers["GET /api/threads/talk/files/list"] = `{"items":[{"path":"/mnt/user-data/` + long + `"}]}`
	a.answers["GET /api/threads/talk/files/glob"] = a.answers["GET /api/threads/talk/files/list"]
	a.answers["GET /api/threads/talk/files/grep"] = `{"items":[{"path":"/a","text":"` + long + `"}]}`
	a.answers["GET /api/threads"] = `{"items":[{"thread_id":"` + long + `"}]}`
	const secret = "/deerflow/api/sandboxes"
	requests := map[string]string{
		at + "/v1/shell/exec": `{"command":"x"}`, at + "/v1/bash/exec": `{"command":"x"}`, at + "/v1/file/list": `{"path":"/a"}`,
		at + "/v1/file/find": `{"path":"/a","glob":"*"}`, at + "/v1/file/grep": `{"path":"/a","pattern":"x"}`, secret: "",
	}
	var taken []*held.Request
	for _, caller := range []string{held.CallerOf(sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "ann"}, Actor: "gateway"}), "deerflow\x00" + key} {
		others := a.held.Of(caller)
		if err := others.Take(t.Context(), held.OfCaller-1<<20); err != nil {
			t.Fatal(err)
		}
		taken = append(taken, others)
	}
	for _, want := range []int{http.StatusTooManyRequests, http.StatusOK} {
		for path, body := range requests {
			method := http.MethodPost
			if body == "" {
				method = http.MethodGet
			}
			if status, got := send(t, h, key, method, path, body); status != want {
				t.Errorf("%s: %d, want %d: %.200v", strings.TrimPrefix(path, at), status, want, got)
			}
		}
		for _, others := range taken {
			others.End()
		}
	}
}

// TestProvisionerBody: the provisioner's requests are short.
func TestProvisionerBody(t *testing.T) {
	h, _, key := setup(t, "")
	if status, got := send(t, h, key, http.MethodPost, "/deerflow/api/sandboxes", `{"sandbox_id":"`+strings.Repeat("a", maxProvision)+`"}`); status != http.StatusRequestEntityTooLarge && status != http.StatusTooManyRequests && status != http.StatusInsufficientStorage {
		t.Errorf("%d %v", status, got)
	}
}
