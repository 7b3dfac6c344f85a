package oidc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MaxTokenBytes bounds a token before anything of it is read.
const MaxTokenBytes = 16 << 10

// Defaults and bounds of an Issuer.
const (
	DefaultSkew     = time.Minute
	MaxSkew         = 5 * time.Minute
	DefaultLifetime = 24 * time.Hour
)

// Algorithms returns the algorithms that may be allowed: signatures by a private key that only the issuer
// has. The list lacks "none", and HS…, whose key would be the published one.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// DefaultAlgorithms are allowed when an issuer names none.
func DefaultAlgorithms() []string { return []string{"RS256", "PS256", "ES256", "EdDSA"} }

// Issuer is one identity provider, and how its tokens are read. A claim is named by its name, or by a JSON
// pointer such as /realm_access/roles.
type Issuer struct {
	// URL is the claim iss, to the letter; the provider's description is below it, at .well-known/openid-configuration.
	URL string
	// Name is what records call it; the URL's host when empty.
	Name string
	// KeysURL is where the keys are, when there is no description; file:///… for keys that are published nowhere.
	KeysURL string
	// Audiences: a token has to be for one of them.
	Audiences []string
	// Algorithms that a token may be signed with; DefaultAlgorithms when empty.
	Algorithms []string
	// Tenant is that of all tokens, or TenantClaim says where a token names it. One of both.
	Tenant      string
	TenantClaim string
	// Tenants lists the tenants that TenantClaim may name; "*" allows any.
	Tenants []string
	// UserClaim names the user; sub when empty.
	UserClaim string
	// RolesClaim has names, as a list, or a text with spaces between; Roles says which role each stands for (when
	// empty, the names of the roles themselves). Of several the first of admin, developer, agent, auditor counts.
	RolesClaim string
	Roles      map[string]sandbox.Role
	// DefaultRole is that of a token without a role; "": it is refused.
	DefaultRole sandbox.Role
	// CapabilitiesClaim has names as RolesClaim does. Names that cannot be capabilities are left out.
	CapabilitiesClaim string
	// Skew is how far clocks may differ; DefaultSkew when zero.
	Skew time.Duration
	// MaxLifetime is how far ahead a token may expire; DefaultLifetime when zero.
	MaxLifetime time.Duration
	// CAFile holds certificates that the provider's may be signed by, besides the system's.
	CAFile string
	// ClientID is the public client of people who log in by a browser; "": nobody does. Scopes is what they ask for; openid when
	// empty.
	ClientID string
	Scopes   []string
}

// Options of Open.
type Options struct {
	Log *slog.Logger
	// Now replaces time.Now in tests.
	Now func() time.Time
}

// Issuers are the identity providers of a server. It is safe for concurrent use.
type Issuers struct {
	byURL   map[string]*provider
	ordered []*provider // as they are configured
	now     func() time.Time
	end     context.CancelFunc
}

// provider is an issuer with its keys.
type provider struct {
	Issuer
	algorithms []jose.SignatureAlgorithm
	keys       *keySet
	described  *description
}

// Open checks the issuers, all mistakes at once, and asks none of them: keys are fetched with the first token.
func Open(list []Issuer, o Options) (*Issuers, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Issuers{byURL: map[string]*provider{}, now: o.Now, end: end}
	var errs []error
	for i, iss := range list {
		p, err := newProvider(ctx, iss, o)
		if err == nil && s.byURL[iss.URL] != nil {
			err = errors.New("issuer: it is there twice")
		}
		if err == nil && len(list) > 1 && iss.TenantClaim != "" && len(iss.Tenants) == 0 {
			err = errors.New("tenants: with several issuers, say which tenants this one may name ([\"*\"] for any)")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("oidc[%d]: %w", i, err))
			continue
		}
		s.byURL[iss.URL] = p
		s.ordered = append(s.ordered, p)
	}
	if len(errs) > 0 {
		end()
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// Close ends what is being fetched, and waits for it.
func (s *Issuers) Close() error {
	s.end()
	for _, p := range s.byURL {
		p.keys.close()
	}
	return nil
}

// Authenticate says who sends a token. Unauthorized: it is not valid now, or says not enough; Unavailable: its
// issuer's keys cannot be had.
func (s *Issuers) Authenticate(ctx context.Context, text string) (sandbox.Caller, error) {
	p, std, all, err := s.verified(ctx, text)
	if err != nil {
		return sandbox.Caller{}, err
	}
	if err := p.checkTimes(std, p.Audiences, s.now()); err != nil {
		return sandbox.Caller{}, err
	}
	return p.caller(std, all)
}

// verified returns the claims of a token that one of the issuers signed, and that issuer. Whom it is for and when, the caller
// looks at.
func (s *Issuers) verified(ctx context.Context, text string) (p *provider, std jwt.Claims, all map[string]any, err error) {
	if len(text) > MaxTokenBytes {
		return nil, std, nil, refuse("it is longer than %d bytes", MaxTokenBytes)
	}
	p, token, err := s.parse(text)
	if err != nil {
		return nil, std, nil, err
	}
	head := token.Headers[0]
	key, err := p.keys.find(ctx, head.KeyID, head.Algorithm)
	if err != nil {
		return nil, std, nil, err
	}
	if err := token.Claims(key, &std, &all); err != nil {
		return nil, std, nil, refuse("its signature is not the issuer's")
	}
	return p, std, all, nil
}

// parse finds the issuer that a token names, and parses it by what that issuer allows. Nothing is verified yet.
func (s *Issuers) parse(text string) (*provider, *jwt.JSONWebToken, error) {
	token, err := jwt.ParseSigned(text, signatures(Algorithms()))
	if err != nil || len(token.Headers) != 1 {
		return nil, nil, refuse("it is no JWT that is signed by one of %s", strings.Join(Algorithms(), ", "))
	}
	head := token.Headers[0]
	var claims jwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return nil, nil, refuse("its claims cannot be read")
	}
	p := s.byURL[claims.Issuer]
	switch {
	case p == nil:
		return nil, nil, refuse("its issuer %.200q is not one of this server", claims.Issuer)
	case !slices.Contains(p.algorithms, jose.SignatureAlgorithm(head.Algorithm)):
		return nil, nil, refuse("the algorithm %s is not allowed for its issuer", head.Algorithm)
	}
	if head.ExtraHeaders["crit"] != nil {
		return nil, nil, refuse("it has critical headers, of which none is known")
	}
	// A token for another purpose, such as a logout, is signed by the same key.
	typ, _ := head.ExtraHeaders[jose.HeaderType].(string)
	switch strings.TrimPrefix(strings.ToLower(typ), "application/") {
	case "", "jwt", "at+jwt":
	default:
		return nil, nil, refuse("its typ %.64q is neither JWT nor at+jwt", typ)
	}
	return p, token, nil
}

// checkTimes compares a verified token with what its issuer and this server say. go-jose has compared nothing yet.
func (p *provider) checkTimes(c jwt.Claims, audiences []string, now time.Time) error {
	if c.Expiry == nil {
		return refuse("it has no exp")
	}
	switch err := c.ValidateWithLeeway(jwt.Expected{Issuer: p.URL, AnyAudience: audiences, Time: now}, p.Skew); {
	case errors.Is(err, jwt.ErrExpired):
		return refuse("it expired at %s", c.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet):
		return refuse("it is not valid before %s", c.NotBefore.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return refuse("it was issued in the future")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return refuse("it is for another audience than %s", strings.Join(audiences, " or "))
	case err != nil:
		return refuse("it is not of that issuer")
	}
	from := now
	if c.IssuedAt != nil && c.IssuedAt.Time().Before(now) {
		from = c.IssuedAt.Time()
	}
	if c.Expiry.Time().Sub(from) > p.MaxLifetime+p.Skew {
		return refuse("it is valid for longer than %s", p.MaxLifetime)
	}
	return nil
}

func signatures(names []string) []jose.SignatureAlgorithm {
	all := make([]jose.SignatureAlgorithm, len(names))
	for i, n := range names {
		all[i] = jose.SignatureAlgorithm(n)
	}
	return all
}

func refuse(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Unauthorized, "the token is not valid: "+format, args...)
}
