package oidc

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var aCode = Code{Code: "c1", Verifier: "v1", Nonce: "n1", RedirectURI: "https://skerry.example/ui/login/done"}

// loginBed is one whose issuer takes logins of the client "console".
func loginBed(t *testing.T) *bed {
	t.Helper()
	return newBed(t, func(i *Issuer) { i.ClientID, i.Scopes = "console", []string{"openid", "roles"} }, public("k1", "RS256", rsaKey), public("k2", "ES256", ecKey))
}

// answers makes the token endpoint answer with a status and a document, and returns the forms that it was sent.
func (b *bed) answers(status int, doc any) *[]map[string][]string {
	forms := &[]map[string][]string{}
	b.is.change(func() {
		b.is.token = func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			*forms = append(*forms, r.PostForm)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(doc)
		}
	})
	return forms
}

// idToken is one of this login, with changes.
func (b *bed) idToken(t *testing.T, changes map[string]any) string {
	t.Helper()
	all := map[string]any{"aud": []string{"console", "skerry"}, "azp": "console", "nonce": "n1"}
	for k, v := range changes {
		all[k] = v
	}
	return b.token(t, all)
}

func TestLogin(t *testing.T) {
	b := loginBed(t)
	logins := b.Logins(t.Context())
	if len(logins) != 1 || logins[0].AuthorizationEndpoint != b.is.URL+"/auth?tenant=x" || logins[0].ClientID != "console" || !slices.Equal(logins[0].Scopes, []string{"openid", "roles"}) {
		t.Fatalf("logins %+v", logins)
	}
	id := b.idToken(t, nil)
	forms := b.answers(200, map[string]any{"access_token": "opaque", "id_token": id, "refresh_token": "r1", "token_type": "Bearer"})
	got, err := b.Exchange(t.Context(), b.is.URL, aCode)
	if err != nil || got.Credential != id || got.Refresh != "r1" || got.ValidFor != time.Hour {
		t.Fatalf("%+v %v", got, err)
	}
	b.wants(t, "the credential", got.Credential, "")
	form := (*forms)[0]
	for name, want := range map[string]string{
		"grant_type": "authorization_code", "code": "c1", "code_verifier": "v1", "redirect_uri": aCode.RedirectURI, "client_id": "console",
	} {
		if !slices.Equal(form[name], []string{want}) {
			t.Errorf("%s = %q, want %q", name, form[name], want)
		}
	}
	// An access token that is for this server is the better one.
	access := b.token(t, map[string]any{"exp": b.clock.now().Add(time.Minute).Unix()})
	b.answers(200, map[string]any{"access_token": access, "id_token": b.idToken(t, map[string]any{"aud": "console"})})
	if got, err = b.Exchange(t.Context(), b.is.URL, aCode); err != nil || got.Credential != access || got.Refresh != "" || got.ValidFor != time.Minute {
		t.Errorf("%+v %v", got, err)
	}
	// A refresh token that is not replaced stays good; the ID token need not come, nor have the nonce.
	for _, id := range []any{nil, b.idToken(t, map[string]any{"nonce": nil})} {
		forms = b.answers(200, map[string]any{"access_token": access, "id_token": id})
		got, err = b.Refresh(t.Context(), b.is.URL, "r1")
		if err != nil || got.Refresh != "r1" || got.Credential != access || !slices.Equal((*forms)[0]["refresh_token"], []string{"r1"}) || (*forms)[0]["code"] != nil {
			t.Errorf("%+v %v %v", got, err, *forms)
		}
	}
}

func TestLoginRefused(t *testing.T) {
	b := loginBed(t)
	good := b.idToken(t, nil)
	forged := sign(t, jose.RS256, rsaOther, "k1", b.claims(map[string]any{"aud": "console", "nonce": "n1"}), nil)
	for what, c := range map[string]struct {
		status int
		doc    map[string]any
		kind   sandbox.Kind
		words  string
	}{
		"replayed":              {400, map[string]any{"error": "invalid_grant", "error_description": "code was\nused\u202e already"}, sandbox.Unauthorized, "refused the login: invalid_grant (code was?used? already)"},
		"no words":              {401, map[string]any{"error": "invalid_client"}, sandbox.Unauthorized, "refused the login: invalid_client"},
		"many words":            {400, map[string]any{"error": "x", "error_description": strings.Repeat("y", 1000)}, sandbox.Unauthorized, "x (y"},
		"broken":                {500, map[string]any{"error": "server_error"}, sandbox.Unavailable, "answered the login with 500"},
		"redirected":            {302, map[string]any{}, sandbox.Unavailable, "answered the login with 302"},
		"nothing":               {200, map[string]any{}, sandbox.Unavailable, "with no tokens"},
		"no ID token":           {200, map[string]any{"access_token": b.token(t, nil)}, sandbox.Unauthorized, "sent no ID token"},
		"nonce of another":      {200, map[string]any{"id_token": b.idToken(t, map[string]any{"nonce": "n2"})}, sandbox.Unauthorized, "its nonce is not"},
		"no nonce":              {200, map[string]any{"id_token": b.idToken(t, map[string]any{"nonce": nil})}, sandbox.Unauthorized, "its nonce is not"},
		"for another client":    {200, map[string]any{"id_token": b.idToken(t, map[string]any{"aud": "skerry"})}, sandbox.Unauthorized, "another audience than console"},
		"of another party":      {200, map[string]any{"id_token": b.idToken(t, map[string]any{"azp": "other"})}, sandbox.Unauthorized, "for another client"},
		"expired":               {200, map[string]any{"id_token": b.idToken(t, map[string]any{"exp": b.clock.now().Add(-time.Hour).Unix()})}, sandbox.Unauthorized, "it expired"},
		"forged":                {200, map[string]any{"id_token": forged}, sandbox.Unauthorized, "signature"},
		"not for this server":   {200, map[string]any{"id_token": b.idToken(t, map[string]any{"aud": "console"})}, sandbox.Unauthorized, "another audience than skerry"},
		"no role":               {200, map[string]any{"id_token": b.idToken(t, map[string]any{"realm": nil})}, sandbox.Unauthorized, "no role"},
		"access of another":     {200, map[string]any{"access_token": b.token(t, map[string]any{"sub": "bob"}), "id_token": b.idToken(t, map[string]any{"aud": "console"})}, sandbox.Unauthorized, "another audience"},
		"refresh without bound": {200, map[string]any{"id_token": good, "refresh_token": strings.Repeat("r", maxRefreshBytes+1)}, sandbox.Unauthorized, "refresh token of more than"},
		"huge":                  {200, map[string]any{"id_token": good, "x": strings.Repeat("x", maxTokens)}, sandbox.Unavailable, "more than"},
	} {
		b.answers(c.status, c.doc)
		got, err := b.Exchange(t.Context(), b.is.URL, aCode)
		if got != (Tokens{}) || sandbox.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.words) || len(err.Error()) > 500 {
			t.Errorf("%s: %+v %v", what, got, err)
		}
	}
	if _, err := b.Exchange(t.Context(), "https://other.example", aCode); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another issuer: %v", err)
	}
	if _, err := newBed(t, nil).Exchange(t.Context(), b.is.URL, aCode); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("an issuer without logins: %v", err)
	}
	b.answers(200, map[string]any{"id_token": good})
	if _, err := b.Exchange(t.Context(), b.is.URL, aCode); err != nil {
		t.Errorf("a good one is refused after all of these: %v", err)
	}
}

// TestSlowLogin: an issuer that hangs holds nobody longer than the caller waits.
func TestSlowLogin(t *testing.T) {
	b := loginBed(t)
	b.is.change(func() {
		b.is.token = func(_ http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm() // net/http sees a client go away once it has read the body
			<-r.Context().Done()
		}
	})
	b.Logins(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Exchange(ctx, b.is.URL, aCode); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
}

func TestDescriptionOfLogins(t *testing.T) {
	for what, change := range map[string]func(doc map[string]any){
		"none":                  func(doc map[string]any) { clear(doc) },
		"of another issuer":     func(doc map[string]any) { doc["issuer"] = "https://other.example" },
		"no token endpoint":     func(doc map[string]any) { delete(doc, "token_endpoint") },
		"http elsewhere":        func(doc map[string]any) { doc["token_endpoint"] = "http://login.example/token" },
		"a script":              func(doc map[string]any) { doc["authorization_endpoint"] = "javascript:alert(1)" },
		"with a password":       func(doc map[string]any) { doc["authorization_endpoint"] = "https://a:b@login.example" },
		"larger than its bound": func(doc map[string]any) { doc["x"] = strings.Repeat("x", maxDocument) },
	} {
		b := loginBed(t)
		doc := map[string]any{"issuer": b.is.URL, "jwks_uri": b.is.URL + "/keys", "authorization_endpoint": b.is.URL + "/auth", "token_endpoint": b.is.URL + "/token"}
		change(doc)
		b.is.change(func() { b.is.doc = doc })
		if l := b.Logins(t.Context()); len(l) != 1 || l[0].AuthorizationEndpoint != "" {
			t.Errorf("%s: %+v", what, l)
		}
		if _, err := b.Exchange(t.Context(), b.is.URL, aCode); sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
		// It is asked again after a while, and the former one is good while the issuer is away.
		b.is.change(func() { b.is.doc = nil })
		if l := b.Logins(t.Context()); l[0].AuthorizationEndpoint != "" {
			t.Errorf("%s: it is asked again at once", what)
		}
		b.clock.add(fetchPause)
		if l := b.Logins(t.Context()); l[0].AuthorizationEndpoint == "" {
			t.Errorf("%s: it is not asked again", what)
		}
		b.is.change(func() { b.is.doc = map[string]any{} })
		b.clock.add(refreshAfter)
		if l := b.Logins(t.Context()); l[0].AuthorizationEndpoint == "" {
			t.Errorf("%s: the former one is forgotten", what)
		}
		b.clock.add(keepFor)
		if l := b.Logins(t.Context()); l[0].AuthorizationEndpoint != "" {
			t.Errorf("%s: the former one is kept for good", what)
		}
	}
}

func TestLoginSettings(t *testing.T) {
	good := Issuer{URL: "https://login.example", Audiences: []string{"a"}, Tenant: "t", DefaultRole: sandbox.RoleAgent, ClientID: "console"}
	s, err := Open([]Issuer{good}, Options{})
	if err != nil || !slices.Equal(s.ordered[0].Scopes, []string{"openid"}) {
		t.Fatalf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for words, change := range map[string]func(*Issuer){
		"client_id: ":         func(i *Issuer) { i.ClientID = "a\nb" },
		"needs client_id":     func(i *Issuer) { i.ClientID, i.Scopes = "", []string{"openid"} },
		"openid is missing":   func(i *Issuer) { i.Scopes = []string{"roles"} },
		`"a b" is none`:       func(i *Issuer) { i.Scopes = []string{"openid", "a b"} },
		"21 are more than 20": func(i *Issuer) { i.Scopes = append(slices.Repeat([]string{"x"}, 20), "openid") },
	} {
		bad := good
		change(&bad)
		if _, err := Open([]Issuer{bad}, Options{}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
}
