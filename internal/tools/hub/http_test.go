package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// remoteServer serves the test server over HTTP and asks for a token.
type remoteServer struct {
	*httptest.Server
	fail   atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	handle atomic.Pointer[http.Handler]
}

func newHandler(t *testing.T, o *mcp.StreamableHTTPOptions) http.Handler {
	srv := newTestServer()
	t.Cleanup(func() {
		for session := range srv.Sessions() {
			_ = session.Close()
		}
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, o)
}

func serveHTTP(t *testing.T, h http.Handler) *remoteServer {
	s := &remoteServer{}
	s.handle.Store(&h)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer open-sesame-42" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"bad token %s"}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			return
		}
		if f := s.fail.Load(); f != nil && (*f)(w, r) {
			return
		}
		(*s.handle.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func remoteConfig(kind, url string) string {
	return withServers(fmt.Sprintf(`"r":{"type":%q,"url":%q,"headers":{"Authorization":"Bearer ${SECRET}"}}`, kind, url))
}

// TestHTTP: the same over each way in which HTTP servers answer.
func TestHTTP(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*mcp.StreamableHTTPOptions{
		"events": {}, "json": {JSONResponse: true}, "stateless": {Stateless: true, JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveHTTP(t, newHandler(t, o))
			r := open(t, remoteConfig("streamable-http", s.URL))
			if got := r.ok("r__echo", `{"message":"a"}`); got != `"a"` {
				t.Error(got)
			}
			if got := r.ok("r__structured", ""); !strings.HasPrefix(got, `{"z":9007199254740993,"a"`) {
				t.Errorf("digits or order are lost: %s", got)
			}
			tool, _ := r.Catalog.Resolve(context.Background(), alice, sandbox.ToolRef{Printed: "r__echo"})
			if z, m := strings.Index(string(tool.Input), "zulu"), strings.Index(string(tool.Input), "message"); z < 0 || z > m {
				t.Errorf("order is lost: %s", tool.Input)
			}
			if s := r.state("r"); s.Transport != "http" || s.State != "ready" {
				t.Errorf("%+v", s)
			}
			r.fails("r__flood", `{"bytes":20000000}`, sandbox.ToolFailed, "larger than 16777216 bytes")
			if got := r.ok("r__flood", `{"bytes":3000000}`); len(got) != 3000002 {
				t.Errorf("%d bytes", len(got))
			}
			res, err := r.call("r__fail", "")
			if err != nil || !res.IsError || string(res.Result) != `"it did not work"` {
				t.Errorf("%v %+v", err, res)
			}
		})
	}
}

func TestHTTPListChanged(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, newHandler(t, &mcp.StreamableHTTPOptions{}))
	r := open(t, remoteConfig("http", s.URL))
	r.ok("r__echo", `{"message":"a"}`)
	time.Sleep(200 * time.Millisecond) // the stream for notifications opens after the first answer
	r.ok("r__grow", "")
	eventually(t, "the new tool", func() bool {
		_, err := r.call("r__grown", "")
		return err == nil
	})
}

func TestOldSSE(t *testing.T) {
	t.Parallel()
	srv := newTestServer()
	s := serveHTTP(t, mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	r := open(t, remoteConfig("sse", s.URL))
	if got := r.ok("r__echo", `{"message":"a"}`); got != `"a"` {
		t.Error(got)
	}
	if got := r.ok("r__structured", ""); !json.Valid([]byte(got)) {
		t.Error(got)
	}
}

func TestHTTPErrors(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, newHandler(t, &mcp.StreamableHTTPOptions{}))
	r := open(t, withServers(fmt.Sprintf(`"r":{"type":"http","url":%q,"headers":{"Authorization":"Bearer wrong-token-99"}}`, s.URL)))
	r.fails("r__echo", `{"message":"a"}`, sandbox.Unavailable, "MCP Error (401): bad token ***")
	if st := r.state("r"); st.State != "failed" || strings.Contains(st.Error, "wrong-token") {
		t.Errorf("%+v", st)
	}

	r = open(t, remoteConfig("http", s.URL))
	r.ok("r__echo", `{"message":"a"}`)
	answer := func(status int, kind, body string) {
		f := func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method != http.MethodPost {
				return false
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
			return true
		}
		s.fail.Store(&f)
	}
	for _, c := range []struct {
		status           int
		kind, body, want string
	}{
		{403, "text/plain", "not for\nyou", "MCP Error (403): not for you"},
		{429, "application/problem+json", `{"detail":"too many of open-sesame-42"}`, "MCP Error (429): too many of ***"},
		{500, "text/html", "<html>", "MCP Error (500): Internal Server Error"},
		{401, "application/json", `{"error":"invalid_token","error_description":"expired"}`, "MCP Error (401): expired"},
	} {
		answer(c.status, c.kind, c.body)
		r.fails("r__echo", `{"message":"a"}`, sandbox.ToolFailed, c.want)
		s.fail.Store(nil)
		eventually(t, "it works again", func() bool {
			_, err := r.call("r__echo", `{"message":"a"}`)
			return err == nil
		})
	}
}

// TestForgottenSession: a server that was started anew knows no session; the call has not been made and
// is sent once more.
func TestForgottenSession(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, newHandler(t, &mcp.StreamableHTTPOptions{}))
	r := open(t, remoteConfig("http", s.URL))
	r.ok("r__echo", `{"message":"a"}`)
	f := func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodPost || req.Header.Get("Mcp-Session-Id") == "" {
			return false
		}
		http.Error(w, "session not found", http.StatusNotFound)
		s.fail.Store(nil)
		return true
	}
	s.fail.Store(&f)
	if got := r.ok("r__echo", `{"message":"b"}`); got != `"b"` {
		t.Error(got)
	}
}

// TestRedirect: a server that sends its clients elsewhere does not send their credentials along.
func TestRedirect(t *testing.T) {
	t.Parallel()
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		leaked.Store(true)
	}))
	defer other.Close()
	s := serveHTTP(t, http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	r := open(t, remoteConfig("http", s.URL))
	r.fails("r__echo", `{"message":"b"}`, sandbox.Unavailable, "redirects to another one")
	if leaked.Load() {
		t.Error("the redirect was followed")
	}
}
