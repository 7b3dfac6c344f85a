package hub

import (
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// configError makes what is wrong with a server's configuration the error of a call.
func configError(server string, err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the MCP server %q is not usable: %s", server, excerpt.Detail(err))
}

// SecretsChanged looks at all connections: a connection that would be made with other values now ends after its calls, and
// is made anew when it is needed.
func (h *Hub) SecretsChanged() {
	h.spawn(func() {
		h.mu.Lock()
		conns := make([]*conn, 0, len(h.conns))
		for _, c := range h.conns {
			conns = append(conns, c)
		}
		h.mu.Unlock()
		for _, c := range conns {
			if c.outdated() {
				h.retire(func(other *conn) bool { return other == c })
			}
		}
	})
}

// outdated reports whether the connection has, or waits with an error for, other values than there are now.
func (c *conn) outdated() bool {
	if !c.cfg.NamesSecrets() && c.cfg.User == nil {
		return false
	}
	c.mu.Lock()
	l, err := c.link, c.err
	c.mu.Unlock()
	if l == nil {
		return err != nil // what was missing may be there now
	}
	home := ""
	switch {
	case c.cfg.Type == serverconfig.TransportStdio && c.cfg.Sandbox.On:
		home = transport.IsolatedHome
	case c.cfg.Type == serverconfig.TransportStdio:
		home = filepath.Join(c.h.homes.dir, dialer{c}.homeName())
	}
	t, err := c.h.expander.Expand(c.h.ctx, c.cfg, c.key.scope, home)
	return sandbox.KindOf(err) != sandbox.Unavailable && (err != nil || t.Sum() != l.made)
}
