package logins

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/auth/oidc"
	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// listTime bounds how long a list waits for descriptions of issuers, redeemTime one login.
	listTime   = 6 * time.Second
	redeemTime = 20 * time.Second
	// maxBody bounds the body of a login. The largest part is a refresh token.
	maxBody = 64 << 10
	// atOnce is how many logins the server asks issuers about at the same time.
	atOnce = 16
	// returnPath is where the console takes a browser back.
	returnPath = "/ui/login/done"
)

// Issuers are the identity providers.
type Issuers interface {
	Logins(ctx context.Context) []oidc.Login
	Exchange(ctx context.Context, issuer string, c oidc.Code) (oidc.Tokens, error)
	Refresh(ctx context.Context, issuer, token string) (oidc.Tokens, error)
}

// Routes are the routes of logins. Make it by New.
type Routes struct {
	issuers Issuers // nil: there are none
	refused access.Refused
	guesses *auth.Guesses
	places  chan struct{}
}

// New returns the routes. issuers may be nil. refused is told of each login that an issuer refused; it may be nil.
func New(issuers Issuers, refused access.Refused) Routes {
	return Routes{issuers: issuers, refused: refused, guesses: auth.NewGuesses(), places: make(chan struct{}, atOnce)}
}

// loginProvider is an identity provider as the page of a login needs it.
type loginProvider struct {
	Issuer                string   `json:"issuer"`
	Name                  string   `json:"name"`
	ClientID              string   `json:"client_id" doc:"Of a public client: there is no secret"`
	Scopes                []string `json:"scopes"`
	AuthorizationEndpoint string   `json:"authorization_endpoint,omitempty" doc:"Absent while the provider does not answer the server"`
}

type loginProviders struct {
	Issuers []loginProvider `json:"issuers"`
}

// in is a code to redeem, or a refresh token.
type in struct {
	Body struct {
		Issuer       string `json:"issuer" minLength:"1" maxLength:"2048"`
		Code         string `json:"code,omitempty" maxLength:"8192" doc:"As the provider sent the browser back with it"`
		CodeVerifier string `json:"code_verifier,omitempty" pattern:"^[A-Za-z0-9._~-]{43,128}$" doc:"Of PKCE, whose challenge the login began with (S256)"`
		Nonce        string `json:"nonce,omitempty" pattern:"^[A-Za-z0-9_-]{22,128}$" doc:"That the login began with; the ID token has to have it"`
		RedirectURI  string `json:"redirect_uri,omitempty" maxLength:"2048" doc:"That the login began with: /ui/login/done of this server"`
		RefreshToken string `json:"refresh_token,omitempty" maxLength:"16384" doc:"In place of all of these: gets the next token"`
	}
}

type loginToken struct {
	Token        string `json:"token" doc:"Send it as Authorization: Bearer"`
	ExpiresInS   int    `json:"expires_in_s"`
	RefreshToken string `json:"refresh_token,omitempty"`
}

type out struct {
	CacheControl string `header:"Cache-Control"`
	Body         loginToken
}

// Add adds the routes to api.
func (s Routes) Add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/login", "listLogins", route.TagServer, route.Anyone,
		"The identity providers at which a person can log in to the console"), s.list)
	op := route.On(http.MethodPost, "/api/login/oidc", "redeemLogin", route.TagServer, route.Anyone,
		"Redeem the code of a login, or a refresh token, for a token that the API takes")
	op.MaxBodyBytes = maxBody
	route.Register(api, op, s.redeem)
}

func (s Routes) list(ctx context.Context, _ *struct{}) (*route.Body[loginProviders], error) {
	o := loginProviders{Issuers: []loginProvider{}}
	if s.issuers == nil {
		return route.BodyOf(o), nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	for _, l := range s.issuers.Logins(ctx) {
		o.Issuers = append(o.Issuers, loginProvider(l))
	}
	return route.BodyOf(o), nil
}

func (s Routes) redeem(ctx context.Context, in *in) (*out, error) {
	b := in.Body
	r := exchange.Of(ctx).Request
	code := oidc.Code{Code: b.Code, Verifier: b.CodeVerifier, Nonce: b.Nonce, RedirectURI: b.RedirectURI}
	whole, empty := b.Code != "" && b.CodeVerifier != "" && b.Nonce != "" && b.RedirectURI != "", code == oidc.Code{}
	switch {
	case whole == (b.RefreshToken != "") || !whole && !empty:
		return nil, sandbox.Errorf(sandbox.Invalid, "give code, code_verifier, nonce and redirect_uri, or refresh_token alone")
	case whole && !ours(r, b.RedirectURI):
		return nil, sandbox.Errorf(sandbox.Invalid, "redirect_uri: it is not %s of this server", returnPath)
	case s.issuers == nil:
		return nil, sandbox.Errorf(sandbox.NotFound, "this server has no identity provider")
	}
	source := exchange.Source(r)
	if wait := s.guesses.Wait(source); wait > 0 {
		return nil, access.TooMany(&auth.TooMany{Wait: wait})
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		return nil, sandbox.Errorf(sandbox.Unavailable, "%d logins are under way: try again", atOnce)
	}
	ctx, cancel := context.WithTimeout(ctx, redeemTime)
	defer cancel()
	var tokens oidc.Tokens
	var err error
	if whole {
		tokens, err = s.issuers.Exchange(ctx, b.Issuer, code)
	} else {
		tokens, err = s.issuers.Refresh(ctx, b.Issuer, b.RefreshToken)
	}
	if err != nil {
		s.note(ctx, err, source)
		return nil, err
	}
	return &out{CacheControl: exchange.NoStore, Body: loginToken{Token: tokens.Credential, ExpiresInS: max(0, int(tokens.ValidFor/time.Second)), RefreshToken: tokens.Refresh}}, nil
}

// note counts and records a login that was refused.
func (s Routes) note(ctx context.Context, err error, source string) {
	if kind := sandbox.KindOf(err); kind != sandbox.Unauthorized && kind != sandbox.NotFound {
		return
	}
	s.guesses.Wrong(source)
	if s.refused != nil {
		x := exchange.Of(ctx)
		s.refused(ctx, sandbox.Caller{RequestID: x.ID, Source: source, UserAgent: exchange.UserAgent(x.Request)}, exchange.Problem(ctx, err).Detail, false)
	}
}

// ours reports whether an address is that of the console at this server, as the browser has it: behind a proxy its origin is not
// what the server listens on. Which origins may call at all, the guard has checked.
func ours(r *http.Request, address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Path != returnPath || u.RawPath != "" || strings.ContainsAny(address, "?#") || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		return strings.EqualFold(origin, u.Scheme+"://"+u.Host)
	}
	return strings.EqualFold(r.Host, u.Host)
}
