package oidc

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// hashedUser begins the names of users whose own cannot be one here, such as "auth0|5f7c".
const hashedUser = "sub-"

// caller reads who a verified token is for. What it does not say is not guessed.
func (p *provider) caller(std jwt.Claims, claims map[string]any) (sandbox.Caller, error) {
	tenant, err := p.tenant(claims)
	if err != nil {
		return sandbox.Caller{}, err
	}
	name, _ := lookup(claims, p.UserClaim).(string)
	if name == "" {
		return sandbox.Caller{}, refuse("it names no user in %s", p.UserClaim)
	}
	role, err := p.role(claims)
	if err != nil {
		return sandbox.Caller{}, err
	}
	caps := slices.DeleteFunc(names(lookup(claims, p.CapabilitiesClaim)), func(n string) bool {
		_, err := sandbox.CheckCapabilities([]string{n})
		return err != nil
	})
	caps, err = sandbox.CheckCapabilities(caps)
	if err != nil {
		return sandbox.Caller{}, refuse("it has more than %d capabilities", sandbox.MaxCapabilities)
	}
	user := userName(name)
	return sandbox.Caller{
		Owner: sandbox.Owner{Tenant: tenant, User: user}, Actor: user, Role: role, Capabilities: caps,
		KeyID: "oidc:" + p.Name + "/" + user, Method: sandbox.ByToken,
	}, nil
}

func (p *provider) tenant(claims map[string]any) (string, error) {
	if p.TenantClaim == "" {
		return p.Tenant, nil
	}
	tenant, _ := lookup(claims, p.TenantClaim).(string)
	switch {
	case tenant == "":
		return "", refuse("it names no tenant in %s", p.TenantClaim)
	case sandbox.CheckOwnerName("tenant", tenant) != nil:
		return "", refuse("its tenant %.140q cannot be the name of one", tenant)
	case len(p.Tenants) > 0 && !slices.Contains(p.Tenants, "*") && !slices.Contains(p.Tenants, tenant):
		return "", refuse("its issuer may not name the tenant %q", tenant)
	}
	return tenant, nil
}

// roleOrder is which of several roles counts.
var roleOrder = []sandbox.Role{sandbox.RoleAdmin, sandbox.RoleDeveloper, sandbox.RoleAgent, sandbox.RoleAuditor, sandbox.RolePack}

func (p *provider) role(claims map[string]any) (sandbox.Role, error) {
	var has []sandbox.Role
	for _, n := range names(lookup(claims, p.RolesClaim)) {
		if len(p.Roles) == 0 {
			has = append(has, sandbox.Role(n))
		} else if r, ok := p.Roles[n]; ok {
			has = append(has, r)
		}
	}
	for _, r := range roleOrder {
		if slices.Contains(has, r) {
			return r, nil
		}
	}
	if p.DefaultRole == "" {
		return "", refuse("it has no role for this server")
	}
	return p.DefaultRole, nil
}

// userName makes a name of a user out of any text, so that two texts never become one name.
func userName(text string) string {
	if sandbox.CheckOwnerName("user", text) == nil && !strings.HasPrefix(text, hashedUser) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hashedUser + hex.EncodeToString(sum[:20])
}

// lookup finds a claim by its name, or by a JSON pointer (RFC 6901) through objects; nil when it is not there.
func lookup(claims map[string]any, path string) any {
	if path == "" {
		return nil
	}
	if !strings.HasPrefix(path, "/") {
		return claims[path]
	}
	var at any = claims
	for part := range strings.SplitSeq(path[1:], "/") {
		object, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}

// names reads a list of texts, or one text with spaces between.
func names(v any) []string {
	switch v := v.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		var all []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				all = append(all, s)
			}
		}
		return all
	}
	return nil
}
