package orchestrator

import (
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Upstream lists the resources, resource templates or prompts of the thread's MCP servers, or of one.
func (r *Orchestrator) Upstream(ctx context.Context, c sandbox.Caller, id string, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	return r.o.Hub.Upstream(ctx, c, t, kind, server)
}

// AskUpstream sends a request to one of the thread's MCP servers and returns its result as the server
// wrote it. It is recorded as a tool call is: what a server is asked may be private, and change things.
func (r *Orchestrator) AskUpstream(ctx context.Context, c sandbox.Caller, id string, req sandbox.UpstreamRequest) (json.RawMessage, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	plan, err := r.o.Hub.PlanUpstream(ctx, c, t, req)
	if err != nil {
		return nil, err
	}
	rec := audit.About(c, t, audit.ActionUpstream, audit.PhaseAttempt)
	rec.Subject, rec.BytesIn = req.Server+" "+req.Method, int64(len(req.Params))
	decided(&rec, plan, req.Params)
	res, err := r.recorded(ctx, rec, func(attempt string) (sandbox.ToolResult, error) {
		raw, err := r.o.Hub.MakeUpstream(ctx, plan, attempt)
		return sandbox.ToolResult{Result: raw}, err
	})
	return res.Result, err
}

// WatchUpstream calls changed whenever one of the thread's MCP servers says that a resource is another one
// now, until ctx ends. changed must not block.
func (r *Orchestrator) WatchUpstream(ctx context.Context, c sandbox.Caller, id, server, uri string, changed func()) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	return r.o.Hub.Subscribe(ctx, c, t, server, uri, changed)
}

// ToolsChanged returns a channel that is closed when the tools of any thread may have changed.
func (r *Orchestrator) ToolsChanged() <-chan struct{} { return r.o.Hub.Changed() }

// UpstreamChanged returns a channel that is closed when the prompts, or the resources, of any thread may have
// changed.
func (r *Orchestrator) UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{} {
	return r.o.Hub.UpstreamChanged(kind)
}

// SkillFile returns one file of one of the thread's skills; path is relative to the skill's folder.
func (r *Orchestrator) SkillFile(ctx context.Context, c sandbox.Caller, id, skill, path string) ([]byte, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	view, err := r.skillsOf(ctx, t)
	if err != nil {
		return nil, err
	}
	return view.ReadFile(skill, path)
}
