package login

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Patience is how long a person may take between Begin and Finish.
const Patience = 10 * time.Minute

// Pending is a login that waits for a person.
type Pending struct {
	URL     string    // to open in a browser
	State   string    // by which the answer is known
	Expires time.Time // after which Finish refuses

	verifier, redirect string
	authority          *authority
	client             client
	scopes             []string
}

// Answer is what the authorization server sends the browser back with, in the query of the redirect.
type Answer struct {
	Code   string
	State  string
	Issuer string // "iss"
	Error  string // instead of Code: why not
}

// AnswerOf reads the query of a redirect.
func AnswerOf(q url.Values) Answer {
	return Answer{Code: q.Get("code"), State: q.Get("state"), Issuer: q.Get("iss"), Error: q.Get("error")}
}

// Begin finds out where to log in, registers with the authorization server when that is needed, and
// returns the URL to open. The browser will be sent back to redirect, an http URL of a loopback address.
func (c *Client) Begin(ctx context.Context, redirect string) (*Pending, error) {
	s := c.o.Settings
	switch {
	case s.Grant != GrantCode:
		return nil, sandbox.Errorf(sandbox.Invalid, "the MCP server %q has a grant that needs no login", c.o.Server)
	case s.RedirectURI != "":
		redirect = s.RedirectURI
	}
	if !IsLoopbackRedirect(redirect) {
		return nil, sandbox.Errorf(sandbox.Invalid, "redirect_uri: is not an http URL of a loopback address")
	}
	ch, err := c.ask(ctx)
	if err != nil {
		return nil, err
	}
	a, err := discovery{c}.discover(ctx, ch)
	if err != nil {
		return nil, err
	}
	kept, err := c.slot.current()
	if err != nil {
		return nil, err
	}
	k, err := c.clientFor(ctx, a, kept, redirect)
	if err != nil {
		return nil, err
	}
	p := &Pending{State: rand.Text(), Expires: time.Now().Add(Patience), verifier: oauth2.GenerateVerifier(), redirect: redirect, authority: a, client: k}
	p.scopes = c.scopes(a, ch)
	if len(p.scopes) > 0 && kept.Issuer == a.meta.Issuer {
		p.scopes = union(kept.Scopes, p.scopes) // what was agreed to is not given up
	}
	if slices.Contains(a.meta.ScopesSupported, "offline_access") {
		p.scopes = union(p.scopes, []string{"offline_access"}) // else a person would come back every hour
	}
	cfg := &oauth2.Config{ClientID: k.ID, Endpoint: oauth2.Endpoint{AuthURL: a.meta.AuthorizationEndpoint}, RedirectURL: redirect, Scopes: p.scopes}
	p.URL = cfg.AuthCodeURL(p.State, oauth2.S256ChallengeOption(p.verifier), oauth2.SetAuthURLParam("resource", a.resource))
	return p, nil
}

// ask gets the server's challenge: its last one, else that for a request without a token.
func (c *Client) ask(ctx context.Context) (challenge, error) {
	if ch := c.slot.noted(); ch.there {
		return ch, nil
	}
	const hello = `{"jsonrpc":"2.0","id":0,"method":"ping"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.URL, strings.NewReader(hello))
	if err != nil {
		return challenge{}, sandbox.Errorf(sandbox.Invalid, "url: is not an http or https URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	// The server's own address needs no guard: it is configured.
	own := &http.Client{Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := own.Do(req)
	if err != nil {
		return challenge{}, discovery{c}.failed(nil, "cannot be reached: %s", reason(err))
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
	return challengeOf(res), nil
}

// clientFor returns the client to log in as: the configured one, else a metadata document, else the client
// that the authorization server has registered, now or before.
func (c *Client) clientFor(ctx context.Context, a *authority, kept *record, redirect string) (client, error) {
	if k, ok := c.configured(a); ok {
		k.Secret = "" // it is in the configuration, and not kept twice
		return k, nil
	}
	if a.meta.ClientIDMetadataDocumentSupported && c.o.Settings.MetadataDocument != "" {
		return client{ID: c.o.Settings.MetadataDocument, Method: methodNone}, nil
	}
	if k, ok := kept.Registered[a.meta.Issuer]; ok && k.Redirect == redirect && (k.Expiry.IsZero() || time.Until(k.Expiry) > time.Hour) {
		return k, nil
	}
	if a.meta.RegistrationEndpoint == "" {
		return client{}, discovery{c}.failed(nil, "has an authorization server that registers no clients: oauth.client_id is needed in the configuration")
	}
	res, err := oauthex.RegisterClient(ctx, a.meta.RegistrationEndpoint, &oauthex.ClientRegistrationMetadata{
		ClientName: "Skerry", RedirectURIs: []string{redirect}, ApplicationType: "native",
		GrantTypes: []string{GrantCode, grantRefresh}, ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: wish(a.meta.TokenEndpointAuthMethodsSupported),
	}, c.http)
	var said *oauthex.ClientRegistrationError
	switch {
	case errors.As(err, &said):
		return client{}, discovery{c}.failed(nil, "has an authorization server that does not register us: %s", code(said.ErrorCode))
	case err != nil:
		return client{}, discovery{c}.failed(nil, "has an authorization server that does not register us: %s", reason(err))
	}
	k := client{ID: res.ClientID, Secret: res.ClientSecret, Method: res.TokenEndpointAuthMethod, Redirect: redirect}
	if !res.ClientSecretExpiresAt.IsZero() {
		k.Expiry = res.ClientSecretExpiresAt
	}
	switch {
	case k.Method == methodNone, k.Secret == "":
		k.Method = methodNone
	case k.Method != methodPost:
		k.Method = methodBasic
	}
	c.hide(k.Secret)
	return k, nil
}

// wish is how we should like to prove who we are: a client on people's machines keeps no secret well.
func wish(supported []string) string {
	for _, m := range []string{methodNone, methodBasic, methodPost} {
		if slices.Contains(supported, m) {
			return m
		}
	}
	return methodBasic // what a missing list stands for
}

// Finish takes what the browser came back with, and keeps the tokens that it is worth. An error is
// Invalid when the answer is not one to this login, or Unavailable.
func (c *Client) Finish(ctx context.Context, p *Pending, answer Answer) error {
	a := p.authority
	switch {
	case time.Now().After(p.Expires):
		return sandbox.Errorf(sandbox.Invalid, "the login took longer than %s; begin again", Patience)
	case answer.State != p.State:
		return sandbox.Errorf(sandbox.Invalid, "the answer belongs to another login")
	case answer.Issuer != a.meta.Issuer && (answer.Issuer != "" || a.meta.AuthorizationResponseIssParameterSupported):
		return sandbox.Errorf(sandbox.Invalid, "the answer does not come from the authorization server of this login")
	case answer.Issuer != "" && !a.meta.AuthorizationResponseIssParameterSupported:
		return sandbox.Errorf(sandbox.Invalid, "the answer names its issuer, which the authorization server does not say that it does")
	case answer.Error != "":
		return sandbox.Errorf(sandbox.Invalid, "the authorization server says: %s", code(answer.Error))
	case answer.Code == "":
		return sandbox.Errorf(sandbox.Invalid, "the answer has no code")
	}
	unlock, err := c.slot.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	k := p.client
	if k.ID == c.o.Settings.ClientID {
		k.Secret = c.o.Settings.ClientSecret
	}
	form := url.Values{"grant_type": {GrantCode}, "code": {answer.Code}, "redirect_uri": {p.redirect}, "code_verifier": {p.verifier}, "resource": {a.resource}}
	t, err := c.request(ctx, a.meta.TokenEndpoint, a.meta.Issuer, k, form)
	if err != nil {
		return err
	}
	kept, err := c.slot.current()
	if err != nil {
		kept = &record{} // what cannot be read is replaced
	}
	r := c.recordOf(a, p.client, t, p.scopes)
	r.Registered = map[string]client{}
	maps.Copy(r.Registered, kept.Registered)
	if p.client.Redirect != "" {
		r.Registered[a.meta.Issuer] = p.client
	}
	c.slot.challenged(challenge{})
	return c.slot.put(r)
}

// Forget ends the login: the authorization server is told, when it wants to know, and what is kept goes.
// found: there was one.
func (c *Client) Forget(ctx context.Context) (found bool, err error) {
	unlock, err := c.slot.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	r, err := c.slot.current()
	if err != nil {
		return true, c.slot.forget()
	}
	if r.Refresh != "" && isHTTP(r.Revoke) {
		c.revoke(ctx, r)
	}
	return r.Access != "" || r.Refresh != "", c.slot.forget()
}

// revoke asks for the end of a login (RFC 7009). That it fails does not keep the tokens here.
func (c *Client) revoke(ctx context.Context, r *record) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	k := r.Client
	if k.ID == c.o.Settings.ClientID {
		k.Secret = c.o.Settings.ClientSecret
	}
	form := url.Values{"token": {r.Refresh}, "token_type_hint": {grantRefresh}}
	if k.Method != methodBasic {
		form.Set("client_id", k.ID)
	}
	if k.Method == methodPost {
		form.Set("client_secret", k.Secret)
	}
	if k.Method == methodKey {
		text, err := c.assertion(k.ID, r.Issuer)
		if err != nil {
			return
		}
		form.Set("client_assertion_type", assertionType)
		form.Set("client_assertion", text)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Revoke, strings.NewReader(form.Encode()))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if k.Method == methodBasic {
		req.SetBasicAuth(url.QueryEscape(k.ID), url.QueryEscape(k.Secret))
	}
	if res, err := c.http.Do(req); err == nil {
		_ = res.Body.Close()
	}
}

// Redirect is where the browser is sent back to.
func (p *Pending) Redirect() string { return p.redirect }
