package config

import "time"

// OIDCIssuer is an identity provider whose signed tokens are credentials, as internal/api/auth/oidc reads them. A claim
// is named by its name, or by a JSON pointer such as /realm_access/roles.
type OIDCIssuer struct {
	// Issuer is the claim iss, to the letter. Name is what records call it.
	Issuer string `yaml:"issuer"`
	Name   string `yaml:"name"`
	// KeysURL is where its keys are, when it has no /.well-known/openid-configuration; file:///… when it publishes them nowhere.
	KeysURL string `yaml:"keys_url"`
	// Audiences: a token has to be for one of them. Algorithms it may be signed with.
	Audiences  []string `yaml:"audiences"`
	Algorithms []string `yaml:"algorithms"`
	// Tenant is that of all tokens; or TenantClaim says where a token names it, which has to be one of Tenants.
	Tenant      string   `yaml:"tenant"`
	TenantClaim string   `yaml:"tenant_claim"`
	Tenants     []string `yaml:"tenants"`
	// UserClaim names the user.
	UserClaim string `yaml:"user_claim"`
	// RolesClaim names groups or roles, and Roles what each of them is here; DefaultRole is for tokens without any.
	RolesClaim  string            `yaml:"roles_claim"`
	Roles       map[string]string `yaml:"roles"`
	DefaultRole string            `yaml:"default_role"`
	// CapabilitiesClaim names capabilities, such as scope.
	CapabilitiesClaim string `yaml:"capabilities_claim"`
	// ClockSkew is how far clocks may differ, MaxLifetime how far ahead a token may expire.
	ClockSkew   time.Duration `yaml:"clock_skew"`
	MaxLifetime time.Duration `yaml:"max_lifetime"`
	// CAFile holds certificates that the provider's may be signed by, besides the system's.
	CAFile string `yaml:"ca_file"`
	// ClientID is the public client by which people log in to the console at this provider; empty: they do not. Scopes is what the
	// console asks for; openid when empty.
	ClientID string   `yaml:"client_id"`
	Scopes   []string `yaml:"scopes"`
}
