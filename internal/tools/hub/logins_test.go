package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
)

var aliceCalls = sandbox.Caller{Owner: alice.Owner}

// logBook keeps what the hub logs.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func loginConfig(a *authServer, oauth string) string {
	return withServers(fmt.Sprintf(`"r":{"type":"http","url":%q%s}`, a.mcp.URL+"/mcp", oauth))
}

func (r *rig) login() {
	r.t.Helper()
	if err := (&person{h: r.Hub}).login(context.Background(), "r"); err != nil {
		r.t.Fatal(err)
	}
}

// needsLogin checks that a call waits for a person, and that the server's state says so.
func (r *rig) needsLogin() {
	r.t.Helper()
	_, err := r.call("r__echo", `{"message":"a"}`)
	if !errors.Is(err, login.ErrNeeded) || sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(excerpt.Detail(err), "skerry mcp login r") {
		r.t.Fatalf("want that a login is needed: %v", err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for r.state("r").State != stateNeedsLogin {
		if time.Now().After(deadline) {
			r.t.Fatalf("state: %+v", r.state("r"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestLogin: a login from its beginning to its end: discovery, registration, PKCE, refresh with rotation,
// a restart, the end of what a refresh token is good for, and logout.
func TestLogin(t *testing.T) {
	t.Parallel()
	a, dir, log := newAuthServer(t), t.TempDir(), &logBook{}
	setup := func(o *Options) {
		o.StateDir, o.Log = dir, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	r := open(t, loginConfig(a, ""), setup)
	r.needsLogin()
	r.login()
	if got := r.ok("r__echo", `{"message":"a"}`); got != `"a"` || r.state("r").State != "ready" {
		t.Errorf("%s, %+v", got, r.state("r"))
	}
	if got := a.asked(); got != "authorization_code" {
		t.Errorf("asked for %s", got)
	}
	if _, err := r.callAs(sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "bob"}, ID: "b"}, "r__echo", `{"message":"a"}`); !errors.Is(err, login.ErrNeeded) {
		t.Errorf("bob has alice's login: %v", err)
	}
	checkVault(t, dir)

	// The token ends while many use it: it is renewed once, for a refresh token is good for once.
	a.with(func() { clear(a.tokens) })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if res, err := r.call("r__echo", `{"message":"b"}`); err != nil || string(res.Result) != `"b"` {
				t.Errorf("%s %v", res.Result, err)
			}
		})
	}
	wg.Wait()
	if got := a.asked(); got != "refresh_token" {
		t.Errorf("asked for %s", got)
	}

	// It is there after a restart. A token whose end was announced is renewed ahead of it.
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	a.with(func() { clear(a.tokens); a.life = 5 })
	r = open(t, loginConfig(a, ""), setup)
	for range 2 {
		r.ok("r__echo", `{"message":"c"}`)
	}
	if got := a.asked(); !strings.HasPrefix(got, "refresh_token, refresh_token") || strings.Contains(got, "invalid") {
		t.Errorf("asked for %s", got)
	}
	a.with(func() { clear(a.tokens); clear(a.refresh) })
	r.needsLogin()

	a.with(func() { a.life = 0 })
	r.login()
	r.ok("r__echo", `{"message":"d"}`)
	if a.clients != 1 {
		t.Errorf("registered %d times", a.clients)
	}
	a.asked()
	if err := r.Logins.Logout(context.Background(), aliceCalls, "r"); err != nil || a.asked() != "revoke" {
		t.Errorf("logout: %v", err)
	}
	r.needsLogin()
	if err := r.Logins.Logout(context.Background(), aliceCalls, "r"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("logout twice: %v", err)
	}
	for _, secret := range []string{"access-token", "refresh-token", "registered-secret", "code-"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %s: %s", secret, log)
		}
	}
}

// checkVault: only its owner may read what is kept.
func checkVault(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(filepath.Join(dir, "logins"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		if strings.HasSuffix(path, ".json") {
			files++
			if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte("refresh-token-")) {
				t.Errorf("%s: %v", text, err)
			}
		}
		return err
	})
	if err != nil || files != 1 {
		t.Errorf("%d files: %v", files, err)
	}
}

// TestLoginStepUp: a tool that needs more than was agreed to asks for a login, with the scopes that there
// were; the others go on. A server that is not content with what it wanted is not asked for ever.
func TestLoginStepUp(t *testing.T) {
	t.Parallel()
	a := newAuthServer(t)
	a.adminTo = "whoami"
	r := open(t, loginConfig(a, ""))
	r.login()
	_, err := r.call("r__whoami", "")
	if !errors.Is(err, login.ErrNeeded) || !strings.Contains(excerpt.Detail(err), "with the scope admin") {
		t.Fatalf("%v", err)
	}
	if got := r.ok("r__echo", `{"message":"a"}`); got != `"a"` {
		t.Error(got)
	}
	r.login()
	r.ok("r__whoami", "")
	a.with(func() {
		for token, scopes := range a.tokens {
			if strings.Contains(scopes, "admin") && scopes != "tools admin offline_access" && scopes != "tools offline_access admin" {
				t.Errorf("%s has %q", token, scopes)
			}
			a.tokens[token] = "tools" // granted by word, not by deed
		}
	})
	if _, err := r.call("r__whoami", ""); err == nil || errors.Is(err, login.ErrNeeded) || !strings.Contains(excerpt.Detail(err), "403") {
		t.Errorf("%v", err)
	}
}

// TestLoginAnswers: what comes back from the browser is not believed.
func TestLoginAnswers(t *testing.T) {
	t.Parallel()
	a := newAuthServer(t)
	a.iss = true
	r := open(t, loginConfig(a, ""))
	ctx := context.Background()
	bob := sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "bob"}}
	for name, c := range map[string]struct {
		by     sandbox.Caller
		change func(url.Values)
	}{
		"state":     {aliceCalls, func(q url.Values) { q.Set("state", "other") }},
		"no state":  {aliceCalls, func(q url.Values) { q.Del("state") }},
		"issuer":    {aliceCalls, func(q url.Values) { q.Set("iss", "https://evil.example") }},
		"slash":     {aliceCalls, func(q url.Values) { q.Set("iss", q.Get("iss")+"/") }},
		"no issuer": {aliceCalls, func(q url.Values) { q.Del("iss") }},
		"no code":   {aliceCalls, func(q url.Values) { q.Del("code") }},
		"refusal":   {aliceCalls, func(q url.Values) { q.Set("error", "access_denied") }},
		"bob":       {bob, func(url.Values) {}},
	} {
		begun, err := r.Logins.BeginLogin(ctx, aliceCalls, "r", "http://127.0.0.1:1/callback")
		if err != nil {
			t.Fatal(err)
		}
		to, err := browse(ctx, begun.URL)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		c.change(q)
		u.RawQuery = q.Encode()
		if err := r.Logins.FinishLogin(ctx, c.by, "r", u.String()); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		// The right answer counts when the wrong one was not for this login at all, and only once.
		known := name == "state" || name == "no state" || name == "bob"
		for i, want := range []bool{known, false} {
			if err := r.Logins.FinishLogin(ctx, aliceCalls, "r", to); (err == nil) != want {
				t.Errorf("%s: then the right answer, %d: %v", name, i, err)
			}
		}
		asked := a.asked()
		if known != (asked == "authorization_code") {
			t.Errorf("%s: asked for %q", name, asked)
		}
	}
	for _, redirect := range []string{"https://evil.example/cb", "http://127.0.0.1.evil.example/cb", "javascript:alert(1)", "http://user@127.0.0.1/"} {
		if _, err := r.Logins.BeginLogin(ctx, aliceCalls, "r", redirect); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", redirect, err)
		}
	}
}

// TestLoginHostile: metadata that leads elsewhere is refused, before anybody is asked for a token.
func TestLoginHostile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resource, change map[string]any
		want             string
	}{
		"resource":    {resource: map[string]any{"resource": "https://evil.example/mcp"}, want: "another resource"},
		"sibling":     {resource: map[string]any{"resource": "%MCP%/mcp2"}, want: "another resource"},
		"cloud":       {resource: map[string]any{"authorization_servers": []string{"http://169.254.169.254/latest"}}, want: "does not use https"},
		"cloud TLS":   {resource: map[string]any{"authorization_servers": []string{"https://169.254.169.254/latest"}}, want: "not on the public internet"},
		"private":     {resource: map[string]any{"authorization_servers": []string{"https://10.1.2.3/"}}, want: "not on the public internet"},
		"scheme":      {resource: map[string]any{"authorization_servers": []string{"file:///etc/passwd"}}, want: "no http or https"},
		"issuer":      {change: map[string]any{"issuer": "https://evil.example"}, want: "another issuer"},
		"no PKCE":     {change: map[string]any{"code_challenge_methods_supported": []string{"plain"}}, want: "without PKCE"},
		"script":      {change: map[string]any{"authorization_endpoint": "javascript:alert(1)"}, want: "without a page"},
		"plain page":  {change: map[string]any{"authorization_endpoint": "http://evil.example/"}, want: "does not use https"},
		"registering": {change: map[string]any{"registration_endpoint": "https://169.254.169.254/"}, want: "not on the public internet"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthServer(t)
			for k, v := range c.resource {
				if text, ok := v.(string); ok {
					v = strings.ReplaceAll(text, "%MCP%", a.mcp.URL)
				}
				a.resource[k] = v
			}
			a.change = c.change
			r := open(t, loginConfig(a, ""))
			_, err := r.Logins.BeginLogin(context.Background(), aliceCalls, "r", "http://127.0.0.1:1/callback")
			if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(excerpt.Detail(err), c.want) || strings.Contains(excerpt.Detail(err), "169.254") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLoginMachine: a server with a client of its own needs no person. The error names a wrong secret as the
// reason, without its value and without what the other side says about it. The hub does not try it over and
// over.
func TestLoginMachine(t *testing.T) {
	t.Parallel()
	a := newAuthServer(t)
	a.adminTo = "whoami"
	oauth := `,"oauth":{"grant":"client_credentials","client_id":"us","client_secret":"%s"}`
	r := open(t, loginConfig(a, fmt.Sprintf(oauth, "${SECRET}")))
	if got := r.ok("r__echo", `{"message":"a"}`); got != `"a"` || a.asked() != "client_credentials" {
		t.Error(got)
	}
	r.ok("r__whoami", "") // it steps up by itself
	a.with(func() { clear(a.tokens) })
	if _, err := r.call("r__echo", `{"message":"a"}`); err == nil {
		t.Error("a server that refuses a fresh token is asked for another one")
	}
	if _, err := r.Logins.BeginLogin(context.Background(), aliceCalls, "r", "http://127.0.0.1:1/"); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("%v", err)
	}
	a.asked()
	r = open(t, loginConfig(a, fmt.Sprintf(oauth, "very-wrong-secret")))
	_, err := r.call("r__echo", `{"message":"a"}`)
	if !strings.Contains(excerpt.Detail(err), "refuses: invalid_client") || strings.Contains(excerpt.Detail(err), "very-wrong") || errors.Is(err, login.ErrNeeded) {
		t.Errorf("%v", err)
	}
	if got := a.asked(); got != "client_credentials invalid_client" {
		t.Errorf("asked for %s", got)
	}
}

// TestLoginElsewhere: a login is good for the address that it was made for. Where OAuth is off, or the
// configuration has a header of its own, a 401 is what it was before.
func TestLoginElsewhere(t *testing.T) {
	t.Parallel()
	a, evil := newAuthServer(t), newAuthServer(t)
	r := open(t, loginConfig(a, ""))
	r.login()
	r.ok("r__echo", `{"message":"a"}`)
	r.write(loginConfig(evil, ""))
	r.needsLogin()
	evil.with(func() {
		for _, h := range evil.seen {
			if h != "" {
				t.Errorf("the other server was sent %s", h)
			}
		}
	})
	r.write(loginConfig(a, ""))
	r.ok("r__echo", `{"message":"a"}`) // it is still there for its own
	if err := r.Servers.DeleteServer(context.Background(), "r"); err != nil {
		t.Fatal(err)
	}
	r.write(loginConfig(a, ""))
	r.needsLogin() // not after a server was removed
	r.login()
	for _, config := range []string{`,"oauth":false`, `,"headers":{"authorization":"Bearer x"}`} {
		r.write(loginConfig(a, config))
		if _, err := r.call("r__echo", `{"message":"a"}`); errors.Is(err, login.ErrNeeded) || !strings.Contains(excerpt.Detail(err), "(401)") {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestLoginConfig: what is wrong with "oauth" is named; its secrets are not shown, and kept by their mask.
func TestLoginConfig(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	ctx := context.Background()
	for config, field := range map[string]string{
		`{"grant":"password"}`: "oauth.grant", `{"grant":"client_credentials"}`: "oauth.client_id", `{"client_secret":"x"}`: "oauth.client_id",
		`{"grant":"client_credentials","client_id":"x"}`: "oauth.client_secret", `{"redirect_uri":"https://evil.example"}`: "oauth.redirect_uri",
		`{"issuer":"file:///x"}`: "oauth.issuer", `{"scopes":["a b"]}`: "oauth.scopes", `{"token_url":"https://a.example"}`: "oauth.token_url", `7`: "",
		`{"client_id":"x","private_key":"a","client_secret":"b"}`: "oauth.private_key", `{"assertion":"x"}`: "oauth.assertion",
	} {
		err := r.Servers.PutServer(ctx, "s", fmt.Appendf(nil, `{"url":"https://a.example/","oauth":%s}`, config))
		if sandbox.KindOf(err) != sandbox.Invalid || !strings.HasPrefix(excerpt.Detail(err), field) {
			t.Errorf("%s: %v", config, err)
		}
	}
	if err := r.Servers.PutServer(ctx, "s", []byte(`{"command":"x","oauth":{}}`)); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a program with OAuth: %v", err)
	}
	put := func(config string) {
		t.Helper()
		if err := r.Servers.PutServer(ctx, "s", []byte(config)); err != nil {
			t.Fatal(err)
		}
	}
	put(`{"url":"https://a.example/","oauth":{"clientId":"me","client_secret":"hush-hush","scopes":"a b","callbackPort":4000}}`)
	configs, err := r.Servers.ServerConfigs(ctx)
	if want := `{"url":"https://a.example/","oauth":{"clientId":"me","client_secret":"***","scopes":"a b","callbackPort":4000}}`; err != nil || string(configs["s"]) != want {
		t.Errorf("shown: %s %v", configs["s"], err)
	}
	put(`{"url":"https://b.example/","oauth":{"client_id":"me","client_secret":"***","scopes":["c"]}}`)
	s := r.configs.current().ByName["s"]
	if s.OAuth.ClientSecret != "hush-hush" || s.OAuth.Scopes[0] != "c" {
		t.Errorf("%+v", s.OAuth)
	}
	put(`{"url":"https://b.example/","oauth":false}`)
	if configs, err = r.Servers.ServerConfigs(ctx); err != nil || string(configs["s"]) != `{"url":"https://b.example/","oauth":false}` {
		t.Errorf("shown: %s %v", configs["s"], err)
	}
}
