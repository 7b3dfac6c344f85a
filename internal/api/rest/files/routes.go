package files

import (
	"context"
	"log/slog"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// Routes are the routes of files of threads.
type Routes struct {
	Files    service.Files
	Access   *access.Authenticator
	Archives Places
	// Stopping returns what ends when the server begins to stop.
	Stopping  func() context.Context
	Heartbeat time.Duration // of streams
	Log       *slog.Logger
}

// Add adds the routes to api.
func (r Routes) Add(api *route.API) {
	fileRoutes{api, r.Files}.add()
	transferRoutes{api, r.Files}.add()
	archiveRoutes{api, r.Files, r.Access, r.Archives, r.Log}.add()
	watchRoutes{api, r.Files, r.Access, r.Stopping, r.Heartbeat}.add()
}
