package serverconfig

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// The values of scope: who shares one connection to a server, and so the state that it keeps.
const (
	ScopeThread = "thread"
	ScopeUser   = "user"
	ScopeShared = "shared"
	ScopeTenant = "tenant" // of a tool pack alone
)

// Scope is those who share a connection: all fields for a thread, the first two for a user, the first for a
// tenant, none for all.
type Scope struct{ Tenant, User, Thread string }

// ScopeOf returns those who share a thread's connection to a server with this scope in its configuration.
func ScopeOf(scope string, t sandbox.Thread) Scope {
	switch scope {
	case ScopeShared:
		return Scope{}
	case ScopeTenant:
		return Scope{Tenant: t.Tenant}
	case ScopeThread:
		return Scope{t.Tenant, t.User, t.ID}
	default:
		return Scope{t.Tenant, t.User, ""}
	}
}
