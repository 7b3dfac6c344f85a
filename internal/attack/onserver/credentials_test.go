package onserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// issuer is the identity provider that the server knows. Its tokens are an agent's of the tenant "tokens".
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func startIssuer() (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
	})
	i.Server = httptest.NewServer(mux)
	return i, nil
}

// config is what the server is told of it.
func (i *issuer) config() string {
	return fmt.Sprintf("[{issuer: %q, audiences: [skerry], tenant_claim: org, tenants: [tokens], roles_claim: roles}]", i.URL)
}

func (i *issuer) claims(change map[string]any) map[string]any {
	c := map[string]any{"iss": i.URL, "aud": "skerry", "sub": "tess", "org": "tokens", "roles": []string{"agent"}, "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range change {
		c[k] = v
	}
	return c
}

func signed(t *testing.T, key *ecdsa.PrivateKey, claims map[string]any, headers map[jose.HeaderKey]any) string {
	t.Helper()
	o := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "k1")
	for k, v := range headers {
		o = o.WithHeader(k, v)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, o)
	must(t, err)
	raw, err := json.Marshal(claims)
	must(t, err)
	obj, err := s.Sign(raw)
	must(t, err)
	text, err := obj.CompactSerialize()
	must(t, err)
	return text
}

// as makes a request with a credential, from an address of this machine ("" = any).
func (b *bed) as(t *testing.T, credential, from, method, path string, body any, headers ...string) answer {
	t.Helper()
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		must(t, err)
		in = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(t.Context(), requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, in)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+credential)
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := http.DefaultClient
	if from != "" {
		tr := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}
		defer tr.CloseIdleConnections()
		client = &http.Client{Transport: tr}
	}
	res, err := client.Do(req)
	must(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	must(t, err)
	return answer{res.StatusCode, res.Header, raw}
}

// newKey makes a key of a role.
func (b *bed) newKey(t *testing.T, body map[string]any) string {
	t.Helper()
	body["name"] = "attack"
	var made struct{ Secret string }
	a := b.do(t, "", "POST", "/api/keys", body)
	if err := json.Unmarshal(a.body, &made); err != nil || a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return made.Secret
}

// administration is what takes an administrator.
var administration = [][2]string{
	{"GET", "/api/keys"}, {"POST", "/api/keys"}, {"DELETE", "/api/keys/key_0"}, {"GET", "/api/mcp/servers"}, {"PUT", "/api/mcp/servers/evil"}, {"GET", "/metrics"},
	{"POST", "/api/marketplaces"}, {"POST", "/api/mcp/servers/far/reconnect"},
}

func credentials() []attack {
	return []attack{
		{
			name: "forged-tokens", class: "credentials", does: "a token without a signature, signed by HMAC with the published key, by a key of the attacker's that jku, x5u or jwk point to, or meant for others",
			expect: "401; no URL of a token is asked",
			try:    forgedTokens,
			control: func(t *testing.T, b *bed) {
				if a := b.as(t, signed(t, b.issuer.key, b.issuer.claims(nil), nil), "127.0.0.21", "GET", "/api/threads", nil); a.status != http.StatusOK {
					t.Errorf("the same, signed by the issuer: %d %s", a.status, a.body)
				}
			},
		},
		{
			name: "guessed-keys", class: "credentials", does: "keys are guessed, by the hundred, from one address", expect: "429 after the first 50; the rest costs no look at the store, and few records",
			try: func(t *testing.T, b *bed) {
				if looked := b.guesses(t, func(int) string { return "127.0.0.22" }); looked > 60 {
					t.Errorf("%d of 300 guesses were looked at", looked)
				}
				if a := b.as(t, b.key, "127.0.0.22", "GET", "/api/threads", nil); a.status != http.StatusOK {
					t.Errorf("a good key from the same address: %d", a.status)
				}
				var list struct{ Items []struct{ Source string } }
				a := b.do(t, "", "GET", "/api/audit?action=auth_refused&limit=1000", nil)
				must(t, json.Unmarshal(a.body, &list))
				recorded := 0
				for _, r := range list.Items {
					if r.Source == "127.0.0.22" {
						recorded++
					}
				}
				if recorded == 0 || recorded > 25 {
					t.Errorf("%d records of 300 guesses", recorded)
				}
			},
			control: func(t *testing.T, b *bed) {
				if looked := b.guesses(t, func(i int) string { return fmt.Sprintf("127.0.%d.%d", 30+i/100, 1+i%100) }); looked != 300 {
					t.Errorf("%d of 300 guesses from as many addresses were looked at", looked)
				}
			},
		},
		{
			name: "role-escape", class: "credentials", does: "an agent's key administers: plainly, on behalf of an administrator, by other methods, spellings and headers", expect: "never 2xx; 403 where the route is meant",
			try: roleEscape,
			control: func(t *testing.T, b *bed) {
				if a := b.do(t, "", "GET", "/api/keys", nil); a.status != http.StatusOK {
					t.Errorf("an administrator's key: %d", a.status)
				}
			},
		},
		{
			name: "thread-escape", class: "credentials", does: "a key for some threads reaches another one of its user, by path, header, body and spelling", expect: "403, before anything is looked up",
			try: func(t *testing.T, b *bed) {
				b.ok(t, eve, "outside", "echo CANARY > /mnt/user-data/workspace/x")
				key := b.newKey(t, map[string]any{"user": eve, "role": "admin", "threads": []string{"ci-*"}})
				for _, c := range []struct {
					method, path string
					body         any
				}{
					{"GET", "/api/threads/outside/files?path=/mnt/user-data/workspace/x", nil}, {"GET", "/api/threads", nil}, {"GET", "/api/threads/ci-1%2f..%2foutside", nil}, {"GET", "/api/threads/ci-1/../outside", nil},
					{"POST", "/api/skills/install", map[string]any{"thread_id": "outside", "path": "/mnt/user-data/workspace/x"}}, {"POST", "/mcp/outside", map[string]any{}}, {"POST", "/mcp", map[string]any{}}, {"GET", "/api/audit", nil}, {"GET", "/api/keys", nil},
				} {
					for _, header := range []string{"Skerry-Thread: outside", "Skerry-Thread: ci-1"} {
						a := b.as(t, key, "127.0.0.24", c.method, c.path, c.body, header)
						if a.status < 400 || bytes.Contains(a.body, []byte("CANARY")) {
							t.Errorf("%s %s with %s: %d %.200s", c.method, c.path, header, a.status, a.body)
						}
					}
				}
			},
			control: func(t *testing.T, b *bed) {
				b.ok(t, eve, "outside", "echo CANARY > /mnt/user-data/workspace/x")
				key := b.newKey(t, map[string]any{"user": eve, "role": "agent"})
				if a := b.as(t, key, "127.0.0.24", "GET", "/api/threads/outside/files?path=/mnt/user-data/workspace/x", nil); !bytes.Contains(a.body, []byte("CANARY")) {
					t.Errorf("a key without that restriction: %d %s", a.status, a.body)
				}
			},
		},
	}
}

func forgedTokens(t *testing.T, b *bed) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	var asked atomic.Int64
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: own.Public(), KeyID: "k1", Algorithm: "ES256"}}})
	}))
	defer evil.Close()
	raw := func(head string) string {
		body, err := json.Marshal(b.issuer.claims(map[string]any{"sub": "root"}))
		must(t, err)
		return base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + base64.RawURLEncoding.EncodeToString(body)
	}
	der, err := x509.MarshalPKIXPublicKey(b.issuer.key.Public())
	must(t, err)
	hs := func(key []byte) string {
		text := raw(`{"alg":"HS256","kid":"k1","typ":"JWT"}`)
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(m.Sum(nil))
	}
	_, otherClaims, _ := strings.Cut(raw(""), ".")
	good := signed(t, b.issuer.key, b.issuer.claims(nil), nil)
	for name, token := range map[string]string{
		"none": raw(`{"alg":"none"}`) + ".", "HMAC with PEM": hs(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "HMAC with DER": hs(der),
		"own key": signed(t, own, b.issuer.claims(nil), nil), "jku": signed(t, own, b.issuer.claims(nil), map[jose.HeaderKey]any{"jku": evil.URL}),
		"x5u": signed(t, own, b.issuer.claims(nil), map[jose.HeaderKey]any{"x5u": evil.URL}), "jwk": signed(t, own, b.issuer.claims(nil), map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: own.Public(), KeyID: "k1"}}),
		"own issuer": signed(t, own, b.issuer.claims(map[string]any{"iss": evil.URL}), nil), "other audience": signed(t, b.issuer.key, b.issuer.claims(map[string]any{"aud": "other"}), nil),
		"expired": signed(t, b.issuer.key, b.issuer.claims(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), nil), "other tenant": signed(t, b.issuer.key, b.issuer.claims(map[string]any{"org": "default"}), nil),
		"no tenant": signed(t, b.issuer.key, b.issuer.claims(map[string]any{"org": nil}), nil), "no role": signed(t, b.issuer.key, b.issuer.claims(map[string]any{"roles": "guest"}), nil),
		"cut": good[:len(good)-9], "other claims": good[:strings.Index(good, ".")+1] + otherClaims + good[strings.LastIndex(good, "."):],
	} {
		if a := b.as(t, token, "127.0.0.20", "GET", "/api/threads", nil); a.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %.200s", name, a.status, a.body)
		}
	}
	if asked.Load() > 0 {
		t.Error("a URL out of a token was asked")
	}
}

// guesses sends 300 wrong keys, and counts the ones that the server looked up.
func (b *bed) guesses(t *testing.T, from func(i int) string) (looked int) {
	t.Helper()
	for i := range 300 {
		sum := sha256.Sum256([]byte(from(i) + fmt.Sprint(i)))
		switch a := b.as(t, fmt.Sprintf("sk_%x", sum), from(i), "GET", "/api/threads", nil); {
		case a.status == http.StatusUnauthorized:
			looked++
		case a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "":
			t.Fatalf("guess %d: %d %s", i, a.status, a.body)
		}
	}
	return looked
}

func roleEscape(t *testing.T, b *bed) {
	agent := b.newKey(t, map[string]any{"user": eve, "role": "agent"})
	backend := b.newKey(t, map[string]any{"user": "backend", "role": "agent", "act_for": true})
	body := map[string]any{"name": "x", "user": eve, "role": "admin"}
	for _, c := range administration {
		for _, header := range []string{
			"X: y", "X-HTTP-Method-Override: GET", "X-Forwarded-For: 127.0.0.1", "X-Original-URL: /healthz", "Skerry-Forwarded-Source: 127.0.0.1", "X-Role: admin",
		} {
			if a := b.as(t, agent, "127.0.0.23", c[0], c[1], body, header); a.status != http.StatusForbidden {
				t.Errorf("%s %s with %s: %d %.200s", c[0], c[1], header, a.status, a.body)
			}
		}
		for _, user := range []string{"root", "admin", "root,admin", "default/root", "../root"} {
			if a := b.as(t, backend, "127.0.0.23", c[0], c[1], body, "On-Behalf-Of: "+user); a.status != http.StatusForbidden && a.status != http.StatusBadRequest {
				t.Errorf("%s %s on behalf of %q: %d %.200s", c[0], c[1], user, a.status, a.body)
			}
		}
		for _, path := range []string{"/" + c[1], c[1] + "/", strings.ToUpper(c[1]), c[1] + "%00", "/healthz/.." + c[1], strings.Replace(c[1], "/api", "/api/.", 1), strings.Replace(c[1], "api", "%61pi", 1)} {
			if a := b.as(t, agent, "127.0.0.23", c[0], path, body); a.status < 300 {
				t.Errorf("%s %s: %d %.200s", c[0], path, a.status, a.body)
			}
		}
	}
	if a := b.as(t, agent, "127.0.0.23", "GET", "/api/threads", nil, "On-Behalf-Of: "+bob); a.status != http.StatusForbidden {
		t.Errorf("without the right, on behalf of another: %d", a.status)
	}
}
