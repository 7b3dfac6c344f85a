package oidc

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestToken(t *testing.T) {
	b := newBed(t, nil)
	c := b.wants(t, "good", b.token(t, map[string]any{"scope": "openid mail.send bad!name mail.send"}), "")
	if c.Owner != (sandbox.Owner{Tenant: "acme", User: "ann"}) || c.Role != sandbox.RoleAgent || c.Actor != "ann" || c.Method != sandbox.ByToken ||
		!slices.Equal(c.Capabilities, []string{"mail.send", "openid"}) || !strings.HasSuffix(c.KeyID, "/ann") || c.Operator {
		t.Errorf("caller %+v", c)
	}
	for _, typ := range []string{"at+jwt", "application/at+jwt", "jwt"} {
		b.wants(t, typ, sign(t, jose.RS256, rsaKey, "k1", b.claims(nil), map[jose.HeaderKey]any{"typ": typ}), "")
	}
	for range 20 {
		b.wants(t, "again", b.token(t, nil), "")
	}
	if n := b.is.count(); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

func TestAlgorithms(t *testing.T) {
	keys := []jose.JSONWebKey{
		public("rsa", "", rsaKey), public("ec", "ES256", ecKey), public("ec384", "", ec384), public("ed", "", edKey), public("small", "", rsaSmall),
		{Key: rsaOther.Public(), KeyID: "enc", Use: "enc"},
	}
	b := newBed(t, func(i *Issuer) { i.Algorithms = Algorithms() }, keys...)
	for _, c := range []struct {
		alg jose.SignatureAlgorithm
		key any
		kid string
		ok  bool
	}{
		{jose.RS256, rsaKey, "rsa", true}, {jose.PS256, rsaKey, "rsa", true}, {jose.RS512, rsaKey, "rsa", true},
		{jose.ES256, ecKey, "ec", true}, {jose.ES384, ec384, "ec384", true}, {jose.EdDSA, edKey, "ed", true},
		{jose.RS256, rsaSmall, "small", false}, // too short
		{jose.RS256, rsaOther, "enc", false},   // not for signatures
		{jose.ES256, ecKey, "rsa", false},      // another key's name
		{jose.ES256, ecKey, "", true},          // the only one for it
		{jose.RS256, rsaOther, "rsa", false},   // another key
	} {
		kind := sandbox.Unauthorized
		if c.ok {
			kind = ""
		}
		b.wants(t, fmt.Sprintf("%s by %q", c.alg, c.kid), sign(t, c.alg, c.key, c.kid, b.claims(nil), nil), kind)
	}
	few := newBed(t, func(i *Issuer) { i.Algorithms = []string{"ES256"} }, keys...)
	few.wants(t, "an algorithm that is not allowed", sign(t, jose.RS256, rsaKey, "rsa", few.claims(nil), nil), sandbox.Unauthorized)
	few.wants(t, "one that is", sign(t, jose.ES256, ecKey, "ec", few.claims(nil), nil), "")
}

// TestAttacks: each of them is refused, and a good token still is not.
func TestAttacks(t *testing.T) {
	b := newBed(t, nil, public("k1", "RS256", rsaKey), public("k2", "ES256", ecKey))
	good := b.token(t, nil)
	head, payload, signature := parts(good)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("a URL out of a token was asked")
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public("evil", "RS256", rsaOther)}})
	}))
	defer evil.Close()
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	published := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	jwk := public("evil", "RS256", rsaOther)
	by := func(h map[jose.HeaderKey]any) string { return sign(t, jose.RS256, rsaOther, "k1", b.claims(nil), h) }
	attacks := map[string]string{
		"alg none":                   raw(`{"alg":"none","typ":"JWT"}`, b.claims(nil)) + ".",
		"alg None":                   raw(`{"alg":"None","kid":"k1"}`, b.claims(nil)) + ".",
		"no alg":                     raw(`{"kid":"k1"}`, b.claims(nil)) + "." + signature,
		"HS256 by the public key":    hs256(raw(`{"alg":"HS256","kid":"k1","typ":"JWT"}`, b.claims(nil)), published),
		"HS256 by its DER":           hs256(raw(`{"alg":"HS256","kid":"k1","typ":"JWT"}`, b.claims(nil)), der),
		"HS256 by nothing":           hs256(raw(`{"alg":"HS256","kid":"k1","typ":"JWT"}`, b.claims(nil)), nil),
		"another's key":              by(nil),
		"jku":                        by(map[jose.HeaderKey]any{"jku": evil.URL}),
		"x5u":                        by(map[jose.HeaderKey]any{"x5u": evil.URL}),
		"jwk":                        by(map[jose.HeaderKey]any{"jwk": jwk}),
		"kid of nobody":              sign(t, jose.RS256, rsaOther, "../../dev/null", b.claims(nil), nil),
		"kid as a URL":               sign(t, jose.RS256, rsaOther, evil.URL, b.claims(nil), nil),
		"kid as SQL":                 sign(t, jose.RS256, rsaOther, "k1' UNION SELECT 'x", b.claims(nil), nil),
		"kid of the EC key":          sign(t, jose.RS256, rsaKey, "k2", b.claims(nil), nil),
		"crit":                       sign(t, jose.RS256, rsaKey, "k1", b.claims(nil), map[jose.HeaderKey]any{"crit": []string{"exp"}, "exp": 1}),
		"crit b64":                   sign(t, jose.RS256, rsaKey, "k1", b.claims(nil), map[jose.HeaderKey]any{"crit": []string{"b64"}, "b64": true}),
		"typ logout":                 sign(t, jose.RS256, rsaKey, "k1", b.claims(nil), map[jose.HeaderKey]any{"typ": "logout+jwt"}),
		"typ dpop":                   sign(t, jose.RS256, rsaKey, "k1", b.claims(nil), map[jose.HeaderKey]any{"typ": "dpop+jwt"}),
		"wrong audience":             b.token(t, map[string]any{"aud": "other"}),
		"wrong audiences":            b.token(t, map[string]any{"aud": []string{"other", "skerry2"}}),
		"no audience":                b.token(t, map[string]any{"aud": nil}),
		"wrong issuer":               b.token(t, map[string]any{"iss": evil.URL}),
		"issuer with a slash":        b.token(t, map[string]any{"iss": b.is.URL + "/"}),
		"no issuer":                  b.token(t, map[string]any{"iss": nil}),
		"expired":                    b.token(t, map[string]any{"exp": b.clock.now().Add(-2 * time.Minute).Unix()}),
		"no exp":                     b.token(t, map[string]any{"exp": nil}),
		"exp as a text":              b.token(t, map[string]any{"exp": "tomorrow"}),
		"exp far away":               b.token(t, map[string]any{"exp": 1e18}),
		"not yet":                    b.token(t, map[string]any{"nbf": b.clock.now().Add(2 * time.Minute).Unix()}),
		"issued in the future":       b.token(t, map[string]any{"iat": b.clock.now().Add(2 * time.Minute).Unix()}),
		"for a month":                b.token(t, map[string]any{"exp": b.clock.now().Add(30 * 24 * time.Hour).Unix()}),
		"for a month since long":     b.token(t, map[string]any{"iat": b.clock.now().Add(-29 * 24 * time.Hour).Unix()}),
		"no tenant":                  b.token(t, map[string]any{"org": nil}),
		"empty tenant":               b.token(t, map[string]any{"org": ""}),
		"tenant as a list":           b.token(t, map[string]any{"org": []string{"acme"}}),
		"tenant as a path":           b.token(t, map[string]any{"org": "../acme"}),
		"no user":                    b.token(t, map[string]any{"sub": nil}),
		"user as a number":           b.token(t, map[string]any{"sub": 7}),
		"no role":                    b.token(t, map[string]any{"realm": map[string]any{"roles": []string{"guest"}}}),
		"role elsewhere":             b.token(t, map[string]any{"realm": nil, "/realm/roles": []string{"admin"}, "realm.roles": "admin"}),
		"another payload":            head + "." + raw("", b.claims(map[string]any{"sub": "root"}))[1:] + "." + signature,
		"another head":               base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"k1" }`)) + "." + payload + "." + signature,
		"no signature":               head + "." + payload + ".",
		"half a signature":           good[:len(good)-40],
		"two keys of one name":       raw(`{"alg":"RS256","kid":"k1","alg":"none"}`, b.claims(nil)) + "." + signature,
		"longer than a token may be": b.token(t, map[string]any{"x": strings.Repeat("x", MaxTokenBytes)}),
		"encrypted":                  head + ".a.b.c.d",
		"nothing":                    "..",
	}
	for name, token := range attacks {
		b.wants(t, name, token, sandbox.Unauthorized)
	}
	b.wants(t, "a good one, after all that", good, "")
	t.Logf("%d attacks", len(attacks))
}

func parts(token string) (head, payload, signature string) {
	p := strings.Split(token, ".")
	return p[0], p[1], p[2]
}

// raw is the first two parts of a token.
func raw(head string, claims any) string {
	body, _ := json.Marshal(claims)
	return base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + base64.RawURLEncoding.EncodeToString(body)
}

func hs256(text string, key []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// TestSkew: clocks may differ by as much as is configured, in all directions.
func TestSkew(t *testing.T) {
	b := newBed(t, func(i *Issuer) { i.Skew = 30 * time.Second })
	at := func(d time.Duration) int64 { return b.clock.now().Add(d).Unix() }
	b.wants(t, "just expired", b.token(t, map[string]any{"exp": at(-29 * time.Second)}), "")
	b.wants(t, "expired", b.token(t, map[string]any{"exp": at(-31 * time.Second)}), sandbox.Unauthorized)
	b.wants(t, "nearly", b.token(t, map[string]any{"nbf": at(29 * time.Second), "iat": at(29 * time.Second)}), "")
	b.wants(t, "too early", b.token(t, map[string]any{"nbf": at(31 * time.Second)}), sandbox.Unauthorized)
}

func TestClaims(t *testing.T) {
	b := newBed(t, func(i *Issuer) {
		i.TenantClaim, i.UserClaim, i.RolesClaim, i.Tenants = "/org/id", "https://skerry.example/user", "groups", []string{"acme", "b.example"}
		i.Roles = map[string]sandbox.Role{"ops": sandbox.RoleAdmin, "eng": sandbox.RoleDeveloper, "audit": sandbox.RoleAuditor}
		i.CapabilitiesClaim = "/a~1b/c"
	})
	with := func(tenant, user any, groups any) map[string]any {
		return map[string]any{"org": map[string]any{"id": tenant}, "https://skerry.example/user": user, "groups": groups, "a/b": map[string]any{"c": []any{"x", 5, "y"}}}
	}
	for _, c := range []struct {
		tenant, user string
		groups       any
		role         sandbox.Role
	}{
		{"acme", "ann", []string{"eng", "ops", "audit"}, sandbox.RoleAdmin}, {"acme", "ann", "eng audit", sandbox.RoleDeveloper},
		{"b.example", "ann", []any{"audit", 7, nil}, sandbox.RoleAuditor}, {"acme", "ann", []string{"admin"}, ""}, {"acme", "ann", nil, ""},
		{"acme", "ann", map[string]any{"ops": true}, ""}, {"other", "ann", "ops", ""}, {"*", "ann", "ops", ""},
	} {
		kind := sandbox.Unauthorized
		if c.role != "" {
			kind = ""
		}
		got := b.wants(t, fmt.Sprint(c), b.token(t, with(c.tenant, c.user, c.groups)), kind)
		if got.Role != c.role || kind == "" && !slices.Equal(got.Capabilities, []string{"x", "y"}) {
			t.Errorf("%v: %+v", c, got)
		}
	}
	// No two users share a name here, whatever they are called there.
	seen := map[string]string{}
	for _, name := range []string{"ann", "auth0|ann", "auth0/ann", "sub-ann", userName("auth0|ann"), "Änn", strings.Repeat("a", 200), " ann"} {
		c := b.wants(t, name, b.token(t, with("acme", name, "ops")), "")
		if seen[c.User] != "" || sandbox.CheckOwnerName("user", c.User) != nil {
			t.Errorf("%q and %q are both %q", name, seen[c.User], c.User)
		}
		seen[c.User] = name
	}
}

// TestIssuers: a token of one issuer by the key of another is refused, and none may name a tenant that is not its own.
func TestIssuers(t *testing.T) {
	one, two := newIssuer(t, public("k", "RS256", rsaKey)), newIssuer(t, public("k", "RS256", rsaOther))
	clock := &testClock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	conf := func(url string, tenants ...string) Issuer {
		return Issuer{URL: url, Audiences: []string{"skerry"}, TenantClaim: "org", Tenants: tenants, DefaultRole: sandbox.RoleAgent}
	}
	if _, err := Open([]Issuer{conf(one.URL, "a"), conf(two.URL)}, Options{}); err == nil {
		t.Error("two issuers, of which one may name any tenant")
	}
	s, err := Open([]Issuer{conf(one.URL, "a"), conf(two.URL, "b")}, Options{Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := &bed{Issuers: s, is: one, clock: clock}
	for _, c := range []struct {
		iss, org string
		key      any
		kind     sandbox.Kind
	}{
		{one.URL, "a", rsaKey, ""}, {two.URL, "b", rsaOther, ""}, {one.URL, "b", rsaKey, sandbox.Unauthorized}, {two.URL, "a", rsaOther, sandbox.Unauthorized},
		{one.URL, "a", rsaOther, sandbox.Unauthorized}, {two.URL, "b", rsaKey, sandbox.Unauthorized},
	} {
		b.wants(t, c.iss+" "+c.org, sign(t, jose.RS256, c.key, "k", b.claims(map[string]any{"iss": c.iss, "org": c.org}), nil), c.kind)
	}
}

// TestRotation: the server finds new keys when a token names them. Removed keys stop working. The server
// asks the issuer no more often than needed.
func TestRotation(t *testing.T) {
	b := newBed(t, nil)
	old := func() string { return b.token(t, nil) }
	fresh := func() string { return sign(t, jose.RS256, rsaOther, "k2", b.claims(nil), nil) }
	b.wants(t, "old", old(), "")
	b.is.change(func() { b.is.keys = []jose.JSONWebKey{public("k2", "RS256", rsaOther)} })
	b.wants(t, "new, just after a question", fresh(), sandbox.Unauthorized)
	b.clock.add(fetchPause)
	b.wants(t, "new", fresh(), "")
	b.wants(t, "old, which is gone", old(), sandbox.Unauthorized)
	if n := b.is.count(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// TestStorm: tokens with unknown keys do not become requests to the issuer.
func TestStorm(t *testing.T) {
	b := newBed(t, nil)
	b.wants(t, "good", b.token(t, nil), "")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				b.wants(t, "unknown", sign(t, jose.ES256, ecKey, fmt.Sprint(i, "-", j), b.claims(nil), nil), sandbox.Unauthorized)
			}
		})
	}
	wg.Wait()
	if n := b.is.count(); n != 1 {
		t.Errorf("400 unknown keys within %s: asked %d times", fetchPause, n)
	}
	for range 5 {
		b.clock.add(fetchPause)
		for i := range 20 {
			b.wants(t, "unknown", sign(t, jose.ES256, ecKey, fmt.Sprint("z", i), b.claims(nil), nil), sandbox.Unauthorized)
		}
	}
	if n := b.is.count(); n != 6 {
		t.Errorf("in five more pauses: asked %d times in all", n)
	}
}

// TestIssuerAway: known keys go on for a day, then nothing does until the issuer is back.
func TestIssuerAway(t *testing.T) {
	b := newBed(t, nil)
	b.wants(t, "good", b.token(t, nil), "")
	b.is.change(func() { b.is.broken = true })
	for range 5 {
		b.clock.add(4 * time.Hour)
		b.wants(t, "known", b.token(t, nil), "")
		b.settle()
	}
	b.clock.add(4 * time.Hour)
	b.wants(t, "too old", b.token(t, nil), sandbox.Unavailable)
	b.wants(t, "too old", b.token(t, nil), sandbox.Unavailable)
	if n := b.is.count(); n != 7 {
		t.Errorf("asked %d times", n)
	}
	b.is.change(func() { b.is.broken = false })
	b.clock.add(fetchPause)
	b.wants(t, "back", b.token(t, nil), "")
}

// settle waits for a question under way.
func (b *bed) settle() {
	for _, p := range b.byURL {
		p.keys.working.Wait()
	}
}

// TestSlowIssuer: while the issuer thinks, known keys work, and a request that waits for it stops waiting
// when its client leaves.
func TestSlowIssuer(t *testing.T) {
	b := newBed(t, nil)
	b.wants(t, "good", b.token(t, nil), "")
	hold := make(chan struct{})
	b.is.change(func() { b.is.hold = hold })
	b.clock.add(refreshAfter)
	for range 10 {
		b.wants(t, "known, and old", b.token(t, nil), "")
	}
	close(hold)
	b.settle()
	if n := b.is.count(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// TestBadDescriptions: an issuer whose description or keys are not what they should be has no keys.
func TestBadDescriptions(t *testing.T) {
	for name, change := range map[string]func(*testIssuer){
		"another issuer": func(is *testIssuer) {
			is.doc = map[string]any{"issuer": "https://other.example", "jwks_uri": is.URL + "/keys"}
		},
		"keys by file":    func(is *testIssuer) { is.doc = map[string]any{"issuer": is.URL, "jwks_uri": "file:///etc/passwd"} },
		"keys by http":    func(is *testIssuer) { is.doc = map[string]any{"issuer": is.URL, "jwks_uri": "http://192.0.2.1/keys"} },
		"no keys":         func(is *testIssuer) { is.keys = nil },
		"a private key":   func(is *testIssuer) { is.keys = []jose.JSONWebKey{{Key: rsaKey, KeyID: "k1"}} },
		"a symmetric key": func(is *testIssuer) { is.keys = []jose.JSONWebKey{{Key: []byte(strings.Repeat("k", 32)), KeyID: "k1"}} },
		"too many keys":   func(is *testIssuer) { is.keys = slices.Repeat(is.keys, maxKeys+1) },
		"too large":       func(is *testIssuer) { is.doc = map[string]any{"issuer": is.URL, "x": strings.Repeat("x", maxDocument)} },
	} {
		b := newBed(t, nil)
		b.is.change(func() { change(b.is) })
		b.wants(t, name, b.token(t, nil), sandbox.Unavailable)
	}
}

func TestBadIssuers(t *testing.T) {
	good := Issuer{URL: "https://login.example.com", Audiences: []string{"skerry"}, Tenant: "acme", DefaultRole: sandbox.RoleAgent}
	for name, change := range map[string]func(*Issuer){
		"issuer:":     func(i *Issuer) { i.URL = "http://login.example.com" },
		"issuer: \"":  func(i *Issuer) { i.URL = "login" },
		"keys_url":    func(i *Issuer) { i.KeysURL = "ftp://x" },
		"audiences":   func(i *Issuer) { i.Audiences = nil },
		"HS256":       func(i *Issuer) { i.Algorithms = []string{"HS256"} },
		"none":        func(i *Issuer) { i.Algorithms = []string{"RS256", "none"} },
		"exactly one": func(i *Issuer) { i.TenantClaim = "org" },
		"tenant \"":   func(i *Issuer) { i.Tenant = "a/b" },
		"clock_skew":  func(i *Issuer) { i.Skew = time.Hour },
		"roles: \"":   func(i *Issuer) { i.RolesClaim, i.Roles = "r", map[string]sandbox.Role{"x": "root"} },
		"roles_claim": func(i *Issuer) { i.DefaultRole = "" },
		"ca_file":     func(i *Issuer) { i.CAFile = "/nowhere" },
	} {
		bad := good
		change(&bad)
		if s, err := Open([]Issuer{bad}, Options{}); err == nil || !strings.Contains(err.Error(), strings.Trim(name, " \"")) {
			t.Errorf("%s: %v", name, err)
			if s != nil {
				_ = s.Close()
			}
		}
	}
	if _, err := Open([]Issuer{good, good}, Options{}); err == nil {
		t.Error("one issuer twice")
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	is := newIssuer(&testing.T{}, public("k1", "RS256", rsaKey))
	defer is.Close()
	s, err := Open([]Issuer{{URL: is.URL, Audiences: []string{"skerry"}, TenantClaim: "org", RolesClaim: "/realm/roles"}}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	bed := &bed{Issuers: s, is: is, clock: &testClock{at: time.Now()}}
	token := bed.token(b, nil)
	for b.Loop() {
		if _, err := s.Authenticate(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}

// TestKeysFile: an issuer that publishes its keys nowhere has them in a file; without it no token is good, and a URL of another
// machine is no file.
func TestKeysFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	b := newBed(t, func(i *Issuer) { i.KeysURL = "file://" + path })
	b.wants(t, "no file", b.token(t, nil), sandbox.Unavailable)
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public("k1", "RS256", rsaKey)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b.clock.add(fetchPause)
	b.wants(t, "a file", b.token(t, nil), "")
	if n := b.is.count(); n != 0 {
		t.Errorf("the issuer was asked %d times", n)
	}
	for _, bad := range []string{"file://host/keys.json", "file:keys.json", "file://"} {
		if err := checkKeysURL(bad); err == nil {
			t.Errorf("%s is taken for a file", bad)
		}
	}
}
