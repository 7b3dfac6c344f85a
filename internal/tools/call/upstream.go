package call

import (
	"context"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
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
	return x.request(ctx, c, id, req, func(plan policy.Plan, attempt string) (json.RawMessage, error) {
		return x.o.Hub.MakeUpstream(ctx, plan, attempt)
	})
}

// WatchUpstream calls changed whenever one of the thread's MCP servers says that a resource is another one
// now, until ctx ends. changed must not block. The subscription is recorded as a request is, and what the server
// tells is not.
func (x *Calls) WatchUpstream(ctx context.Context, c sandbox.Caller, id, server, uri string, changed func()) (err error) {
	params, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the request cannot be written")
	}
	watching, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil { // also when it is not recorded
			cancel()
		}
	}()
	req := sandbox.UpstreamRequest{Server: server, Method: sandbox.MethodSubscribe, Params: params}
	_, err = x.request(ctx, c, id, req, func(plan policy.Plan, attempt string) (json.RawMessage, error) {
		return nil, x.o.Hub.MakeSubscription(watching, plan, attempt, changed)
	})
	return err
}

// request plans a request for an MCP server, has it made, and records both. make is given the record of the attempt.
func (x *Calls) request(ctx context.Context, c sandbox.Caller, id string, req sandbox.UpstreamRequest, make func(plan policy.Plan, attempt string) (json.RawMessage, error)) (json.RawMessage, error) {
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
		answer, failed = make(plan, result.Parent)
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

// ToolsChanged returns a channel that is closed when the tools of any thread may have changed.
func (x *Calls) ToolsChanged() <-chan struct{} { return x.o.Hub.Changed() }

// UpstreamChanged returns a channel that is closed when the prompts, or the resources, of any thread may have
// changed.
func (x *Calls) UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{} {
	return x.o.Hub.UpstreamChanged(kind)
}
