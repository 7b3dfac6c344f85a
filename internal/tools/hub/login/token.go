package login

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// How a client proves to a token endpoint who it is (RFC 7591 §2).
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
	methodKey   = "private_key_jwt"
)

const (
	grantRefresh   = "refresh_token"
	grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	assertionType  = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	assertionLife  = 2 * time.Minute
)

// configured returns the client that the configuration names, with its secret; false when it names none.
func (c *Client) configured(a *authority) (client, bool) {
	s := c.o.Settings
	if s.ClientID == "" {
		return client{}, false
	}
	k := client{ID: s.ClientID, Secret: s.ClientSecret, Method: methodNone}
	supported := a.meta.TokenEndpointAuthMethodsSupported
	switch {
	case s.PrivateKey != "":
		k.Method = methodKey
	case s.ClientSecret != "" && !slices.Contains(supported, methodBasic) && slices.Contains(supported, methodPost):
		k.Method = methodPost
	case s.ClientSecret != "": // what a server without a list takes (RFC 8414 §2)
		k.Method = methodBasic
	}
	return k, true
}

// request asks a token endpoint. form is what belongs to the grant.
func (c *Client) request(ctx context.Context, endpoint, issuer string, k client, form url.Values) (*oauth2.Token, error) {
	cfg := &clientcredentials.Config{ClientID: k.ID, TokenURL: endpoint, AuthStyle: oauth2.AuthStyleInParams, EndpointParams: form}
	switch k.Method {
	case methodBasic:
		cfg.ClientSecret, cfg.AuthStyle = k.Secret, oauth2.AuthStyleInHeader
	case methodPost:
		cfg.ClientSecret = k.Secret
	case methodKey:
		audience := issuer
		if audience == "" {
			audience = endpoint
		}
		text, err := c.assertion(k.ID, audience)
		if err != nil {
			return nil, err
		}
		form.Set("client_assertion_type", assertionType)
		form.Set("client_assertion", text)
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, c.http), requestTimeout)
	defer cancel()
	t, err := cfg.Token(ctx)
	if err != nil {
		return nil, c.tokenError(err)
	}
	c.hide(t.AccessToken, t.RefreshToken)
	if !strings.EqualFold(t.Type(), "Bearer") {
		return nil, discovery{c}.failed(nil, "has an authorization server that issues tokens of a type that is not supported")
	}
	if !printable(t.AccessToken) {
		return nil, discovery{c}.failed(nil, "has an authorization server whose token is none")
	}
	return t, nil
}

func printable(token string) bool {
	return token != "" && len(token) <= 64<<10 && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// errRefused: the authorization server refuses to issue a token, and will refuse the next time.
var errRefused = errors.New("refused by the authorization server")

// tokenError says why there is no token. Of what the authorization server says only its code is passed
// on: the rest may repeat what it was sent.
func (c *Client) tokenError(err error) error {
	var known *sandbox.Error
	var answer *oauth2.RetrieveError
	switch {
	case errors.As(err, &known):
		return known
	case !errors.As(err, &answer):
		return discovery{c}.failed(nil, "has an authorization server that issues no token: %s", reason(err))
	case answer.Response != nil && (answer.Response.StatusCode >= 500 || answer.Response.StatusCode == http.StatusTooManyRequests):
		return discovery{c}.failed(nil, "has an authorization server that issues no token: status %d", answer.Response.StatusCode)
	}
	return discovery{c}.failed(errRefused, "has an authorization server that refuses: %s", code(answer.ErrorCode))
}

// code returns a stranger's error code when it looks like one.
func code(text string) string {
	if text == "" || len(text) > 64 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "it names no reason"
	}
	return text
}

// assertion proves with the configured key who the client is (RFC 7523 §3).
func (c *Client) assertion(id, audience string) (string, error) {
	key, algorithm, err := parseKey(c.o.Settings.PrivateKey, c.o.Settings.Algorithm)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is not usable: oauth.private_key: %s", c.o.Server, err)
	}
	options := (&jose.SignerOptions{}).WithType("JWT")
	if c.o.Settings.KeyID != "" {
		options = options.WithHeader("kid", c.o.Settings.KeyID)
	}
	now := time.Now()
	var text string
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err == nil {
		text, err = jwt.Signed(signer).Claims(jwt.Claims{
			Issuer: id, Subject: id, Audience: jwt.Audience{audience}, ID: rand.Text(),
			IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(assertionLife)),
		}).Serialize()
	}
	if err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is not usable: oauth.algorithm does not go with private_key", c.o.Server)
	}
	return text, nil
}

// assertionAlgorithms are the signatures that an authorization server verifies with a public key.
var assertionAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// parseKey reads a key and finds what it signs with. Its errors do not repeat the text.
func parseKey(text, algorithm string) (crypto.PrivateKey, jose.SignatureAlgorithm, error) {
	// A key in a variable often has its line breaks written as \n.
	block, _ := pem.Decode([]byte(strings.ReplaceAll(text, `\n`, "\n")))
	if block == nil {
		return nil, "", errors.New("is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, "", errors.New("is not a PKCS #8 key")
	}
	usual := ""
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		usual = map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[k.Curve.Params().BitSize]
	case *rsa.PrivateKey:
		usual = "RS256"
	case ed25519.PrivateKey:
		usual = "EdDSA"
	}
	if algorithm == "" {
		algorithm = usual
	}
	if !slices.Contains(assertionAlgorithms, jose.SignatureAlgorithm(algorithm)) {
		return nil, "", errors.New("has no algorithm that is supported")
	}
	return key, jose.SignatureAlgorithm(algorithm), nil
}

// machine gets a token without a person, and keeps it. The caller has the slot's lock.
func (c *Client) machine(ctx context.Context, ch challenge, scopes []string) (*record, error) {
	if err := c.slot.failedLately(); err != nil {
		return nil, err
	}
	a, err := discovery{c}.discover(ctx, ch)
	if err != nil {
		return nil, err
	}
	k, _ := c.configured(a)
	form := url.Values{"resource": {a.resource}}
	if c.o.Settings.Grant == GrantAssertion {
		form.Set("grant_type", grantJWTBearer)
		form.Set("assertion", c.o.Settings.Assertion)
	}
	scopes = union(c.scopes(a, ch), scopes)
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	t, err := c.request(ctx, a.meta.TokenEndpoint, a.meta.Issuer, k, form)
	if err != nil {
		if errors.Is(err, errRefused) {
			c.slot.fail(err)
		}
		return nil, err
	}
	r := c.recordOf(a, k, t, scopes)
	c.slot.keep(r)
	return r, nil
}

// scopes returns the scopes to ask for: the configured ones, else the ones that the server names.
func (c *Client) scopes(a *authority, ch challenge) []string {
	switch {
	case len(c.o.Settings.Scopes) > 0:
		return c.o.Settings.Scopes
	case len(ch.scopes) > 0:
		return ch.scopes
	}
	return a.scopes
}

// recordOf is what is kept of a token.
func (c *Client) recordOf(a *authority, k client, t *oauth2.Token, asked []string) *record {
	return &record{
		Server: c.o.Server, Issuer: a.meta.Issuer, Access: t.AccessToken, Refresh: t.RefreshToken, Expiry: t.Expiry, Scopes: granted(t, asked),
		Resource: a.resource, TokenURL: a.meta.TokenEndpoint, Revoke: a.meta.RevocationEndpoint, Client: k, Since: time.Now().UTC(),
	}
}

// granted returns the scopes of a token: an answer without them means the requested scopes (RFC 6749 §5.1).
func granted(t *oauth2.Token, asked []string) []string {
	if text, ok := t.Extra("scope").(string); ok && text != "" {
		return scopesOf(text)
	}
	return asked
}

// refresh gets a new token for an expired one.
func (c *Client) refresh(ctx context.Context, r *record) (*record, error) {
	k := r.Client
	if k.ID == c.o.Settings.ClientID {
		k.Secret = c.o.Settings.ClientSecret
	}
	form := url.Values{"grant_type": {grantRefresh}, "refresh_token": {r.Refresh}, "resource": {r.Resource}}
	t, err := c.request(ctx, r.TokenURL, r.Issuer, k, form)
	if err != nil {
		return nil, err
	}
	n := *r
	n.Access, n.Expiry, n.Scopes, n.Since = t.AccessToken, t.Expiry, granted(t, r.Scopes), time.Now().UTC()
	if t.RefreshToken != "" {
		n.Refresh = t.RefreshToken
	}
	return &n, nil
}
