package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// exchangeTime bounds the question to a token endpoint, with the answer. maxTokens bounds that answer.
	exchangeTime = 10 * time.Second
	maxTokens    = 128 << 10
	// maxRefreshBytes bounds a refresh token.
	maxRefreshBytes = 16 << 10
	// maxScopes bounds the scopes of an issuer, maxClientID and maxScope their bytes.
	maxScopes   = 20
	maxScope    = 128
	maxClientID = 256
	// maxSaid bounds what is quoted of an issuer.
	maxSaid = 300
)

// Login is what a public client needs to begin an authorization code flow.
type Login struct {
	Issuer   string
	Name     string
	ClientID string
	Scopes   []string
	// AuthorizationEndpoint is empty while the issuer's description cannot be read.
	AuthorizationEndpoint string
}

// Code is what the issuer sent a browser back with, and what that login began with.
type Code struct {
	Code        string
	Verifier    string // of PKCE
	Nonce       string
	RedirectURI string
}

// Tokens are the result of a login.
type Tokens struct {
	// Credential is a token that Authenticate takes for as long as ValidFor says.
	Credential string
	ValidFor   time.Duration
	// Refresh gets the next one; "": the issuer gave none.
	Refresh string
}

// checkLogin checks what the flow of a browser needs.
func (iss Issuer) checkLogin() error {
	var errs []error
	if iss.ClientID == "" && len(iss.Scopes) > 0 {
		errs = append(errs, errors.New("scopes: they are of a login, which needs client_id"))
	}
	if len(iss.ClientID) > maxClientID || strings.ContainsFunc(iss.ClientID, func(r rune) bool { return r < ' ' || r > '~' }) {
		errs = append(errs, fmt.Errorf("client_id: %.80q is not up to %d printable characters of ASCII", iss.ClientID, maxClientID))
	}
	if len(iss.Scopes) > maxScopes {
		errs = append(errs, fmt.Errorf("scopes: %d are more than %d", len(iss.Scopes), maxScopes))
	}
	for _, s := range iss.Scopes {
		if s == "" || len(s) > maxScope || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			errs = append(errs, fmt.Errorf("scopes: %.80q is none", s))
		}
	}
	if len(iss.Scopes) > 0 && !slices.Contains(iss.Scopes, scopeOpenID) {
		errs = append(errs, errors.New("scopes: openid is missing"))
	}
	return errors.Join(errs...)
}

const scopeOpenID = "openid"

// Logins returns the issuers that people may log in at by a browser, in the order of the configuration. It waits for the
// descriptions that it has not read yet until ctx ends.
func (s *Issuers) Logins(ctx context.Context) []Login {
	list := []Login{}
	for _, p := range s.ordered {
		if p.ClientID != "" {
			list = append(list, Login{Issuer: p.URL, Name: p.Name, ClientID: p.ClientID, Scopes: p.Scopes})
		}
	}
	var asking sync.WaitGroup
	for i := range list {
		asking.Go(func() {
			if d, err := s.byURL[list[i].Issuer].described.get(ctx); err == nil {
				list[i].AuthorizationEndpoint = d.Authorization
			}
		})
	}
	asking.Wait()
	return list
}

// Exchange redeems the code of a login. It verifies the ID token: its signature, audience (the client) and nonce. The
// credential is the access token when Authenticate takes it, else the ID token. Unauthorized: the issuer refused the code, or
// neither token is valid here; Unavailable: the issuer does not answer; NotFound: nobody can log in at that issuer.
func (s *Issuers) Exchange(ctx context.Context, issuer string, c Code) (Tokens, error) {
	p, err := s.loginAt(issuer)
	if err != nil {
		return Tokens{}, err
	}
	got, err := p.ask(ctx, url.Values{
		"grant_type": {"authorization_code"}, "code": {c.Code}, "redirect_uri": {c.RedirectURI}, "code_verifier": {c.Verifier},
	})
	if err != nil {
		return Tokens{}, err
	}
	if got.ID == "" {
		return Tokens{}, refuse("the issuer sent no ID token: is openid among the scopes of its client?")
	}
	return s.credential(ctx, p, got, c.Nonce)
}

// Refresh gets the next credential by a refresh token. Errors are as those of Exchange.
func (s *Issuers) Refresh(ctx context.Context, issuer, token string) (Tokens, error) {
	p, err := s.loginAt(issuer)
	if err != nil {
		return Tokens{}, err
	}
	got, err := p.ask(ctx, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}})
	if err != nil {
		return Tokens{}, err
	}
	if got.Refresh == "" { // it stays good
		got.Refresh = token
	}
	return s.credential(ctx, p, got, "")
}

func (s *Issuers) loginAt(issuer string) (*provider, error) {
	p := s.byURL[issuer]
	if p == nil || p.ClientID == "" {
		return nil, sandbox.Errorf(sandbox.NotFound, "people do not log in at the issuer %.200q here", issuer)
	}
	return p, nil
}

// issued is the answer of a token endpoint.
type issued struct {
	Access  string `json:"access_token"`
	ID      string `json:"id_token"`
	Refresh string `json:"refresh_token"`
	// Error and Description are there when it refused.
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// credential verifies what an issuer sent, and chooses what callers send from now on. nonce is that of the login, "" later.
func (s *Issuers) credential(ctx context.Context, p *provider, got issued, nonce string) (Tokens, error) {
	if len(got.Refresh) > maxRefreshBytes {
		return Tokens{}, refuse("the issuer sent a refresh token of more than %d bytes", maxRefreshBytes)
	}
	subject := ""
	if got.ID != "" {
		std, err := s.idToken(ctx, p, got.ID, nonce)
		if err != nil {
			return Tokens{}, err
		}
		subject = std.Subject
	}
	refused := refuse("the issuer sent none that this server takes")
	for _, text := range []string{got.Access, got.ID} {
		if strings.Count(text, ".") != 2 { // an access token may be of any form
			continue
		}
		by, std, claims, err := s.verified(ctx, text)
		if err == nil && (by != p || subject != "" && std.Subject != subject) {
			err = refuse("it is not for the user who logged in")
		}
		if err == nil {
			err = p.checkTimes(std, p.Audiences, s.now())
		}
		if err == nil {
			_, err = p.caller(std, claims)
		}
		if err == nil {
			return Tokens{Credential: text, ValidFor: std.Expiry.Time().Sub(s.now()), Refresh: got.Refresh}, nil
		}
		refused = err
	}
	return Tokens{}, refused
}

// idToken verifies an ID token for the client of the login.
func (s *Issuers) idToken(ctx context.Context, p *provider, text, nonce string) (jwt.Claims, error) {
	by, std, claims, err := s.verified(ctx, text)
	if err != nil {
		return std, err
	}
	if by != p {
		return std, refuse("the ID token is of another issuer")
	}
	if err := p.checkTimes(std, []string{p.ClientID}, s.now()); err != nil {
		return std, err
	}
	switch party, given := claims["azp"]; {
	case std.Subject == "":
		return std, refuse("the ID token has no sub")
	case given && party != p.ClientID:
		return std, refuse("the ID token is for another client")
	case nonce != "" && claims["nonce"] != nonce:
		return std, refuse("the ID token is of another login: its nonce is not that of this one")
	}
	return std, nil
}

// ask sends a form to the token endpoint of the issuer.
func (p *provider) ask(ctx context.Context, form url.Values) (issued, error) {
	d, err := p.described.get(ctx)
	if err != nil {
		return issued{}, err
	}
	form.Set("client_id", p.ClientID)
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return issued{}, sandbox.Wrap(sandbox.Internal, err, "the token endpoint cannot be asked")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	res, err := p.keys.client.Do(req)
	if err != nil {
		return issued{}, sandbox.Wrap(sandbox.Unavailable, err, "%s does not answer", p.Name)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxTokens+1))
	switch {
	case err != nil:
		return issued{}, sandbox.Wrap(sandbox.Unavailable, err, "%s did not answer to the end", p.Name)
	case len(raw) > maxTokens:
		return issued{}, sandbox.Errorf(sandbox.Unavailable, "%s answered with more than %d bytes", p.Name, maxTokens)
	}
	var got issued
	wrong := json.Unmarshal(raw, &got)
	switch {
	case res.StatusCode >= 400 && res.StatusCode < 500 && wrong == nil && got.Error != "":
		return issued{}, sandbox.Errorf(sandbox.Unauthorized, "%s refused the login: %s", p.Name, said(got.Error, got.Description))
	case res.StatusCode != http.StatusOK:
		return issued{}, sandbox.Errorf(sandbox.Unavailable, "%s answered the login with %d", p.Name, res.StatusCode)
	case wrong != nil || got.Access == "" && got.ID == "":
		return issued{}, sandbox.Errorf(sandbox.Unavailable, "%s answered the login with no tokens", p.Name)
	}
	return got, nil
}

// said quotes an error of an issuer: its code, and its words for people.
func said(code, description string) string {
	text := code
	if description != "" {
		text += " (" + description + ")"
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' { // what RFC 6749 allows
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return text[:min(len(text), maxSaid)]
}
