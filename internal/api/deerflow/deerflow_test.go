package deerflow

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// api plays the public API: it says what it was asked, and answers from a table.
type api struct {
	t       testing.TB
	keys    *auth.Keys
	held    *held.Bytes
	answers map[string]string // by method and path; what is not there is 404
	asked   []string          // method, path and query, without the question whether the key is good
	bodies  []string
	users   []string // On-Behalf-Of
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	problem := func(status int, kind sandbox.Kind, detail string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"code": string(kind), "detail": detail})
	}
	c, err := a.keys.Authenticate(r.Context(), auth.Credential{Secret: secret, OnBehalfOf: r.Header.Get("On-Behalf-Of")})
	if err != nil {
		problem(http.StatusUnauthorized, sandbox.KindOf(err), "the API refuses the key")
		return
	}
	if r.URL.String() == "/api/threads?limit=1" {
		if c.Threads != nil {
			problem(http.StatusForbidden, sandbox.Forbidden, "the API refuses the key of a thread")
		}
		return
	}
	if thread := strings.Split(r.URL.Path, "/"); len(thread) > 3 && !c.MayUse(thread[3]) {
		a.t.Errorf("%s with a key of %v", r.URL, c.Threads)
	}
	body, _ := io.ReadAll(r.Body)
	a.asked, a.bodies, a.users = append(a.asked, r.Method+" "+r.URL.String()), append(a.bodies, string(body)), append(a.users, c.User)
	answer, ok := a.answers[r.Method+" "+r.URL.Path]
	if !ok {
		problem(http.StatusNotFound, sandbox.NotFound, "there is no such thing")
		return
	}
	_, _ = io.WriteString(w, answer)
}

// last is the newest request, with its body.
func (a *api) last() (asked, body string) {
	if len(a.asked) == 0 {
		return "", ""
	}
	return a.asked[len(a.asked)-1], a.bodies[len(a.bodies)-1]
}

const running = `{"thread_id":"talk","sandbox":{"state":"running"}}`

// setup makes an adapter before an API with a key that acts for others.
func setup(t testing.TB, location string) (h http.Handler, a *api, key string) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	k := auth.New(s, auth.Options{})
	admin := sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "root"}, Role: sandbox.RoleAdmin}
	if _, key, err = k.CreateKey(t.Context(), admin, auth.Key{User: "gateway", ActFor: true}); err != nil {
		t.Fatal(err)
	}
	a = &api{t: t, keys: k, held: held.New(), answers: map[string]string{
		"PUT /api/threads/talk/sandbox": running, "GET /api/threads/talk": running, "DELETE /api/threads/talk/sandbox": "",
		"GET /api/threads": `{"items":[` + running + `,{"thread_id":"not-deerflow","sandbox":{"state":"running"}}]}`,
	}}
	if h, err = New(Options{API: a, Keys: k, Held: a.held, URL: location}); err != nil {
		t.Fatal(err)
	}
	return h, a, key
}

// send sends a request and reads its answer.
func send(t testing.TB, h http.Handler, key, method, target, body string) (status int, answer map[string]any) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Host = "skerry.test:8080"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		answer = map[string]any{"raw": w.Body.String()}
	}
	return w.Code, answer
}

const create = `{"sandbox_id":"0123456789abcdef","thread_id":"talk","user_id":"ann","include_legacy_skills":false,"provision_lark_cli_runtime":false,
	"provision_lark_cli_broker":false,"extra_mounts":[{"host_path":"/srv/skills","container_path":"/mnt/skills/custom","read_only":true}]}`

// address makes a sandbox and returns the path of its address.
func address(t testing.TB, h http.Handler, key string) string {
	t.Helper()
	status, got := send(t, h, key, http.MethodPost, "/deerflow/api/sandboxes", create)
	if status != http.StatusOK {
		t.Fatalf("%d %v", status, got)
	}
	u, err := url.Parse(got["sandbox_url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

// TestProvisioner: a sandbox is made for DeerFlow's user, found again by its id, listed, and ends with its address.
func TestProvisioner(t *testing.T) {
	h, a, key := setup(t, "")
	status, made := send(t, h, key, http.MethodPost, "/deerflow/api/sandboxes", create)
	at, _ := made["sandbox_url"].(string)
	if status != http.StatusOK || made["status"] != "Running" || made["sandbox_id"] != "0123456789abcdef" || !strings.HasPrefix(at, "http://skerry.test:8080/deerflow/sandboxes/sk_") || strings.Contains(at, key) {
		t.Fatalf("%d %v", status, made)
	}
	if asked, body := a.last(); asked != "PUT /api/threads/talk/sandbox" || body != `{"wait_s":20}` || a.users[len(a.users)-1] != "ann" {
		t.Errorf("asked %s %s", asked, body)
	}
	for _, call := range []struct{ method, target, body string }{
		{http.MethodPost, "/deerflow/api/sandboxes", create}, {http.MethodGet, "/deerflow/api/sandboxes/0123456789abcdef", ""},
	} {
		if status, got := send(t, h, key, call.method, call.target, call.body); status != http.StatusOK || got["sandbox_url"] != at || got["status"] != "Running" {
			t.Errorf("%s again: %d %v", call.method, status, got)
		}
	}
	if status, got := send(t, h, key, http.MethodGet, "/deerflow/api/sandboxes", ""); status != http.StatusOK || got["count"] != 1.0 || got["sandboxes"].([]any)[0].(map[string]any)["sandbox_url"] != at {
		t.Errorf("listed %d %v", status, got)
	}
	path := strings.TrimPrefix(at, "http://skerry.test:8080")
	if status, got := send(t, h, "", http.MethodGet, path+"/v1/sandbox", ""); status != http.StatusOK || got["home_dir"] != "/home/agent" {
		t.Errorf("about %d %v", status, got)
	}
	a.answers["GET /api/threads/talk"] = `{"thread_id":"talk"}`
	if status, _ := send(t, h, key, http.MethodGet, "/deerflow/api/sandboxes/0123456789abcdef", ""); status != http.StatusNotFound {
		t.Errorf("without a sandbox %d", status)
	}
	if status, _ := send(t, h, "", http.MethodGet, path+"/v1/sandbox", ""); status != http.StatusServiceUnavailable {
		t.Errorf("ready without a sandbox: %d", status)
	}
	for range 2 {
		if status, got := send(t, h, key, http.MethodDelete, "/deerflow/api/sandboxes/0123456789abcdef", ""); status != http.StatusOK || got["ok"] != true {
			t.Errorf("deleted %d %v", status, got)
		}
	}
	if asked, _ := a.last(); asked != "DELETE /api/threads/talk/sandbox" {
		t.Errorf("asked %s", asked)
	}
	before := len(a.asked)
	if status, _ := send(t, h, "", http.MethodPost, path+"/v1/shell/exec", `{"command":"id"}`); status != http.StatusUnauthorized || len(a.asked) != before {
		t.Errorf("the address of a sandbox that was deleted: %d", status)
	}
	if status, got := send(t, h, "", http.MethodGet, "/deerflow/health", ""); status != http.StatusOK || got["status"] != "ok" {
		t.Errorf("health %d %v", status, got)
	}
	if status, got := send(t, h, key, http.MethodGet, "/deerflow/api/capabilities", ""); status != http.StatusOK || got["lark_cli_init_image"] != false {
		t.Errorf("capabilities %d %v", status, got)
	}
}

// TestAddressIsAsConfigured: behind a proxy the server does not know where it is reached.
func TestAddressIsAsConfigured(t *testing.T) {
	h, _, key := setup(t, "https://skerry.example/")
	if _, got := send(t, h, key, http.MethodPost, "/deerflow/api/sandboxes", create); !strings.HasPrefix(got["sandbox_url"].(string), "https://skerry.example/deerflow/sandboxes/sk_") {
		t.Errorf("%v", got)
	}
}

// TestRefused: nothing is done without a good key, and what is not known is refused by name.
func TestRefused(t *testing.T) {
	h, a, key := setup(t, "")
	at := address(t, h, key)
	none := "sk_" + strings.Repeat("0", 64)
	before := len(a.asked)
	for _, c := range []struct {
		name, key, method, target, body string
		status                          int
		says                            string
	}{
		{"no key", "", http.MethodPost, "/deerflow/api/sandboxes", create, 401, "X-API-Key"},
		{"no key for capabilities", "", http.MethodGet, "/deerflow/api/capabilities", "", 401, "X-API-Key"},
		{"a wrong key", none, http.MethodGet, "/deerflow/api/sandboxes", "", 401, "refuses the key"},
		{"an address's key", strings.TrimPrefix(at, "/deerflow/sandboxes/"), http.MethodPost, "/deerflow/api/sandboxes", create, 403, "key of a thread"},
		{"a wrong address", "", http.MethodPost, "/deerflow/sandboxes/" + none + "/v1/shell/exec", `{"command":"id"}`, 401, "refuses the key"},
		{"the key as an address", "", http.MethodPost, "/deerflow/sandboxes/" + key + "/v1/shell/exec", `{"command":"id"}`, 403, "not one of a sandbox"},
		{"another user's thread", key, http.MethodPost, "/deerflow/api/sandboxes", `{"sandbox_id":"0123456789abcdef","thread_id":"talk","user_id":"bob"}`, 409, "of the user ann"},
		{"a field of another version", key, http.MethodPost, "/deerflow/api/sandboxes", `{"sandbox_id":"a","gpu":true}`, 400, `"gpu"`},
		{"an id that is a path", key, http.MethodPost, "/deerflow/api/sandboxes", `{"sandbox_id":"../a"}`, 400, "sandbox_id"},
		{"a thread that is a path", key, http.MethodPost, "/deerflow/api/sandboxes", `{"sandbox_id":"a","thread_id":"b/c"}`, 400, "thread_id"},
		{"a user with a newline", key, http.MethodPost, "/deerflow/api/sandboxes", `{"sandbox_id":"a","user_id":"b\nc"}`, 400, "user_id"},
		{"two bodies", key, http.MethodPost, "/deerflow/api/sandboxes", `{"sandbox_id":"a"}{}`, 400, "nothing after"},
		{"no sandbox", key, http.MethodGet, "/deerflow/api/sandboxes/nothing", "", 404, "not found"},
		{"a route that DeerFlow does not use", "", http.MethodGet, at + "/v1/browser/info", "", 501, "GET /v1/browser/info is not supported"},
		{"a method that DeerFlow does not use", key, http.MethodPut, "/deerflow/api/sandboxes", "{}", 501, "not supported"},
		{"a field that DeerFlow does not send", "", http.MethodPost, at + "/v1/shell/exec", `{"command":"id","async_mode":true}`, 501, "async_mode"},
		{"a field that nobody knows", "", http.MethodPost, at + "/v1/file/read", `{"file":"/mnt/user-data/a","page":1}`, 400, `"page"`},
		{"no command", "", http.MethodPost, at + "/v1/bash/exec", `{}`, 400, "command"},
		{"a bad session", "", http.MethodPost, at + "/v1/shell/exec", `{"command":"id","id":"a b"}`, 400, "id"},
		{"bad base64", "", http.MethodPost, at + "/v1/file/write", `{"file":"/mnt/user-data/a","content":"%","encoding":"base64"}`, 400, "base64"},
		{"sudo", "", http.MethodPost, at + "/v1/file/read", `{"file":"/etc/shadow","sudo":true}`, 501, "sudo"},
	} {
		status, got := send(t, h, c.key, c.method, c.target, c.body)
		detail, _ := got["detail"].(string)
		if status != c.status || !strings.Contains(detail, c.says) || got["message"] != got["detail"] || got["success"] != false {
			t.Errorf("%s: %d %v, want %d with %q", c.name, status, got, c.status, c.says)
		}
		if strings.Contains(detail, "sk_") {
			t.Errorf("%s: the answer has the key: %s", c.name, detail)
		}
	}
	if len(a.asked) != before {
		t.Errorf("the API was asked %v", a.asked[before:])
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, at+"/v1/shell/exec", strings.NewReader(`{"command":"id"}`))
	r.Header.Set("Content-Type", "text/plain")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
		t.Errorf("a form of a page: %d", w.Code)
	}
}

// TestConnection: an answer does not depend on the deadlines that the request before left on its connection.
func TestConnection(t *testing.T) {
	h, _, _ := setup(t, "")
	var conns []net.Conn // of one client that sends one request after the other
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		conns = append(conns, c)
		return ctx
	}
	s.Start()
	defer s.Close()
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/deerflow/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		_ = res.Body.Close()
		if len(conns) != 1 {
			t.Fatalf("%d connections", len(conns))
		}
		if err := conns[0].SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNotActing: a key that may not act for DeerFlow's users makes no sandbox.
func TestNotActing(t *testing.T) {
	h, a, _ := setup(t, "")
	admin := sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "root"}, Role: sandbox.RoleAdmin}
	_, plain, err := a.keys.CreateKey(t.Context(), admin, auth.Key{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if status, got := send(t, h, plain, http.MethodPost, "/deerflow/api/sandboxes", create); status != http.StatusForbidden || !strings.Contains(got["detail"].(string), "act_for") {
		t.Errorf("%d %v", status, got)
	}
}
