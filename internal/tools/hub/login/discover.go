package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// discovery finds out how one logs in at a server.
type discovery struct{ *Client }

// challenge is what a server wants, from WWW-Authenticate.
type challenge struct {
	there    bool   // it wants a token
	metadata string // where it says more
	scopes   []string
	code     string // invalid_token, insufficient_scope …
}

func challengeOf(res *http.Response) challenge {
	all, err := oauthex.ParseWWWAuthenticate(res.Header.Values("WWW-Authenticate"))
	if err != nil {
		return challenge{}
	}
	for _, c := range all {
		if c.Scheme == "bearer" {
			return challenge{true, c.Params["resource_metadata"], scopesOf(c.Params["scope"]), c.Params["error"]}
		}
	}
	return challenge{}
}

// authority is who issues tokens for a server, and for what.
type authority struct {
	meta     oauthex.AuthServerMeta
	resource string
	scopes   []string // that the resource knows
}

// errNoDocument: there is no metadata at an address. Any other failure is a reason to stop.
var errNoDocument = errors.New("there is no metadata")

// document gets a JSON document.
func (c discovery) document(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errNoDocument
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // "" when it cannot be read
	switch {
	case res.StatusCode >= 500:
		return fmt.Errorf("status %d", res.StatusCode)
	case res.StatusCode != http.StatusOK || kind != "application/json":
		return errNoDocument
	}
	text, err := io.ReadAll(res.Body) // which is bounded
	if err != nil {
		return err
	}
	if json.Unmarshal(text, into) != nil {
		return errNoDocument
	}
	return nil
}

// discover finds out who issues tokens for the server.
func (c discovery) discover(ctx context.Context, ch challenge) (*authority, error) {
	if c.o.Settings.TokenURL != "" {
		return &authority{meta: oauthex.AuthServerMeta{Issuer: c.o.Settings.Issuer, TokenEndpoint: c.o.Settings.TokenURL}, resource: resourceOf(c.target)}, nil
	}
	prm, err := c.resource(ctx, ch.metadata)
	if err != nil {
		return nil, err
	}
	a := &authority{resource: resourceOf(c.target)}
	issuer := c.o.Settings.Issuer
	if prm != nil {
		a.resource, a.scopes = prm.Resource, onlyScopes(prm.ScopesSupported)
		switch {
		case len(prm.AuthorizationServers) == 0:
			return nil, c.failed(nil, "names no authorization server in its metadata")
		case issuer == "":
			issuer = prm.AuthorizationServers[0]
		case !slices.ContainsFunc(prm.AuthorizationServers, func(s string) bool { return sameIssuer(s, issuer) }):
			return nil, c.failed(nil, "names other authorization servers than the issuer in its configuration")
		}
	}
	if issuer == "" { // as it was in the specification of 2025-03-26
		issuer = origin(c.target)
	}
	if !isHTTP(issuer) {
		return nil, c.failed(nil, "names an authorization server that is no http or https URL")
	}
	if err := c.authorization(ctx, issuer, prm == nil, &a.meta); err != nil {
		return nil, err
	}
	return a, nil
}

// resourceOf is how the server is called in requests for tokens (RFC 8707).
func resourceOf(u *url.URL) string {
	r := *u
	r.User, r.Fragment, r.RawQuery = nil, "", ""
	return r.String()
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// resource gets the server's protected resource metadata, nil when it has none.
func (c discovery) resource(ctx context.Context, named string) (*oauthex.ProtectedResourceMetadata, error) {
	well := origin(c.target) + "/.well-known/oauth-protected-resource"
	places := []string{well + strings.TrimSuffix(c.target.EscapedPath(), "/"), well}
	if named != "" {
		places = append([]string{named}, places...)
	}
	for _, place := range slices.Compact(places) {
		var prm oauthex.ProtectedResourceMetadata
		err := c.document(ctx, place, &prm)
		switch {
		case errors.Is(err, errNoDocument):
			continue
		case err != nil:
			return nil, c.failed(err, "has metadata that cannot be read: %s", reason(err))
		case !covers(prm.Resource, c.target):
			return nil, c.failed(nil, "has metadata that is about another resource than itself")
		}
		return &prm, nil
	}
	return nil, nil
}

// covers reports whether a resource is the server at target, or a part of its site that it is below:
// tokens for the site of another one must never be asked for.
func covers(resource string, target *url.URL) bool {
	r, err := url.Parse(resource)
	if err != nil || r.Scheme != target.Scheme || !strings.EqualFold(r.Host, target.Host) || r.Fragment != "" || r.User != nil {
		return false
	}
	path := strings.TrimSuffix(r.Path, "/")
	return path == strings.TrimSuffix(target.Path, "/") || strings.HasPrefix(target.Path, path+"/")
}

// authorization gets the metadata of an authorization server. fallback: one without any has the paths of
// the specification of 2025-03-26.
func (c discovery) authorization(ctx context.Context, issuer string, fallback bool, meta *oauthex.AuthServerMeta) error {
	places := metadataURLs(issuer)
	if m := c.o.Settings.MetadataURL; m != "" {
		places = []string{m}
	}
	for _, place := range places {
		err := c.document(ctx, place, meta)
		switch {
		case errors.Is(err, errNoDocument):
			continue
		case err != nil:
			return c.failed(err, "has an authorization server whose metadata cannot be read: %s", reason(err))
		case !sameIssuer(meta.Issuer, issuer) && (c.o.Settings.MetadataURL == "" || c.o.Settings.Issuer != ""):
			return c.failed(nil, "has an authorization server whose metadata is about another issuer")
		}
		return c.checkMeta(meta)
	}
	if !fallback {
		return c.failed(nil, "has an authorization server without metadata")
	}
	base := strings.TrimSuffix(issuer, "/")
	*meta = oauthex.AuthServerMeta{Issuer: issuer, AuthorizationEndpoint: base + "/authorize", TokenEndpoint: base + "/token", RegistrationEndpoint: base + "/register", CodeChallengeMethodsSupported: []string{"S256"}}
	return nil
}

// metadataURLs are the places where an authorization server's metadata may be, in their order.
func metadataURLs(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	base, path := origin(u), strings.Trim(u.EscapedPath(), "/")
	const oauth, oidc = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	if path == "" {
		return []string{base + oauth, base + oidc}
	}
	return []string{base + oauth + "/" + path, base + oidc + "/" + path, base + "/" + path + oidc}
}

// checkMeta refuses what must not be used. Requests to its addresses are checked when they are made; the
// an address that a person's browser opens is checked here.
func (c discovery) checkMeta(meta *oauthex.AuthServerMeta) error {
	if !isHTTP(meta.TokenEndpoint) {
		return c.failed(nil, "has an authorization server without a token endpoint")
	}
	if c.o.Settings.Grant != GrantCode {
		return nil
	}
	switch u, err := url.Parse(meta.AuthorizationEndpoint); {
	case err != nil || !isHTTP(meta.AuthorizationEndpoint):
		return c.failed(nil, "has an authorization server without a page to log in")
	case u.Scheme != "https" && !(&guard{target: c.target, allowPrivate: c.o.Settings.AllowPrivate}).mayBePlain(u):
		return c.failed(nil, "has an authorization server whose page to log in does not use https")
	case !slices.Contains(meta.CodeChallengeMethodsSupported, "S256"):
		return c.failed(nil, "has an authorization server without PKCE (S256)")
	}
	return nil
}

// sameIssuer: a slash at the end makes no other issuer of it, in metadata.
func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// failed says what is wrong, as an error about the server.
func (c discovery) failed(err error, format string, args ...any) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "the MCP server %q %s", c.o.Server, fmt.Sprintf(format, args...))
}

// reason says in a few words, without addresses, why a request failed.
func reason(err error) string {
	for _, known := range []error{errAddress, errPlain, errRedirect} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "it did not answer in time"
	case errors.Is(err, errNoDocument):
		return errNoDocument.Error()
	}
	return "it cannot be reached"
}
