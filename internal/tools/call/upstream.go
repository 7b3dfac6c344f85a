package call

import (
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Upstream lists the resources, resource templates or prompts of the thread's MCP servers, or of one.
func (x *Calls) Upstream(ctx context.Context, c sandbox.Caller, id string, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	return x.o.Hub.Upstream(ctx, c, t, kind, server)
}

// AskUpstream sends a request to one of the thread's MCP servers and returns its result as the server
// wrote it. It is recorded as a tool call is: what a server is asked may be private, and change things.
func (x *Calls) AskUpstream(ctx context.Context, c sandbox.Caller, id string, req sandbox.UpstreamRequest) (json.RawMessage, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	plan, err := x.o.Hub.PlanUpstream(ctx, c, t, req)
	if err != nil {
		return nil, err
	}
	rec := audit.About(c, t, audit.ActionUpstream, audit.PhaseAttempt)
	rec.Subject, rec.BytesIn = req.Server+" "+req.Method, int64(len(req.Params))
	Decided(&rec, plan, req.Params)
	var answer json.RawMessage
	var failed error
	err = x.o.Audit.Do(ctx, rec, func(result *audit.Record) error {
		answer, failed = x.o.Hub.MakeUpstream(ctx, plan, result.Parent)
		result.Args, result.Why = nil, nil
		result.BytesOut, result.OutHash = int64(len(answer)), audit.Sum(answer)
		result.Outcome, result.Detail = Ended(sandbox.ToolResult{}, failed)
		return failed
	})
	if failed == nil && err != nil { // not recorded, so the caller does not get it
		return nil, err
	}
	return answer, err
}

// WatchUpstream calls changed whenever one of the thread's MCP servers says that a resource is another one
// now, until ctx ends. changed must not block.
func (x *Calls) WatchUpstream(ctx context.Context, c sandbox.Caller, id, server, uri string, changed func()) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	return x.o.Hub.Subscribe(ctx, c, t, server, uri, changed)
}

// ToolsChanged returns a channel that is closed when the tools of any thread may have changed.
func (x *Calls) ToolsChanged() <-chan struct{} { return x.o.Hub.Changed() }

// UpstreamChanged returns a channel that is closed when the prompts, or the resources, of any thread may have
// changed.
func (x *Calls) UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{} {
	return x.o.Hub.UpstreamChanged(kind)
}
