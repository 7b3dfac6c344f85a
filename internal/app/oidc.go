package app

import (
	"fmt"
	"log/slog"

	"github.com/skerry-sandbox/skerry/internal/api/auth/oidc"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// openIssuers makes the identity providers of the configuration. None is asked for anything before its first token.
func openIssuers(list []config.OIDCIssuer, log *slog.Logger) (*oidc.Issuers, error) {
	issuers := make([]oidc.Issuer, len(list))
	for i, c := range list {
		roles := map[string]sandbox.Role{}
		for name, role := range c.Roles {
			roles[name] = sandbox.Role(role)
		}
		issuers[i] = oidc.Issuer{
			URL: c.Issuer, Name: c.Name, KeysURL: c.KeysURL, Audiences: c.Audiences, Algorithms: c.Algorithms,
			Tenant: c.Tenant, TenantClaim: c.TenantClaim, Tenants: c.Tenants, UserClaim: c.UserClaim,
			RolesClaim: c.RolesClaim, Roles: roles, DefaultRole: sandbox.Role(c.DefaultRole), CapabilitiesClaim: c.CapabilitiesClaim,
			Skew: c.ClockSkew, MaxLifetime: c.MaxLifetime, CAFile: c.CAFile, ClientID: c.ClientID, Scopes: c.Scopes,
		}
	}
	s, err := oidc.Open(issuers, oidc.Options{Log: log})
	if err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	return s, nil
}
