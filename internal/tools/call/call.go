package call

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Hub is the guard that stands before the MCP servers, as calls see it.
type Hub interface {
	Servers(ctx context.Context, c sandbox.Caller, t sandbox.Thread) ([]sandbox.ToolServer, error)
	Tools(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (sandbox.ToolSet, error)
	Search(ctx context.Context, c sandbox.Caller, t sandbox.Thread, q sandbox.ToolQuery) (sandbox.ToolSearch, error)
	Guard
	// Changed returns a channel that is closed when a set of tools may have changed.
	Changed() <-chan struct{}
	Upstream
}

// Upstream is what MCP servers offer beside tools, as calls see it.
type Upstream interface {
	Upstream(ctx context.Context, c sandbox.Caller, t sandbox.Thread, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error)
	PlanUpstream(ctx context.Context, c sandbox.Caller, t sandbox.Thread, r sandbox.UpstreamRequest) (policy.Plan, error)
	MakeUpstream(ctx context.Context, p policy.Plan, attempt string) (json.RawMessage, error)
	MakeSubscription(ctx context.Context, p policy.Plan, attempt string, changed func()) error
	UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{}
}

// Threads are those of this server, as calls see them.
type Threads interface {
	// MayCall notes that the thread's agent calls a tool. An error refuses the call: the server is stopping.
	MayCall(t sandbox.Thread) error
	// SaveResult writes a tool's result into the thread's files. name is fit for a file name.
	SaveResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error)
	// SaveToolFile writes a file that a tool returned.
	SaveToolFile(ctx context.Context, t sandbox.Thread, path string, content []byte) error
	// Kept makes the thread's changed files durable, as the configuration wants it.
	Kept(ctx context.Context, t sandbox.Thread) error
}

// Activations keep which tools are active in threads.
type Activations interface {
	// Shown makes those of the tools active that a full search showed and that are deferred.
	Shown(ctx context.Context, c sandbox.Caller, t sandbox.Thread, found []sandbox.ToolFound) error
}

// Options are the parts that Calls work with.
type Options struct {
	Hub     Hub
	Threads Threads
	Active  Activations
	Store   *store.Store
	Audit   *audit.Log
	// Limits are those of tenants, users and keys; nil: there are none.
	Limits  *limits.Gate
	Metrics *metrics.Metrics
	// CodeSettings are the settings of a tenant.
	CodeSettings func(tenant string) sandbox.CodeSettings
	// Log is of what callers are not told; nil discards.
	Log *slog.Logger
}

// Calls are the tools of threads, for agents that call them without code.
type Calls struct {
	o     Options
	maker *Maker
}

// New returns the calls of a server.
func New(o Options) *Calls {
	return &Calls{o, NewMaker(MakerOptions{Guard: o.Hub, Records: NewRecorder(o.Audit, o.Metrics), Admit: o.Limits.ToolCall, Log: o.Log})}
}

// ToolServers lists the MCP servers of the thread.
func (x *Calls) ToolServers(ctx context.Context, c sandbox.Caller, id string) ([]sandbox.ToolServer, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	return x.o.Hub.Servers(ctx, c, t)
}

// SearchTools finds tools of the thread.
func (x *Calls) SearchTools(ctx context.Context, c sandbox.Caller, id string, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	found, err := x.o.Hub.Search(ctx, c, t, q)
	if err == nil && q.Detail == "full" {
		err = x.o.Active.Shown(ctx, c, t, found.Tools)
	}
	return found, err
}

// ToolsOf returns all tools of one server that the thread may use. An error is NotFound for a server that
// the thread does not have, or Unavailable for a server that does not answer, with its reason.
func (x *Calls) ToolsOf(ctx context.Context, c sandbox.Caller, id, server string) ([]sandbox.Tool, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	set, err := x.o.Hub.Tools(ctx, c, t)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(slices.Clone(set.Tools), func(t sandbox.Tool) bool { return t.Server != server })
	if len(list) > 0 {
		return list, nil
	}
	servers, err := x.o.Hub.Servers(ctx, c, t)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(servers, func(s sandbox.ToolServer) bool { return s.Name == server })
	switch {
	case i < 0:
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no MCP server %.80q", server)
	case servers[i].Error != "":
		return nil, sandbox.Errorf(sandbox.Unavailable, "the MCP server %q does not answer: %s", server, servers[i].Error)
	}
	return list, nil // it has none
}

// CallTool calls a tool on behalf of the agent itself, not of code in a sandbox. It is recorded in
// two phases as those calls are. A large result is shortened: see sandbox.ToolResult.
func (x *Calls) CallTool(ctx context.Context, c sandbox.Caller, id string, ref sandbox.ToolRef, input json.RawMessage) (sandbox.ToolResult, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	res, err := x.callTool(ctx, c, t, ref, input, sandbox.ToolWatch{})
	if err != nil {
		return res, err
	}
	answered := len(res.Result)
	if res, err = x.shorten(ctx, c, t, res.CallID, res); err == nil {
		x.countReturned(c, answered, len(res.Result))
	}
	return res, err
}

// WatchTool is CallTool for a caller who listens to the tool while it runs, and gets the whole result.
func (x *Calls) WatchTool(ctx context.Context, c sandbox.Caller, id string, ref sandbox.ToolRef, input json.RawMessage, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	res, err := x.callTool(ctx, c, t, ref, input, watch)
	if err == nil {
		x.countReturned(c, len(res.Result), max(len(res.Result), len(res.Raw)))
	}
	return res, err
}

// countReturned counts what a tool answered, and what the agent got of it.
func (x *Calls) countReturned(c sandbox.Caller, answered, returned int) {
	x.o.Metrics.Returned("api", int64(returned))
	limits.CountResults(x.o.Limits, c, int64(answered), int64(returned))
}

func (x *Calls) callTool(ctx context.Context, c sandbox.Caller, t sandbox.Thread, ref sandbox.ToolRef, input json.RawMessage, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	if err := x.o.Threads.MayCall(t); err != nil {
		return sandbox.ToolResult{}, err
	}
	if watch.Progress != nil {
		ctx = context.WithValue(ctx, watchedCall{}, watch.Progress)
	}
	made, err := x.maker.Begin(ctx, Origin{Caller: c, Thread: t, SaveFile: x.o.Threads.SaveToolFile}, ref, input)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	res, failed := made.Make(ctx, watch)
	if len(made.Files()) > 0 && failed == nil {
		failed = x.o.Threads.Kept(ctx, t)
	}
	o := Outcome{BytesOut: int64(len(res.Result)), Output: res.Result}
	o.Status, o.Detail = Ended(res, failed)
	if err := made.End(context.WithoutCancel(ctx), o); failed == nil && err != nil { // not recorded, so the caller does not get it
		return sandbox.ToolResult{}, err
	}
	res.CallID = made.ID
	return res, failed
}

// Decided puts into the record of an attempt why it may be made, or not, and what of its arguments may be kept.
func Decided(rec *audit.Record, plan policy.Plan, input []byte) {
	rec.Why = plan.Why()
	_, rec.ArgsHash = audit.Args(json.RawMessage(input))
	rec.Args, _ = audit.Args(json.RawMessage(plan.Shown(input)))
}

// Ended returns how a record says that a call ended.
func Ended(res sandbox.ToolResult, err error) (outcome, detail string) {
	switch {
	case err == nil && !res.IsError:
		return "ok", ""
	case err == nil:
		return "error", "the tool answered with an error"
	case sandbox.KindOf(err) == sandbox.Timeout:
		return "timeout", ""
	case sandbox.KindOf(err) == sandbox.Forbidden, sandbox.KindOf(err) == sandbox.QuotaExceeded:
		return "denied", sandbox.DetailOf(err)
	}
	return "error", string(sandbox.KindOf(err))
}

// Offer returns the tools of a thread and how its agent gets them.
func (x *Calls) Offer(ctx context.Context, c sandbox.Caller, id string) (sandbox.Offer, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.Offer{}, err
	}
	return x.offer(ctx, c, t)
}

func (x *Calls) offer(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (sandbox.Offer, error) {
	info, err := x.o.Store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) { // a thread that is not there yet has asked for no mode
		return sandbox.Offer{}, err
	}
	set, err := x.o.Hub.Tools(ctx, c, t)
	if err != nil {
		return sandbox.Offer{}, err
	}
	settings := x.o.CodeSettings(t.Tenant)
	return sandbox.Offer{Mode: settings.ModeOf(info.Mode, set.ShownTokens()), Code: !settings.Disabled, Tools: set.WithActive(info.ActiveTools)}, nil
}
