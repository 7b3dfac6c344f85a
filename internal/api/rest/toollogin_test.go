package rest

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestMCPLogin: everybody logs in at MCP servers in their own name, and administrators see who waits.
func TestMCPLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configs["crm"] = json.RawMessage(`{"url":"https://crm.example/mcp"}`)
	h := handler(t, w, func(o *Options) { o.Keys, o.Anonymous = w, nil })
	const path = "/api/mcp/servers/crm/login"
	rec := send(h, "POST", path, `{"redirect_uri":"http://127.0.0.1:9/callback"}`, "X-API-Key: bob")
	m := decodeBody(t, rec)
	if rec.Code != 200 || m["url"] != "https://as.example/?for=crm+bob" || m["redirect_uri"] != "http://127.0.0.1:9/callback" {
		t.Errorf("begin: %d %s", rec.Code, rec.Body)
	}
	if rec := send(h, "POST", path+"/finish", `{"redirected":"http://127.0.0.1:9/callback?code=c&state=s"}`, "X-API-Key: bob"); rec.Code != 204 || w.login != "crm http://127.0.0.1:9/callback?code=c&state=s" {
		t.Errorf("finish: %d %s %s", rec.Code, rec.Body, w.login)
	}
	if rec := send(h, "DELETE", path, "", "X-API-Key: bob"); rec.Code != 204 || w.login != "out crm" {
		t.Errorf("logout: %d %s %s", rec.Code, rec.Body, w.login)
	}
	for _, body := range []string{`{}`, `{"redirect_uri":""}`, `{"redirect_uri":"` + strings.Repeat("x", 3000) + `"}`} {
		wantProblem(t, send(h, "POST", path, body, "X-API-Key: bob"), 400, "invalid")
	}
	wantProblem(t, send(h, "POST", path, `{"redirect_uri":"x"}`), 401, "unauthorized")
	if rec := send(h, "GET", "/api/mcp/servers", "", "X-API-Key: root"); !strings.Contains(rec.Body.String(), `"state":"needs_login","error":"wants a login"`) {
		t.Errorf("list: %d %s", rec.Code, rec.Body)
	}
}
