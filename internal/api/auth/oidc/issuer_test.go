package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Keys of the tests: making RSA keys is slow.
var (
	rsaKey, _   = rsa.GenerateKey(rand.Reader, 2048)
	rsaOther, _ = rsa.GenerateKey(rand.Reader, 2048)
	rsaSmall, _ = rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // to be refused
	ecKey, _    = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ec384, _    = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, edKey, _ = ed25519.GenerateKey(rand.Reader)
)

// testIssuer is an identity provider: a server with a description and keys, which may be changed and broken.
type testIssuer struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []jose.JSONWebKey
	doc    map[string]any // instead of the description
	broken bool
	hold   chan struct{}    // answers wait for it
	asked  int              // for keys
	token  http.HandlerFunc // the token endpoint
}

func newIssuer(t *testing.T, keys ...jose.JSONWebKey) *testIssuer {
	t.Helper()
	is := &testIssuer{keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		is.mu.Lock()
		defer is.mu.Unlock()
		doc := is.doc
		if doc == nil {
			doc = map[string]any{"issuer": is.URL, "jwks_uri": is.URL + "/keys", "authorization_endpoint": is.URL + "/auth?tenant=x", "token_endpoint": is.URL + "/token"}
		}
		_ = json.NewEncoder(w).Encode(doc)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		is.mu.Lock()
		is.asked++
		keys, broken, hold := is.keys, is.broken, is.hold
		is.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		if broken {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		is.mu.Lock()
		token := is.token
		is.mu.Unlock()
		token(w, r)
	})
	is.Server = httptest.NewServer(mux)
	t.Cleanup(is.Close)
	return is
}

func (is *testIssuer) change(f func()) {
	is.mu.Lock()
	defer is.mu.Unlock()
	f()
}

func (is *testIssuer) count() int {
	is.mu.Lock()
	defer is.mu.Unlock()
	return is.asked
}

// public is the entry of a key set.
func public(kid, alg string, key crypto.Signer) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key.Public(), KeyID: kid, Algorithm: alg, Use: "sig"}
}

// testClock is a clock that tests move.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// bed is a server's view of one issuer.
type bed struct {
	*Issuers
	is    *testIssuer
	clock *testClock
}

func newBed(t *testing.T, change func(*Issuer), keys ...jose.JSONWebKey) *bed {
	t.Helper()
	if len(keys) == 0 {
		keys = []jose.JSONWebKey{public("k1", "RS256", rsaKey)}
	}
	is := newIssuer(t, keys...)
	conf := Issuer{URL: is.URL, Audiences: []string{"skerry"}, TenantClaim: "org", RolesClaim: "/realm/roles", CapabilitiesClaim: "scope"}
	if change != nil {
		change(&conf)
	}
	clock := &testClock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s, err := Open([]Issuer{conf}, Options{Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &bed{Issuers: s, is: is, clock: clock}
}

// claims are those of a good token, with changes; a nil value takes a claim away.
func (b *bed) claims(changes map[string]any) map[string]any {
	now := b.clock.now()
	c := map[string]any{
		"iss": b.is.URL, "aud": "skerry", "sub": "ann", "org": "acme", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"realm": map[string]any{"roles": []string{"agent"}}, "scope": "openid mail.send",
	}
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

// sign makes a token; headers are added to its head.
func sign(t testing.TB, alg jose.SignatureAlgorithm, key any, kid string, claims any, headers map[jose.HeaderKey]any) string {
	t.Helper()
	o := (&jose.SignerOptions{}).WithType("JWT")
	if kid != "" {
		o = o.WithHeader("kid", kid)
	}
	for k, v := range headers {
		o = o.WithHeader(k, v)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := s.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	text, err := obj.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (b *bed) token(t testing.TB, changes map[string]any) string {
	t.Helper()
	return sign(t, jose.RS256, rsaKey, "k1", b.claims(changes), nil)
}

func (b *bed) wants(t *testing.T, what, token string, kind sandbox.Kind) sandbox.Caller {
	t.Helper()
	c, err := b.Authenticate(t.Context(), token)
	if kind == "" && err != nil || kind != "" && sandbox.KindOf(err) != kind {
		t.Errorf("%s: %+v, %v; want %q", what, c, err, kind)
	}
	return c
}
