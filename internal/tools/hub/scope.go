package hub

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// The values of scope: who shares one connection to a server, and so the state that it keeps.
const (
	scopeThread = "thread"
	scopeUser   = "user"
	scopeShared = "shared"
)

// scopeKey is those who share a connection: all fields for a thread, the first two for a user, none
// for all.
type scopeKey struct{ tenant, user, thread string }

func keyOf(scope string, t sandbox.Thread) scopeKey {
	switch scope {
	case scopeShared:
		return scopeKey{}
	case scopeThread:
		return scopeKey{t.Tenant, t.User, t.ID}
	default:
		return scopeKey{t.Tenant, t.User, ""}
	}
}

// connKey names a connection.
type connKey struct {
	server string
	scope  scopeKey
}
