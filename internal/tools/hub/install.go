package hub

import (
	"context"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

const (
	// installTime bounds an installation: it may fetch hundreds of packages.
	installTime = 5 * time.Minute
	// maxInstalls is how many are done at once.
	maxInstalls = 4
)

// InstallServer starts a server in its sandbox once, while it also reaches hosts, which packages come from. Later
// starts find in its home folder what was fetched, and need no network for it. It returns how many tools the
// server has. The home is the caller's own, or that of all for a shared server, which is an operator's business.
func (a *Servers) InstallServer(ctx context.Context, c sandbox.Caller, name string, hosts []string) (int, error) {
	s, err := enabledServer(a.configs.of(c.Owner), name)
	switch {
	case err != nil:
		return 0, err
	case !s.Sandbox.On:
		return 0, sandbox.Errorf(sandbox.Invalid, "the MCP server %q runs in no sandbox of its own: what it needs is installed where it runs", name)
	case s.Scope == serverconfig.ScopeThread:
		return 0, sandbox.Errorf(sandbox.Invalid, "the MCP server %q has a home folder for each thread, so nothing can be installed ahead; its scope would have to be user or shared", name)
	case s.Scope == serverconfig.ScopeShared && !c.Operator:
		return 0, sandbox.Errorf(sandbox.Forbidden, "the MCP server %q is shared by all: an operator installs it", name)
	case len(hosts) == 0:
		return 0, sandbox.Errorf(sandbox.Invalid, "plugins.package_hosts names no host that packages could come from")
	}
	select {
	case a.installs <- struct{}{}:
		defer func() { <-a.installs }()
	default:
		return 0, sandbox.Errorf(sandbox.CapacityExceeded, "%d installations are under way; try again when one has ended", maxInstalls)
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	defer context.AfterFunc(a.pool.background.ctx, cancel)()
	open := *s
	open.Sandbox.Egress = slices.Concat(s.Sandbox.Egress, hosts)
	key := connKey{name, serverconfig.ScopeOf(s.Scope, sandbox.Thread{Owner: c.Owner})}
	d := &dial{dialer: a.pool.dialer, key: key, cfg: &open, current: func() *serverconfig.Server { return &open }}
	l, tools, err := d.connect(ctx)
	l.close()
	if err != nil {
		return 0, err
	}
	a.pool.reconnect(func(c *conn) bool { return c.key == key })
	return len(tools.tools), nil
}
