package hub

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// authServer is an authorization server, and an MCP server that wants its tokens. Where it can be lax, it
// is strict.
type authServer struct {
	*httptest.Server
	mcp *httptest.Server

	mu       sync.Mutex
	n        int
	change   map[string]any        // of the authorization server's metadata
	resource map[string]any        // of the protected resource's
	codes    map[string]url.Values // what was asked for, by code
	tokens   map[string]string     // scopes, by access token
	refresh  map[string]string     // scopes, by refresh token
	requests []string              // grants that were asked for, and what became of them
	clients  int                   // that were registered
	life     int                   // seconds of a token; 0: it says nothing
	iss      bool                  // is sent with the answer
	adminTo  string                // the tool that needs the scope admin
	seen     []string              // Authorization headers at the MCP server
}

func newAuthServer(t *testing.T) *authServer {
	a := &authServer{change: map[string]any{}, resource: map[string]any{}, codes: map[string]url.Values{}, tokens: map[string]string{}, refresh: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", a.metadata)
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		var in map[string]any
		if json.NewDecoder(r.Body).Decode(&in) != nil || in["application_type"] != "native" {
			http.Error(w, `{"error":"invalid_client_metadata"}`, http.StatusBadRequest)
			return
		}
		a.clients++
		in["client_id"], in["client_secret"], in["token_endpoint_auth_method"] = fmt.Sprint("client-", a.clients), "registered-secret", "client_secret_post"
		reply(w, http.StatusCreated, in)
	})
	mux.HandleFunc("GET /authorize", a.authorize)
	mux.HandleFunc("POST /token", a.token)
	mux.HandleFunc("POST /revoke", func(w http.ResponseWriter, r *http.Request) {
		delete(a.refresh, r.FormValue("token"))
		a.requests = append(a.requests, "revoke")
	})
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	handler := newHandler(t, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	a.mcp = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.admits(w, r) {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		a.mcp.CloseClientConnections()
		a.mcp.Close()
	})
	return a
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (a *authServer) metadata(w http.ResponseWriter, _ *http.Request) {
	m := map[string]any{
		"issuer": a.URL, "authorization_endpoint": a.URL + "/authorize", "token_endpoint": a.URL + "/token", "registration_endpoint": a.URL + "/register",
		"revocation_endpoint": a.URL + "/revoke", "code_challenge_methods_supported": []string{"S256"}, "scopes_supported": []string{"offline_access"},
		"authorization_response_iss_parameter_supported": a.iss, "token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"},
	}
	maps.Copy(m, a.change)
	reply(w, http.StatusOK, m)
}

// admits checks a request to the MCP server, and serves its metadata.
func (a *authServer) admits(w http.ResponseWriter, r *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/.well-known/") {
		if r.URL.Path != "/.well-known/oauth-protected-resource/mcp" {
			http.NotFound(w, r)
			return false
		}
		m := map[string]any{"resource": a.mcp.URL + "/mcp", "authorization_servers": []string{a.URL}, "scopes_supported": []string{"tools"}}
		maps.Copy(m, a.resource)
		reply(w, http.StatusOK, m)
		return false
	}
	a.seen = append(a.seen, r.Header.Get("Authorization"))
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	scopes, ok := a.tokens[token]
	place := fmt.Sprintf(`resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, a.mcp.URL)
	switch {
	case !ok:
		w.Header().Set("WWW-Authenticate", "Bearer "+place)
		reply(w, http.StatusUnauthorized, map[string]string{"error": "no good: " + token})
	case a.adminTo != "" && r.Header.Get("Mcp-Name") == a.adminTo && !slices.Contains(strings.Fields(scopes), "admin"):
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="admin", `+place)
		reply(w, http.StatusForbidden, map[string]string{"error": "insufficient_scope"})
	default:
		return true
	}
	return false
}

func (a *authServer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("resource") != a.mcp.URL+"/mcp" || q.Get("response_type") != "code" {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	a.n++
	code := fmt.Sprint("code-", a.n)
	a.codes[code] = q
	to := url.Values{"code": {code}, "state": {q.Get("state")}}
	if a.iss {
		to.Set("iss", a.URL)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+to.Encode(), http.StatusFound)
}

func (a *authServer) token(w http.ResponseWriter, r *http.Request) {
	grant := r.FormValue("grant_type")
	scopes, problem := "", ""
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	switch {
	case secret != "registered-secret" && secret != "open-sesame-42":
		problem = "invalid_client"
	case r.FormValue("resource") != a.mcp.URL+"/mcp":
		problem = "invalid_target"
	case grant == "authorization_code":
		asked, ok := a.codes[r.FormValue("code")]
		delete(a.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if !ok || asked.Get("client_id") != id || asked.Get("redirect_uri") != r.FormValue("redirect_uri") || base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") {
			problem = "invalid_grant"
		}
		scopes = asked.Get("scope")
	case grant == "refresh_token":
		s, ok := a.refresh[r.FormValue("refresh_token")]
		if !ok {
			problem = "invalid_grant"
		}
		delete(a.refresh, r.FormValue("refresh_token")) // it is good for once
		scopes = s
	case grant == "client_credentials":
		scopes = r.FormValue("scope")
	default:
		problem = "unsupported_grant_type"
	}
	a.requests = append(a.requests, strings.TrimSpace(grant+" "+problem))
	if problem != "" {
		reply(w, http.StatusBadRequest, map[string]string{"error": problem, "error_description": "you sent " + secret + " and " + r.FormValue("refresh_token")})
		return
	}
	a.n++
	access, refresh := fmt.Sprint("access-token-", a.n), fmt.Sprint("refresh-token-", a.n)
	a.tokens[access] = scopes
	out := map[string]any{"access_token": access, "token_type": "bearer", "scope": scopes}
	if grant != "client_credentials" {
		a.refresh[refresh] = scopes
		out["refresh_token"] = refresh
	}
	if a.life > 0 {
		out["expires_in"] = a.life
	}
	reply(w, http.StatusOK, out)
}

// asked returns the requests for tokens so far, and forgets them.
func (a *authServer) asked() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := strings.Join(a.requests, ", ")
	a.requests = nil
	return all
}

// with changes the server.
func (a *authServer) with(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}
