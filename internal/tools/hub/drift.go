package hub

import (
	"context"
	"log/slog"
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

// pins compares the tools of servers with what was seen before.
type pins struct {
	known      ToolPins // nil: changes are not noticed
	quarantine bool     // where the configuration of a server says nothing
	log        *slog.Logger
}

// strict reports whether changed tools of a server are not offered.
func (p *pins) strict(s *serverconfig.Server) bool {
	if s.Drift != "" {
		return s.Drift == serverconfig.DriftQuarantine
	}
	return p.quarantine
}

// check returns the tools of a list that are quarantined. Where nothing is to be quarantined, not knowing is
// no reason to go without tools.
func (p *pins) check(ctx context.Context, key connKey, cfg *serverconfig.Server, tools []*tool) (map[string]bool, error) {
	if p.known == nil {
		return nil, nil
	}
	strict := p.strict(cfg)
	definition, err := cfg.Definition()
	if err != nil {
		return nil, err
	}
	l := sandbox.ToolListing{
		Owner: sandbox.Owner{Tenant: key.scope.Tenant, User: key.scope.User}, Server: key.server, Own: cfg.User != nil, Definition: definition, Quarantine: strict,
	}
	for _, t := range tools {
		l.Tools = append(l.Tools, t.Tool)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	list, err := p.known.Check(ctx, l)
	if err != nil && strict {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "whether tools of the MCP server %q have changed is not known now: %s", key.server, excerpt.Detail(err))
	}
	if err != nil {
		p.log.Warn("MCP server: whether its tools have changed is not known", "server", key.server, "error", err)
		return nil, nil
	}
	away := map[string]bool{}
	for _, name := range list {
		away[name] = true
	}
	return away, nil
}
