package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth/oidc"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// someIssuers answer logins: the code "good" and the refresh token "again" are.
type someIssuers struct {
	list  []oidc.Login
	asked []string
	// hold, when there is one, is closed to let exchanges go on; entered has one element for each that began.
	hold    chan struct{}
	entered chan struct{}
}

func (s *someIssuers) Logins(context.Context) []oidc.Login { return s.list }

func (s *someIssuers) Exchange(ctx context.Context, issuer string, c oidc.Code) (oidc.Tokens, error) {
	if s.hold != nil {
		if _, bounded := ctx.Deadline(); !bounded {
			return oidc.Tokens{}, errors.New("the wait has no deadline")
		}
		s.entered <- struct{}{}
		<-s.hold
		return oidc.Tokens{}, sandbox.Errorf(sandbox.Unavailable, "the issuer does not answer")
	}
	s.asked = append(s.asked, fmt.Sprint(issuer, c))
	if c.Code != "good" {
		return oidc.Tokens{}, sandbox.Errorf(sandbox.Unauthorized, "the issuer refused the login: invalid_grant")
	}
	return oidc.Tokens{Credential: "ey.a.b", ValidFor: 90 * time.Second, Refresh: "again"}, nil
}

func (s *someIssuers) Refresh(_ context.Context, _, token string) (oidc.Tokens, error) {
	if token != "again" {
		return oidc.Tokens{}, sandbox.Errorf(sandbox.Unauthorized, "the issuer refused the login: invalid_grant")
	}
	return oidc.Tokens{Credential: "ey.a.c", ValidFor: time.Minute}, nil
}

const redirect = "http://skerry.example/ui/login/done"

func redeemBody(code, redirect string) string {
	return fmt.Sprintf(`{"issuer":"https://i","code":%q,"code_verifier":%q,"nonce":%q,"redirect_uri":%q}`, code, strings.Repeat("v", 43), strings.Repeat("n", 43), redirect)
}

// TestLogins: both routes need no credential, and a login is redeemed only for the console of this server.
func TestLogins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	issuers := &someIssuers{list: []oidc.Login{{Issuer: "https://i", Name: "Acme", ClientID: "console", Scopes: []string{"openid"}, AuthorizationEndpoint: "https://i/auth"}, {Issuer: "https://j", Scopes: []string{"openid"}}}}
	var refused []string
	h := handler(t, w, func(o *Options) {
		o.Keys, o.Anonymous, o.Logins, o.AllowedHosts = w, nil, issuers, []string{"skerry.example"}
		o.AllowedOrigins = []string{"https://public.example"}
		o.AuthRefused = func(_ context.Context, c sandbox.Caller, reason string, _ bool) {
			refused = append(refused, c.Source+" "+reason)
		}
	})
	list, _ := decodeBody(t, send(h, "GET", "/api/login", ""))["issuers"].([]any)
	first, _ := list[0].(map[string]any)
	second, _ := list[1].(map[string]any)
	if len(list) != 2 || first["client_id"] != "console" || first["authorization_endpoint"] != "https://i/auth" || second["authorization_endpoint"] != nil {
		t.Errorf("%v", list)
	}
	post := func(body string, headers ...string) *httptest.ResponseRecorder {
		return send(h, "POST", "/api/login/oidc", body, append([]string{"Host: skerry.example", "Content-Type: application/json"}, headers...)...)
	}
	rec := post(redeemBody("good", redirect))
	if m := decodeBody(t, rec); rec.Code != 200 || m["token"] != "ey.a.b" || m["expires_in_s"] != 90.0 || m["refresh_token"] != "again" || rec.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v %v", rec.Code, m, rec.Header())
	}
	if m := decodeBody(t, post(`{"issuer":"https://i","refresh_token":"again"}`)); m["token"] != "ey.a.c" || m["refresh_token"] != nil {
		t.Errorf("%v", m)
	}
	if rec := post(redeemBody("good", "https://public.example/ui/login/done"), "Origin: https://public.example"); rec.Code != 200 {
		t.Errorf("behind a proxy: %d %s", rec.Code, rec.Body)
	}
	asked := len(issuers.asked)
	for _, to := range []string{
		"http://evil.example/ui/login/done", "http://skerry.example/ui/login/done?x=1", "http://skerry.example/ui/login/done#x", "http://skerry.example/ui/login", "http://skerry.example/ui/login/done/../x",
		"http://a@skerry.example/ui/login/done", "javascript://skerry.example/ui/login/done", "http://skerry.example/ui/login%2Fdone", "//skerry.example/ui/login/done", "http://skerry.example:1/ui/login/done", "%",
	} {
		wantProblem(t, post(redeemBody("good", to)), 400, "invalid")
	}
	wantProblem(t, post(redeemBody("good", redirect), "Origin: https://public.example"), 400, "invalid")
	wantProblem(t, post(redeemBody("good", redirect), "Origin: https://evil.example"), 403, "forbidden")
	for _, body := range []string{
		`{"issuer":"https://i"}`, `{"issuer":"https://i","code":"good"}`, `{"issuer":"https://i","code":"good","refresh_token":"again"}`, `{"refresh_token":"again"}`, `[]`, `{`,
		strings.Replace(redeemBody("good", redirect), "vvv", "v v", 1), strings.Replace(redeemBody("good", redirect), "nnn", "", 8),
		strings.TrimSuffix(redeemBody("good", redirect), "}") + `,"refresh_token":"again"}`,
		`{"issuer":"https://i","refresh_token":"` + strings.Repeat("r", 16<<10+1) + `"}`,
	} {
		wantProblem(t, post(body), 400, "invalid")
	}
	wantProblem(t, post(strings.Repeat(" ", 64<<10)+redeemBody("good", redirect)), http.StatusRequestEntityTooLarge, "invalid")
	wantProblem(t, send(h, "POST", "/api/login/oidc", redeemBody("good", redirect), "Host: skerry.example", "Content-Type: text/plain"), http.StatusUnsupportedMediaType, "invalid")
	if len(issuers.asked) != asked {
		t.Errorf("the issuer was asked: %v", issuers.asked[asked:])
	}
	// Wrong codes are recorded, and slow who sends them; a login that is good is not slowed by good ones.
	for range 50 {
		wantProblem(t, post(redeemBody("used", redirect)), 401, "unauthorized")
	}
	rec = post(redeemBody("used", redirect))
	wantProblem(t, rec, 429, "quota_exceeded")
	if rec.Header().Get("Retry-After") == "" || len(refused) != 50 || !strings.Contains(refused[0], "invalid_grant") {
		t.Errorf("%v, %d refused: %v", rec.Header(), len(refused), refused[:1])
	}
	without := handler(t, newWorld(t))
	if m := decodeBody(t, send(without, "GET", "/api/login", "")); len(m["issuers"].([]any)) != 0 {
		t.Errorf("%v", m)
	}
	wantProblem(t, send(without, "POST", "/api/login/oidc", redeemBody("good", "http://example.com/ui/login/done"), "Host: localhost"), 400, "invalid")
	wantProblem(t, send(without, "POST", "/api/login/oidc", redeemBody("good", "http://localhost/ui/login/done"), "Host: localhost"), 404, "not_found")
}

// TestManyLogins: issuers that hang take 16 places at most, and each of them comes back.
func TestManyLogins(t *testing.T) {
	t.Parallel()
	issuers := &someIssuers{hold: make(chan struct{}), entered: make(chan struct{}, 16)}
	h := handler(t, newWorld(t), func(o *Options) { o.Logins = issuers })
	post := func() *httptest.ResponseRecorder {
		return send(h, "POST", "/api/login/oidc", redeemBody("good", "http://localhost/ui/login/done"), "Host: localhost")
	}
	var waiting sync.WaitGroup
	for range 16 {
		waiting.Go(func() { wantProblem(t, post(), 503, "unavailable") })
	}
	for range 16 {
		<-issuers.entered
	}
	if m := wantProblem(t, post(), 503, "unavailable"); !strings.Contains(fmt.Sprint(m["detail"]), "16 logins are under way") {
		t.Errorf("%v", m)
	}
	close(issuers.hold)
	waiting.Wait()
	issuers.hold = nil
	if rec := post(); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
