package execs

import (
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// Routes are the routes of what runs in sandboxes.
type Routes struct {
	Runs      service.Runs
	Execs     service.Execs
	Terminals service.Terminals
	Processes service.Processes
	Contexts  service.Contexts
	Access    *access.Authenticator
	Heartbeat time.Duration // of streams and terminals
	Idle      time.Duration // that a client of a terminal may take nothing
}

// Add adds the routes to api.
func (r Routes) Add(api *route.API) {
	execRoutes{api, r.Runs, r.Execs, r.Access, r.Heartbeat}.add()
	processRoutes{api, r.Processes}.add()
	contextRoutes{api, r.Contexts}.add()
}

// AddTerminal adds the route of terminals to api and to routes, where the checks of a request come before
// it.
func (r Routes) AddTerminal(api *route.API, routes gin.IRoutes) {
	terminalRoutes{api, r.Terminals, r.Execs, r.Access, r.Heartbeat, r.Idle, &joined{}}.add(routes)
}
