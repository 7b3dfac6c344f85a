package rest

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
)

// TestConsoleRoutes: the console needs no credential and takes no place of the API's; without it, its paths are no routes.
func TestConsoleRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	with := handler(t, w, func(o *Options) {
		o.Keys, o.Anonymous = w, nil
		o.Console = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("console " + r.URL.Path)) })
	})
	for _, path := range []string{"/ui", "/ui/", "/ui/threads/a/files"} {
		if rec := send(with, "GET", path, ""); rec.Code != http.StatusOK || rec.Body.String() != "console "+path {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
	if rec := send(with, "GET", "/", ""); rec.Code != http.StatusFound || rec.Header().Get("Location") != "/ui/" {
		t.Errorf("/: %d %v", rec.Code, rec.Header())
	}
	wantProblem(t, send(with, "GET", "/api/threads", ""), 401, "unauthorized")
	wantProblem(t, send(with, "POST", "/ui/", ""), 405, "invalid")
	for _, path := range []string{"/", "/ui/"} {
		wantProblem(t, send(handler(t, newWorld(t)), "GET", path, ""), 404, "not_found")
	}
}

// TestWhoami: every caller learns who it is, also one whose key is for some threads only.
func TestWhoami(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w, func(o *Options) { o.Keys, o.Anonymous, o.OperatorTenant = roleKeys{w}, nil, "ops" })
	for _, c := range []struct {
		key, role string
		operator  bool
		threads   int
	}{{"agent", "agent", false, 0}, {"auditor", "auditor", false, 0}, {"operator", "admin", true, 0}, {"ci", "admin", false, 1}} {
		m := decodeBody(t, send(h, "GET", "/api/whoami", "", "X-API-Key: "+c.key))
		threads, _ := m["threads"].([]any)
		if m["role"] != c.role || m["operator"] != c.operator || len(threads) != c.threads || m["user"] != "ann" || m["method"] != "key" {
			t.Errorf("%s: %v", c.key, m)
		}
	}
	wantProblem(t, send(h, "GET", "/api/whoami", ""), 401, "unauthorized")
	if m := decodeBody(t, send(handler(t, newWorld(t)), "GET", "/api/whoami", "")); m["method"] != "none" || m["role"] != "admin" {
		t.Errorf("without keys: %v", m)
	}
}

// TestTerminalOfPages: a page joins a terminal with its key as a subprotocol, which is never selected, and counts for WebSockets
// alone.
func TestTerminalOfPages(t *testing.T) {
	t.Parallel()
	h := newTerminalHost(t)
	offer := func(key string) http.Header {
		return http.Header{"Sec-Websocket-Protocol": {"skerry.terminal, " + access.ProtocolPrefix + base64.RawURLEncoding.EncodeToString([]byte(key))}}
	}
	offered := strings.Split(offer("ann").Get("Sec-WebSocket-Protocol"), ", ")
	conn, _, err := websocket.Dial(t.Context(), h.url+"/api/threads/t1/pty?exec=tty", &websocket.DialOptions{Subprotocols: offered})
	if err != nil || conn.Subprotocol() != "skerry.terminal" {
		t.Fatalf("%v, subprotocol %v", err, conn)
	}
	defer func() { _ = conn.CloseNow() }()
	for name, header := range map[string]http.Header{
		"wrong key":   offer("nobody"),
		"no key":      {"Sec-Websocket-Protocol": {"skerry.terminal"}},
		"not base64":  {"Sec-Websocket-Protocol": {"skerry.terminal, " + access.ProtocolPrefix + "%%"}},
		"other names": {"Sec-Websocket-Protocol": {"bearer.YW5u"}},
	} {
		if _, status := h.dial("exec=tty", header); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, status)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/api/threads", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = offer("ann")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a request that is no WebSocket: %d", res.StatusCode)
	}
}
