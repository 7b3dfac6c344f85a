package hub

import "github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"

// connKey names a connection.
type connKey struct {
	server string
	scope  serverconfig.Scope
}
