package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const execURL = "/api/threads/t1/exec"

func TestKinds(t *testing.T) {
	t.Parallel()
	for kind, status := range map[sandbox.Kind]int{
		sandbox.NotFound: 404, sandbox.Invalid: 400, sandbox.Conflict: 409, sandbox.Forbidden: 403, sandbox.Unauthorized: 401, sandbox.QuotaExceeded: 413,
		sandbox.CapacityExceeded: 503, sandbox.NotSupported: 501, sandbox.SandboxLost: 503, sandbox.ToolFailed: 502, sandbox.Timeout: 504, sandbox.Unavailable: 503, sandbox.Internal: 500,
	} {
		w := newWorld(t)
		w.err = sandbox.Wrap(kind, errors.New("secret cause /var/lib/skerry"), "the detail")
		rec := send(handler(t, w), "POST", execURL, `{"command":"x"}`)
		m := wantProblem(t, rec, status, string(kind))
		if strings.Contains(rec.Body.String(), "secret cause") {
			t.Errorf("%s shows its cause: %s", kind, rec.Body)
		}
		if kind != sandbox.Internal && m["detail"] != "the detail" || kind == sandbox.Internal && strings.Contains(rec.Body.String(), "the detail") {
			t.Errorf("%s: detail %v", kind, m["detail"])
		}
		if retry := rec.Header().Get("Retry-After"); (status == 503) != (retry != "") {
			t.Errorf("%s: Retry-After %q", kind, retry)
		}
		if status == 401 && rec.Header().Get("WWW-Authenticate") == "" {
			t.Error("no WWW-Authenticate")
		}
	}
}

func TestInternalErrorsAreLoggedOnceAndHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.err = errors.New("open /var/lib/skerry/x: boom")
	o, log := w.options(t)
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	rec := send(h, "GET", "/api/threads/t1/execs", "", "X-Request-Id: my-id_1")
	wantProblem(t, rec, 500, "internal")
	if strings.Contains(rec.Body.String(), "boom") || rec.Header().Get("X-Request-Id") != "my-id_1" {
		t.Errorf("answer %v %s", rec.Header(), rec.Body)
	}
	if strings.Count(log.String(), "boom") != 1 || !strings.Contains(log.String(), "my-id_1") {
		t.Errorf("log: %s", log)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.wait = func(context.Context) error { panic("at the disco") }
	o, log := w.options(t)
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	rec := send(h, "POST", execURL, `{"command":"x"}`, "Idempotency-Key: k")
	wantProblem(t, rec, 500, "internal")
	if strings.Contains(rec.Body.String(), "disco") || strings.Count(log.String(), "disco") != 1 {
		t.Errorf("answer %s, log %s", rec.Body, log)
	}
	if len(w.answers) != 0 {
		t.Error("the Idempotency-Key stays taken")
	}
}

func TestMethodNotAllowedSaysWhatIs(t *testing.T) {
	t.Parallel()
	if allow := send(handler(t, newWorld(t)), "GET", execURL, "").Header().Get("Allow"); allow != "POST" {
		t.Errorf("Allow: %q", allow)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t))
	for given, keep := range map[string]bool{"abc-_9": true, "": false, "a b": false, strings.Repeat("a", 65): false, "a/b": false} {
		got := send(h, "GET", "/healthz", "", "X-Request-Id: "+given).Header().Get("X-Request-Id")
		if (got == given) != keep || got == "" {
			t.Errorf("X-Request-Id %q became %q", given, got)
		}
	}
}

func TestShapes(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t))
	for _, c := range []struct {
		method, url, body, field string
		status                   int
		code                     string
	}{
		{"GET", "/api/nothing", "", "", 404, "not_found"},
		{"GET", "/", "", "", 404, "not_found"},
		{"PATCH", execURL, "", "", 405, "invalid"},
		{"POST", "/api/threads/a%2Fb/exec", `{"command":"x"}`, "thread", 400, "invalid"},
		{"POST", "/api/threads/%2e%2e/exec", `{"command":"x"}`, "thread", 400, "invalid"},
		{"POST", "/api/threads/a%20b/exec", `{"command":"x"}`, "thread", 400, "invalid"},
		{"POST", "/api/threads/" + strings.Repeat("a", 129) + "/exec", `{"command":"x"}`, "thread", 400, "invalid"},
		{"POST", execURL, `{`, "body", 400, "invalid"},
		{"POST", execURL, "", "", 400, "invalid"},
		{"POST", execURL, `[]`, "body", 400, "invalid"},
		{"POST", execURL, `{}`, "command", 400, "invalid"},
		{"POST", execURL, `{"command":"x","argv":["y"]}`, "command", 400, "invalid"},
		{"POST", execURL, `{"argv":[""]}`, "argv", 400, "invalid"},
		{"POST", execURL, `{"command":5}`, "command", 400, "invalid"},
		{"POST", execURL, `{"comand":"x"}`, "comand", 400, "invalid"},
		{"POST", execURL, `{"command":"x","timeout_s":3601}`, "timeout_s", 400, "invalid"},
		{"POST", execURL, `{"command":"x","timeout_s":-1}`, "timeout_s", 400, "invalid"},
		{"POST", execURL, `{"command":"x","env":{"A-B":"c"}}`, "env.A-B", 400, "invalid"},
		{"POST", execURL, `{"command":"x","pty":{"cols":80,"rows":24}}`, "", 400, "invalid"}, // not in the background
		{"POST", execURL, `{"command":"x","background":true,"pty":{"cols":80}}`, "", 400, "invalid"},
		{"POST", execURL, `{"command":"x","background":true,"pty":{"cols":80,"rows":1001}}`, "", 400, "invalid"},
		{"POST", execURL, `{"command":"a\u0000b"}`, "command", 400, "invalid"},
		{"POST", "/api/threads/t1/execute_code", `{"code":"1","timeout":121}`, "timeout", 400, "invalid"},
		{"POST", "/api/threads/t1/execute_code", `{"code":"1","language":"perl"}`, "language", 400, "invalid"},
		{"POST", "/api/threads/t1/execute_code", `{"code":""}`, "code", 400, "invalid"},
		{"POST", "/api/threads/t1/execute_code", `{"code":"1","context_id":"a/b"}`, "context_id", 400, "invalid"},
		{"POST", "/api/threads/t1/contexts", `{"language":"bash"}`, "language", 400, "invalid"},
		{"GET", "/api/threads/t1/contexts/none", "", "", 404, "not_found"},
		{"GET", "/api/threads?limit=1001", "", "limit", 400, "invalid"},
		{"GET", "/api/threads?label=x", "", "", 400, "invalid"},
		{"GET", "/api/threads/t1/files", "", "path", 400, "invalid"},
		{"GET", "/api/threads/t1/files?path=/etc/passwd", "", "", 403, "forbidden"},
		{"GET", "/api/threads/t1/files?path=/mnt/user-data/../x", "", "", 400, "invalid"},
		{"GET", "/api/threads/t1/files?path=/mnt/user-data/a%00b", "", "", 400, "invalid"},
		{"GET", "/api/threads/t1/execs/e1/events?after=x", "", "after", 400, "invalid"},
		{"PUT", "/api/threads/t1/sandbox", `{"capabilities":["a b"]}`, "", 400, "invalid"},
		{"POST", "/api/threads/t1/tools/call", `{"tool":"a","input":[1]}`, "input", 400, "invalid"},
	} {
		rec := send(h, c.method, c.url, c.body)
		m := wantProblem(t, rec, c.status, c.code)
		if c.field == "" {
			continue
		}
		list, _ := m["errors"].([]any)
		if len(list) == 0 || list[0].(map[string]any)["field"] != c.field {
			t.Errorf("%s %s %s: errors %v, want field %q", c.method, c.url, c.body, m["errors"], c.field)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t))
	big := `{"command":"` + strings.Repeat("a", route.MaxJSONBytes) + `"}`
	wantProblem(t, send(h, "POST", execURL, big), 413, "invalid")
	wantProblem(t, send(h, "POST", execURL, big, "Idempotency-Key: k"), 413, "invalid")
	wantProblem(t, send(h, "POST", execURL, `{"command":"cat","stdin":"`+strings.Repeat("a", sandbox.MaxStdinBytes+1)+`"}`), 400, "invalid")
	wantProblem(t, send(h, "POST", "/api/threads/t1/execute_code", `{"code":"`+strings.Repeat("a", sandbox.MaxCodeBytes+1)+`"}`), 400, "invalid")
	wantProblem(t, send(h, "POST", execURL, strings.Repeat("[", 100_000)), 400, "invalid")
}

func TestContentType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	for given, status := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "text/plain": 415, "application/x-www-form-urlencoded": 415, "": 415,
		"application/json; charset=latin1": 415, "multipart/form-data; boundary=x": 415, "application/jsonx": 415,
	} {
		rec := send(h, "POST", execURL, `{"command":"x"}`, "Content-Type: "+given)
		if rec.Code != status {
			t.Errorf("Content-Type %q: %d %s", given, rec.Code, rec.Body)
		}
		if status == 415 {
			wantProblem(t, rec, 415, "invalid")
		}
	}
	for _, verb := range []string{"pause", "resume", "hibernate"} {
		if rec := send(h, "POST", "/api/threads/t1/sandbox/"+verb, ""); rec.Code != 200 {
			t.Errorf("a POST without body: %d %s", rec.Code, rec.Body)
		}
	}
	if w.forced {
		t.Error("hibernate without a body was forced")
	}
	if rec := send(h, "POST", "/api/threads/t1/sandbox/hibernate", `{"force":true}`); rec.Code != 200 || !w.forced {
		t.Errorf("hibernate with force: %d, forced %t", rec.Code, w.forced)
	}
	wantProblem(t, send(h, "POST", "/api/threads/t1/files/upload", "{}"), 415, "invalid")
}

func TestHostAndOrigin(t *testing.T) {
	t.Parallel()
	h := handler(t, newWorld(t), func(o *Options) { o.AllowedHosts = []string{"skerry.example", "other.example:8443"} })
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:8080": true, "127.0.0.1:1": true, "127.9.9.9": true, "[::1]:8080": true, "[::1]": true, "LOCALHOST:1": true, "localhost.": true,
		"skerry.example": true, "skerry.example:1234": true, "other.example:8443": true, "other.example:80": false, "other.example": false,
		"evil.example": false, "localhost.evil.example": false, "": false, "10.0.0.1": false, "127.0.0.1.evil.example": false,
	} {
		for _, url := range []string{"/api/threads", "/healthz", "/metrics", "/docs", "/openapi.json", "/mcp/t1", "/nothing"} {
			rec := send(h, "GET", url, "", "Host: "+host)
			if (rec.Code != 403) != ok {
				t.Errorf("Host %q, %s: %d", host, url, rec.Code)
			}
			if !ok {
				wantProblem(t, rec, 403, "forbidden")
			}
		}
	}
	for origin, ok := range map[string]bool{
		"http://localhost:8080": true, "http://localhost:3000": true, "http://127.0.0.1:5": true, "https://evil.example": false, "null": false, "http://localhost.evil.example": false, "file://": false, "://": false,
	} {
		if rec := send(h, "POST", execURL, `{"command":"x"}`, "Origin: "+origin); (rec.Code == 200) != ok {
			t.Errorf("Origin %q: %d", origin, rec.Code)
		}
	}
	listed := handler(t, newWorld(t), func(o *Options) { o.AllowedOrigins = []string{"https://app.example"} })
	for origin, ok := range map[string]bool{"https://app.example": true, "http://localhost:8080": true, "http://localhost:3000": false, "http://app.example": false} {
		rec := send(listed, "POST", execURL, `{"command":"x"}`, "Origin: "+origin)
		if (rec.Code == 200) != ok {
			t.Errorf("listed, Origin %q: %d", origin, rec.Code)
		}
		if cors := rec.Header().Get("Access-Control-Allow-Origin"); (cors != "") != (origin == "https://app.example") {
			t.Errorf("Origin %q: CORS %q", origin, cors)
		}
	}
	pre := send(listed, "OPTIONS", execURL, "", "Origin: https://app.example", "Access-Control-Request-Method: POST")
	if pre.Code != 204 || !strings.Contains(pre.Header().Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("preflight: %d %v", pre.Code, pre.Header())
	}
	wantProblem(t, send(listed, "OPTIONS", execURL, "", "Origin: https://evil.example", "Access-Control-Request-Method: POST"), 403, "forbidden")
	anyHost := handler(t, newWorld(t), func(o *Options) { o.AllowedHosts = []string{"*"} })
	if rec := send(anyHost, "GET", "/healthz", "", "Host: whatever.example"); rec.Code != 200 {
		t.Errorf("any host: %d", rec.Code)
	}
	for _, bad := range []Clients{{AllowedHosts: []string{"http://x"}}, {AllowedOrigins: []string{"app.example"}}} {
		if _, err := exchange.NewGuard(bad.AllowedHosts, bad.AllowedOrigins); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refused []string
	h := handler(t, w, func(o *Options) {
		o.Keys, o.Anonymous = w, nil
		o.AuthRefused = func(_ context.Context, c sandbox.Caller, reason string, _ bool) {
			refused = append(refused, c.Source+" "+c.RequestID+" "+reason)
		}
	})
	for _, headers := range [][]string{nil, {"Authorization: Bearer nobody"}, {"Authorization: Basic ann"}, {"Authorization: Bearer "}, {"X-API-Key: nobody"}, {"Authorization: Bearer ann", "X-API-Key: bob"}, {"Authorization: Bearer " + strings.Repeat("a", 600)}} {
		wantProblem(t, send(h, "GET", "/api/threads/t1", "", headers...), 401, "unauthorized")
		wantProblem(t, send(h, "POST", "/mcp/t1", "{}", headers...), 401, "unauthorized")
	}
	if len(refused) != 14 || !strings.HasPrefix(refused[0], "192.0.2.1 ") {
		t.Errorf("refused: %q", refused)
	}
	for _, header := range []string{"Authorization: Bearer ann", "Authorization: bearer ann", "X-API-Key: ann"} {
		rec := send(h, "GET", "/api/threads/t1", "", header, "User-Agent: test", "X-Request-Id: r1")
		if rec.Code != 200 {
			t.Errorf("%s: %d %s", header, rec.Code, rec.Body)
		}
		if c := w.last(); c.User != "ann" || c.Tenant != "acme" || c.KeyID != "k-ann" || c.Role != sandbox.RoleDeveloper || c.RequestID != "r1" || c.Source != "192.0.2.1" || c.UserAgent != "test" {
			t.Errorf("caller %+v", c)
		}
	}
	// Two users: the thread of one is not there for the other.
	wantProblem(t, send(h, "GET", "/api/threads/t1", "", "Authorization: Bearer bob"), 404, "not_found")
	wantProblem(t, send(h, "GET", "/api/threads/t1", "", "Authorization: Bearer bob", "On-Behalf-Of: ann"), 403, "forbidden")
	if rec := send(h, "GET", "/api/threads/t1", "", "Authorization: Bearer root", "On-Behalf-Of: ann"); rec.Code != 200 || w.last().User != "ann" {
		t.Errorf("on behalf: %d", rec.Code)
	}
	for _, open := range []string{"/healthz", "/readyz", "/docs", "/openapi.json"} {
		if rec := send(h, "GET", open, ""); rec.Code != 200 {
			t.Errorf("%s wants a key: %d", open, rec.Code)
		}
	}
	if rec := send(h, "GET", "/api/threads/t1", "", "X-API-Key: guess"); rec.Code != 429 || rec.Header().Get("Retry-After") != "3" || !strings.Contains(rec.Body.String(), "quota_exceeded") {
		t.Errorf("too many: %d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	// Without authentication there is no user to act for.
	wantProblem(t, send(handler(t, w), "GET", "/api/threads", "", "On-Behalf-Of: bob"), 403, "forbidden")
	o, _ := w.options(t)
	o.Anonymous = nil
	if _, err := New(o); err == nil {
		t.Error("a server that nobody can call was made")
	}
}

func TestAdministration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w, func(o *Options) { o.Keys, o.Anonymous = w, nil })
	for _, c := range []struct{ method, url, body string }{
		{"GET", "/api/keys", ""},
		{"POST", "/api/keys", `{"name":"n","user":"u"}`},
		{"DELETE", "/api/keys/k1", ""},
		{"GET", "/api/mcp/servers", ""},
		{"PUT", "/api/mcp/servers/x", `{"command":"y"}`},
		{"DELETE", "/api/mcp/servers/x", ""},
		{"POST", "/api/mcp/servers/x/reconnect", ""},
		{"GET", "/api/mcp/servers/x/tools", ""},
	} {
		wantProblem(t, send(h, c.method, c.url, c.body, "X-API-Key: ann"), 403, "forbidden")
		if rec := send(h, c.method, c.url, c.body, "X-API-Key: root"); rec.Code >= 300 {
			t.Errorf("%s %s: %d %s", c.method, c.url, rec.Code, rec.Body)
		}
	}
	rec := send(h, "POST", "/api/keys", `{"name":"n","user":"u","act_for":true}`, "X-API-Key: root", "Idempotency-Key: k")
	m := decodeBody(t, rec)
	for _, s := range w.answers {
		if strings.Contains(string(s.answer), base64.StdEncoding.EncodeToString(rec.Body.Bytes())) {
			t.Error("an answer with a secret was stored")
		}
	}
	wantProblem(t, send(h, "POST", "/api/keys", `{"name":"n","user":"u","act_for":true}`, "X-API-Key: root", "Idempotency-Key: k"), 409, "conflict")
	if rec.Code != 201 || m["secret"] != "secret" || m["tenant"] != "acme" || m["act_for"] != true {
		t.Errorf("key: %d %v", rec.Code, m)
	}
	if rec := send(h, "GET", "/api/keys", "", "X-API-Key: root"); strings.Contains(rec.Body.String(), "deadbeef") {
		t.Error("the list shows hashes")
	}
	wantProblem(t, send(h, "POST", "/api/keys", `{"name":"n","user":"../x"}`, "X-API-Key: root"), 400, "invalid")
	rec = send(h, "PUT", "/api/mcp/servers/new", `{"command":"y","env":{"A":"***"}}`, "X-API-Key: root")
	if rec.Code != 200 || string(w.configs["new"]) != `{"command":"y","env":{"A":"***"}}` {
		t.Errorf("put server: %d %s", rec.Code, w.configs["new"])
	}
	wantProblem(t, send(h, "PUT", "/api/mcp/servers/new", `5`, "X-API-Key: root"), 400, "invalid")

	// The audit log shows a user only its own records.
	send(h, "GET", "/api/audit?thread=t1&limit=5&since=2026-01-02T03:04:05Z", "", "X-API-Key: ann")
	if f := w.audited; f.Tenant != "acme" || f.User != "ann" || f.Thread != "t1" || f.Limit != 5 || f.Since.IsZero() {
		t.Errorf("filter %+v", f)
	}
	wantProblem(t, send(h, "GET", "/api/audit?user=bob", "", "X-API-Key: ann"), 403, "forbidden")
	send(h, "GET", "/api/audit?user=bob", "", "X-API-Key: root")
	if f := w.audited; f.Tenant != "acme" || f.User != "bob" {
		t.Errorf("filter %+v", f)
	}
}

func TestOpenAPI(t *testing.T) {
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
	rec := send(h, "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string                                       `json:"openapi"`
		Paths   map[string]map[string]map[string]any         `json:"paths"`
		Comps   struct{ Schemas map[string]json.RawMessage } `json:"components"`
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatalf("%v, version %q", err, doc.OpenAPI)
	}
	var got []string
	ids := map[string]bool{}
	for route, verbs := range doc.Paths {
		for verb, op := range verbs {
			id, _ := op["operationId"].(string)
			if id == "" || ids[id] || op["summary"] == "" || op["tags"] == nil {
				t.Errorf("%s %s: id %q, %v", verb, route, id, op)
			}
			ids[id] = true
			if want, have := strings.Count(route, "{"), strings.Count(fmt.Sprint(op["parameters"]), "in:path"); want != have {
				t.Errorf("%s %s: %d of %d path parameters", verb, route, have, want)
			}
			got = append(got, fmt.Sprintf("%s %s %s %s", strings.ToUpper(verb), route, id, rolesOf(t, op)))
		}
	}
	sort.Strings(got)
	if text := strings.Join(got, "\n"); text != strings.TrimSpace(routes) {
		t.Errorf("routes:\n%s", text)
	}
	for _, ref := range strings.Split(rec.Body.String(), `"$ref":"`)[1:] {
		name := strings.TrimPrefix(ref[:strings.IndexByte(ref, '"')], "#/components/schemas/")
		if doc.Comps.Schemas[name] == nil {
			t.Errorf("schema %s is missing", name)
		}
	}
	if strings.Contains(rec.Body.String(), `"$schema":{`) || strings.Contains(rec.Body.String(), `"422"`) {
		t.Error("huma added $schema to bodies, or a status that is never sent")
	}
	for _, kind := range problem.Kinds() {
		if !strings.Contains(string(doc.Comps.Schemas["Problem"]), `"`+string(kind)+`"`) {
			t.Errorf("code %s is not in the document", kind)
		}
	}
	for name, schema := range doc.Comps.Schemas {
		if (strings.HasPrefix(name, "Page") || strings.HasSuffix(name, "Page")) && !strings.Contains(string(schema), `"items":{"items":`) {
			t.Errorf("%s is a list without its items: %s", name, schema)
		}
	}
	compileSchemas(t, rec.Body.Bytes(), doc.Comps.Schemas)
}

// compileSchemas checks that every named schema is a valid one (OpenAPI 3.1 uses JSON Schema 2020-12).
func compileSchemas(t *testing.T, document []byte, schemas map[string]json.RawMessage) {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("urn:openapi", parsed); err != nil {
		t.Fatal(err)
	}
	for name := range schemas {
		if _, err := c.Compile("urn:openapi#/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	if len(schemas) < 30 {
		t.Errorf("only %d schemas", len(schemas))
	}
}

// rolesOf reads from the document who may call a route.
func rolesOf(t *testing.T, op map[string]any) string {
	t.Helper()
	list, ok := op[route.RolesExtension].([]any)
	switch {
	case !ok:
		t.Errorf("%v: nothing says who may call it", op["operationId"])
	case len(list) == 0:
		return "anyone"
	case op[route.OperatorExtension] == true:
		return "operator"
	}
	names := make([]string, len(list))
	for i, r := range list {
		names[i], _ = r.(string)
	}
	return strings.Join(names, ",")
}

// routes is the API as published, and who may call it. Changing an id breaks generated clients.
const routes = `
DELETE /api/keys/{id} revokeKey admin
DELETE /api/marketplaces/{name} removeMarketplace admin
DELETE /api/mcp/servers/{name} deleteMCPServer operator
DELETE /api/mcp/servers/{name}/login endMCPLogin developer,admin
DELETE /api/packs/keys/{id} deletePackKey operator
DELETE /api/plugins/{name} removePlugin developer,admin
DELETE /api/secrets/{name} deleteSecret agent,developer,admin
DELETE /api/skills/custom/{name} deleteSkill developer,admin
DELETE /api/threads/{thread} deleteThread agent,developer,admin
DELETE /api/threads/{thread}/contexts/{context} deleteContext agent,developer,admin
DELETE /api/threads/{thread}/execs/{exec} killExec agent,developer,admin
DELETE /api/threads/{thread}/files deleteFile agent,developer,admin
DELETE /api/threads/{thread}/processes/{pid} killProcess agent,developer,admin
DELETE /api/threads/{thread}/sandbox releaseSandbox agent,developer,admin
DELETE /api/threads/{thread}/skills/{skill} removeVirtualSkill agent,developer,admin
DELETE /api/threads/{thread}/tools/active/{tool} putAwayTool agent,developer,admin
GET /api/approvals listApprovals agent,developer,admin
GET /api/approvals/{id} getApproval agent,developer,admin
GET /api/audit listAudit agent,developer,admin,auditor
GET /api/audit/checkpoint auditCheckpoint admin,auditor
GET /api/audit/export exportAudit agent,developer,admin,auditor
GET /api/audit/stream streamAudit agent,developer,admin,auditor
GET /api/audit/summary summarizeAudit agent,developer,admin,auditor
GET /api/doctor examineServer operator
GET /api/keys listKeys admin
GET /api/login listLogins anyone
GET /api/marketplaces listMarketplaces agent,developer,admin
GET /api/mcp/drift listToolDrift developer,admin
GET /api/mcp/servers listMCPServers operator
GET /api/mcp/servers/{name}/tools listMCPServerTools operator
GET /api/overview getOverview operator
GET /api/packs listPacks admin
GET /api/packs/keys listPackKeys operator
GET /api/packs/{id} getPack admin
GET /api/plugins listPlugins agent,developer,admin
GET /api/plugins/{name} getPlugin agent,developer,admin
GET /api/plugins/{name}/commands listPluginCommands agent,developer,admin
GET /api/policy getPolicy admin
GET /api/secrets listSecrets agent,developer,admin
GET /api/secrets/{name} getSecret agent,developer,admin
GET /api/servers listServers operator
GET /api/skills listSkills agent,developer,admin
GET /api/skills/custom/{name} getSkillText agent,developer,admin
GET /api/skills/{name} getSkill agent,developer,admin
GET /api/templates listTemplates agent,developer,admin
GET /api/templates/{name}/sbom templateSBOM agent,developer,admin
GET /api/threads listThreads agent,developer,admin
GET /api/threads/{thread} getThread agent,developer,admin
GET /api/threads/{thread}/contexts listContexts agent,developer,admin
GET /api/threads/{thread}/contexts/{context} getContext agent,developer,admin
GET /api/threads/{thread}/events followEvents agent,developer,admin
GET /api/threads/{thread}/execs listExecs agent,developer,admin
GET /api/threads/{thread}/execs/{exec} getExec agent,developer,admin
GET /api/threads/{thread}/execs/{exec}/events execEvents agent,developer,admin
GET /api/threads/{thread}/files readFile agent,developer,admin
GET /api/threads/{thread}/files/archive getArchive agent,developer,admin
GET /api/threads/{thread}/files/content getContent agent,developer,admin
GET /api/threads/{thread}/files/glob globFiles agent,developer,admin
GET /api/threads/{thread}/files/grep grepFiles agent,developer,admin
GET /api/threads/{thread}/files/list listFiles agent,developer,admin
GET /api/threads/{thread}/files/stat statFile agent,developer,admin
GET /api/threads/{thread}/files/watch watchFiles agent,developer,admin
GET /api/threads/{thread}/processes listProcesses agent,developer,admin
GET /api/threads/{thread}/prompt getPrompt agent,developer,admin
GET /api/threads/{thread}/pty joinTerminal agent,developer,admin
GET /api/threads/{thread}/sandbox/metrics sandboxMetrics agent,developer,admin
GET /api/threads/{thread}/servers listToolServers agent,developer,admin
GET /api/threads/{thread}/servers/{name}/tools listServerTools agent,developer,admin
GET /api/threads/{thread}/skills searchSkills agent,developer,admin
GET /api/threads/{thread}/skills/{skill}/files readSkillFile agent,developer,admin
GET /api/threads/{thread}/tools searchTools agent,developer,admin
GET /api/usage getUsage agent,developer,admin
GET /api/whoami whoami agent,developer,admin,auditor
GET /healthz healthz anyone
GET /metrics metrics operator
GET /readyz readyz anyone
HEAD /api/threads/{thread}/files/content headContent agent,developer,admin
POST /api/approvals/{id} decideApproval developer,admin
POST /api/audit/verify verifyAudit admin,auditor
POST /api/keys createKey admin
POST /api/login/oidc redeemLogin anyone
POST /api/marketplaces addMarketplace admin
POST /api/mcp/servers/{name}/drift/approve approveToolDrift developer,admin
POST /api/mcp/servers/{name}/install installMCPServer developer,admin
POST /api/mcp/servers/{name}/login beginMCPLogin developer,admin
POST /api/mcp/servers/{name}/login/finish finishMCPLogin developer,admin
POST /api/mcp/servers/{name}/reconnect reconnectMCPServer operator
POST /api/packs/keys addPackKey operator
POST /api/plugins/install installPlugin developer,admin
POST /api/policy/replay replayPolicy admin
POST /api/policy/test testPolicy admin
POST /api/secrets/rotate rotateSecrets operator
POST /api/skills/install installSkill developer,admin
POST /api/threads/{thread}/commands typedCommand agent,developer,admin
POST /api/threads/{thread}/commands/{plugin}/{command} invokeCommand agent,developer,admin
POST /api/threads/{thread}/contexts createContext agent,developer,admin
POST /api/threads/{thread}/contexts/{context}/interrupt interruptContext agent,developer,admin
POST /api/threads/{thread}/contexts/{context}/restart restartContext agent,developer,admin
POST /api/threads/{thread}/exec exec agent,developer,admin
POST /api/threads/{thread}/execs/{exec}/signal execSignal agent,developer,admin
POST /api/threads/{thread}/execs/{exec}/stdin execStdin agent,developer,admin
POST /api/threads/{thread}/execute_code executeCode agent,developer,admin
POST /api/threads/{thread}/files/download downloadFiles agent,developer,admin
POST /api/threads/{thread}/files/edit editFile agent,developer,admin
POST /api/threads/{thread}/files/mkdir makeFolder agent,developer,admin
POST /api/threads/{thread}/files/move moveFile agent,developer,admin
POST /api/threads/{thread}/files/upload uploadFiles agent,developer,admin
POST /api/threads/{thread}/sandbox/hibernate hibernateSandbox agent,developer,admin
POST /api/threads/{thread}/sandbox/pause pauseSandbox agent,developer,admin
POST /api/threads/{thread}/sandbox/resume resumeSandbox agent,developer,admin
POST /api/threads/{thread}/skills addVirtualSkill agent,developer,admin
POST /api/threads/{thread}/skills/{skill}/activate activateSkill agent,developer,admin
POST /api/threads/{thread}/skills/{skill}/run runSkill agent,developer,admin
POST /api/threads/{thread}/skills/{skill}/tools/{tool} callSkillTool agent,developer,admin
POST /api/threads/{thread}/tools/call callTool agent,developer,admin
PUT /api/mcp/servers/{name} putMCPServer operator
PUT /api/plugins/{name} changePlugin developer,admin
PUT /api/plugins/{name}/values setPluginValues developer,admin
PUT /api/policy putPolicy admin
PUT /api/secrets/{name} putSecret agent,developer,admin
PUT /api/skills/custom/{name} putSkillText developer,admin
PUT /api/skills/{name} switchSkill developer,admin
PUT /api/threads/{thread}/files writeFile agent,developer,admin
PUT /api/threads/{thread}/files/archive putArchive agent,developer,admin
PUT /api/threads/{thread}/files/content putContent agent,developer,admin
PUT /api/threads/{thread}/sandbox acquireSandbox agent,developer,admin
PUT /api/threads/{thread}/tools/active/{tool} activateTool agent,developer,admin
`

func TestDocsAndHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ready := true
	h := handler(t, w, func(o *Options) {
		o.Ready = func(context.Context) []Check {
			return []Check{{Name: "store", OK: true}, {Name: "driver docker", OK: ready, Detail: "no\nanswer"}}
		}
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })
	})
	rec := send(h, "GET", "/docs", "")
	if rec.Code != 200 || !strings.Contains(rec.Header().Get("Content-Security-Policy"), "script-src 'sha256-") || strings.Contains(rec.Body.String(), "http://") || strings.Contains(rec.Body.String(), "https://") {
		t.Errorf("docs: %d %v", rec.Code, rec.Header())
	}
	if m := decodeBody(t, send(h, "GET", "/healthz", "")); m["status"] != "ok" || m["version"] != "1.2.3" {
		t.Errorf("health %v", m)
	}
	if rec := send(h, "GET", "/metrics", ""); rec.Body.String() != "up 1\n" {
		t.Errorf("metrics %s", rec.Body)
	}
	if rec := send(h, "GET", "/readyz", ""); rec.Code != 200 || strings.Count(rec.Body.String(), "\n") != 2 {
		t.Errorf("ready %d %s", rec.Code, rec.Body)
	}
	ready = false
	rec = send(h, "GET", "/readyz", "")
	if rec.Code != 503 || rec.Body.String() != "store: ok\ndriver docker: not ready no answer\n" {
		t.Errorf("not ready %d %s", rec.Code, rec.Body)
	}
	rec = send(h, "GET", "/readyz", "", "Accept: application/json")
	if m := decodeBody(t, rec); rec.Code != 503 || m["ready"] != false || len(m["checks"].([]any)) != 2 {
		t.Errorf("not ready %d %v", rec.Code, m)
	}
	wantProblem(t, send(handler(t, w), "GET", "/metrics", ""), 404, "not_found")
	keys := handler(t, w, func(o *Options) {
		o.Keys, o.Anonymous = w, nil
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })
	})
	wantProblem(t, send(keys, "GET", "/metrics", ""), 401, "unauthorized")
	wantProblem(t, send(keys, "GET", "/metrics", "", "X-API-Key: ann"), 403, "forbidden")
	if rec := send(keys, "GET", "/metrics", "", "X-API-Key: root"); rec.Body.String() != "up 1\n" {
		t.Errorf("metrics with an administrator's key: %d %s", rec.Code, rec.Body)
	}
}
