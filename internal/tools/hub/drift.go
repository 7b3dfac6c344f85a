package hub

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// ToolPins compares what servers list with what was seen before. It returns the tools that are quarantined; an
// error is that this is not known now.
type ToolPins interface {
	Check(ctx context.Context, l sandbox.ToolListing) (quarantined []string, err error)
}

const (
	// checkTime bounds one comparison.
	checkTime = 15 * time.Second
	// recheckEvery is how often quarantined tools are looked at again: another server may have got the approval.
	recheckEvery = 2 * time.Second
)

// quarantines reports whether changed tools of a server are not offered.
func (h *Hub) quarantines(s *serverconfig.Server) bool {
	if s.Drift != "" {
		return s.Drift == serverconfig.DriftQuarantine
	}
	return h.o.Quarantine
}

// checkDrift returns the tools of a list that are quarantined. Where nothing is to be quarantined, not knowing is
// no reason to go without tools.
func (c *conn) checkDrift(ctx context.Context, tools []*tool) (map[string]bool, error) {
	if c.h.o.Pins == nil {
		return nil, nil
	}
	cfg := c.terms.Load().cfg
	strict := c.h.quarantines(cfg)
	definition, err := cfg.Definition()
	if err != nil {
		return nil, err
	}
	l := sandbox.ToolListing{
		Owner: sandbox.Owner{Tenant: c.key.scope.Tenant, User: c.key.scope.User}, Server: c.key.server, Own: cfg.User != nil, Definition: definition, Quarantine: strict,
	}
	for _, t := range tools {
		l.Tools = append(l.Tools, t.Tool)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	list, err := c.h.o.Pins.Check(ctx, l)
	if err != nil && strict {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "whether tools of the MCP server %q have changed is not known now: %s", c.key.server, excerpt.Detail(err))
	}
	if err != nil {
		c.h.o.Log.Warn("MCP server: whether its tools have changed is not known", "server", c.key.server, "error", err)
		return nil, nil
	}
	away := map[string]bool{}
	for _, name := range list {
		away[name] = true
	}
	return away, nil
}

// recheck compares the tools that a connection knows again: something was approved, or the policy is another.
func (c *conn) recheck() {
	c.mu.Lock()
	tools := c.tools
	c.mu.Unlock()
	if tools == nil {
		return
	}
	away, err := c.checkDrift(c.h.ctx, tools.listed)
	if err != nil || maps.Equal(away, tools.quarantined) {
		return
	}
	c.mu.Lock()
	same := c.tools == tools
	if same {
		again := *tools
		again.quarantined = away
		c.tools = again.under(c.terms.Load().cfg)
	}
	c.mu.Unlock()
	if same {
		c.h.changes.bump(true)
	}
}

// Recheck compares the tools of all connections to a server again; with "", those of which some are quarantined.
func (h *Hub) Recheck(server string) {
	h.mu.Lock()
	var list []*conn
	for _, c := range h.conns {
		if c.key.server == server || server == "" {
			list = append(list, c)
		}
	}
	h.mu.Unlock()
	for _, c := range list {
		if tools, _, _ := c.known(); tools == nil || server == "" && len(tools.quarantined) == 0 {
			continue
		}
		c.recheck()
	}
}

// errQuarantined is why a tool that is named is not there, or nil.
func (h *Hub) errQuarantined(candidates []*serverconfig.Server, t sandbox.Thread, ref sandbox.ToolRef) error {
	for _, s := range candidates {
		h.mu.Lock()
		c := h.conns[connKey{s.Name, serverconfig.ScopeOf(s.Scope, t)}]
		h.mu.Unlock()
		if c == nil {
			continue
		}
		tools, _, _ := c.known()
		if tools == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(tools.quarantined)) {
			names := []string{serverconfig.PrintedName(s.Name, name), s.Name + "." + name}
			if ref.Server == s.Name {
				names = append(names, name)
			}
			if slices.Contains(names, ref.Name) || slices.Contains(names, ref.Printed) {
				return sandbox.Errorf(sandbox.Forbidden, "the tool %q of the MCP server %q is quarantined: it is not as it was when it was first seen, or approved. An administrator looks at it with `skerry mcp drift list %s` and lets it in with `skerry mcp drift approve %s %s`", name, s.Name, s.Name, s.Name, name)
			}
		}
	}
	return nil
}
