package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

func denoPermissions(d *sandbox.DenoPermissions) *sandboxv1.Permissions {
	if d == nil {
		return nil
	}
	return &sandboxv1.Permissions{Read: d.Read, Write: d.Write, Net: d.Net, Env: d.Env, Run: d.Run}
}

// interpreterOf names what a language needs in the image.
var interpreterOf = map[string]string{"python": "python3", "typescript": "bun, deno or node", "javascript": "bun, deno or node", "bash": "bash"}

func anyOf(languages []string) string {
	if len(languages) == 0 {
		return "programs by argv only"
	}
	return strings.Join(languages, ", ")
}

// prepareCode makes sure that the template can run the language, turning TypeScript into JavaScript
// where its runtime cannot read types.
func (r *Orchestrator) prepareCode(inst *instance.Instance, code *sandboxv1.Code) error {
	known := inst.Runtimes()
	switch lang := code.GetLanguage(); {
	case slices.Contains(known, lang):
		return nil
	case lang == "typescript" && slices.Contains(known, "javascript"):
		inst.Tools.Mu.Lock()
		set := inst.Tools.Set
		inst.Tools.Mu.Unlock()
		text, err := stripTypes(code.GetText(), set)
		if err != nil {
			return err
		}
		code.Language, code.Text = "javascript", text
		return nil
	default:
		return sandbox.Errorf(sandbox.NotSupported, "the image of template %q has no %s, which %s needs; it can run: %s", inst.Template.Name, interpreterOf[lang], lang, anyOf(known))
	}
}

// ToolServers lists the MCP servers of the thread.
func (r *Orchestrator) ToolServers(ctx context.Context, c sandbox.Caller, id string) ([]sandbox.ToolServer, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	return r.o.Hub.Servers(ctx, c, t)
}

// SearchTools finds tools of the thread.
func (r *Orchestrator) SearchTools(ctx context.Context, c sandbox.Caller, id string, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.ToolSearch{}, err
	}
	return r.o.Hub.Search(ctx, c, t, q)
}

// ToolsOf returns all tools of one server that the thread may use. An error is NotFound for a server that
// the thread does not have, or Unavailable for one that does not answer, with its reason.
func (r *Orchestrator) ToolsOf(ctx context.Context, c sandbox.Caller, id, server string) ([]sandbox.Tool, error) {
	t, err := c.Thread(id)
	if err != nil {
		return nil, err
	}
	set, err := r.o.Hub.Tools(ctx, c, t)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(slices.Clone(set.Tools), func(t sandbox.Tool) bool { return t.Server != server })
	if len(list) > 0 {
		return list, nil
	}
	servers, err := r.o.Hub.Servers(ctx, c, t)
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
func (r *Orchestrator) CallTool(ctx context.Context, c sandbox.Caller, id string, ref sandbox.ToolRef, input json.RawMessage) (sandbox.ToolResult, error) {
	res, err := r.WatchTool(ctx, c, id, ref, input, sandbox.ToolWatch{})
	if err != nil {
		return res, err
	}
	t, err := c.Thread(id)
	if err != nil {
		return res, err
	}
	return r.shorten(ctx, c, t, res.CallID, res)
}

// WatchTool is CallTool for a caller who listens to the tool while it runs.
func (r *Orchestrator) WatchTool(ctx context.Context, c sandbox.Caller, id string, ref sandbox.ToolRef, input json.RawMessage, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	if err := r.refuse(t); err != nil {
		return sandbox.ToolResult{}, err
	}
	r.active(t, ActivityToolCall)
	plan, wrong := r.o.Hub.Plan(ctx, policy.Call{Caller: c, Thread: t, Ref: ref, Input: input})
	if plan.Tool.Printed == "" && plan.Effect() == "" { // there is none
		return sandbox.ToolResult{}, wrong
	}
	rec := audit.About(c, t, audit.ActionToolCall, audit.PhaseAttempt)
	rec.Subject, rec.BytesIn = cmp.Or(plan.Tool.Printed, ref.Printed, ref.Server+"."+ref.Name), int64(len(input))
	decided(&rec, plan, input)
	if watch.Progress != nil {
		ctx = context.WithValue(ctx, watchedCall{}, watch.Progress)
	}
	return r.recorded(ctx, rec, func(attempt string) (sandbox.ToolResult, error) {
		if wrong != nil {
			return sandbox.ToolResult{}, wrong
		}
		if err := r.o.Limits.ToolCall(ctx, c); err != nil {
			return sandbox.ToolResult{}, err
		}
		return r.o.Hub.Make(ctx, plan, attempt, watch)
	})
}

// recorded makes a call to an MCP server between the record of the attempt and that of its outcome.
func (r *Orchestrator) recorded(ctx context.Context, rec audit.Record, call func(attempt string) (sandbox.ToolResult, error)) (sandbox.ToolResult, error) {
	var res sandbox.ToolResult
	var failed error
	err := r.o.Audit.Do(ctx, rec, func(result *audit.Record) error {
		began := time.Now()
		res, failed = call(result.Parent)
		result.Args, result.Why = nil, nil
		result.BytesOut, result.OutHash = int64(len(res.Result)), audit.Sum(res.Result)
		result.Outcome, result.Detail = toolOutcome(res, failed)
		if result.Action == audit.ActionToolCall {
			r.o.Metrics.ToolCall("api", result.Outcome, time.Since(began))
		}
		res.CallID = result.Parent
		return failed
	})
	if failed == nil && err != nil { // not recorded, so the caller does not get it
		return sandbox.ToolResult{}, err
	}
	return res, err
}

// decided puts into the record of an attempt why it may be made, or not, and what of its arguments may be kept.
func decided(rec *audit.Record, plan policy.Plan, input []byte) {
	rec.Why = plan.Why()
	_, rec.ArgsHash = audit.Args(json.RawMessage(input))
	rec.Args, _ = audit.Args(json.RawMessage(plan.Shown(input)))
}

// detailOf is what the caller is told of an error.
func detailOf(err error) string {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known.Detail
	}
	return ""
}

func toolOutcome(res sandbox.ToolResult, err error) (outcome, detail string) {
	switch {
	case err == nil && !res.IsError:
		return "ok", ""
	case err == nil:
		return "error", "the tool answered with an error"
	case sandbox.KindOf(err) == sandbox.Timeout:
		return "timeout", ""
	case sandbox.KindOf(err) == sandbox.Forbidden, sandbox.KindOf(err) == sandbox.QuotaExceeded:
		return "denied", detailOf(err)
	}
	return "error", string(sandbox.KindOf(err))
}

// Prompt makes the prompt sections of a thread.
func (r *Orchestrator) Prompt(ctx context.Context, c sandbox.Caller, id string) (prompt.Prompt, error) {
	t, err := c.Thread(id)
	if err != nil {
		return prompt.Prompt{}, err
	}
	offer, err := r.offer(ctx, c, t)
	if err != nil {
		return prompt.Prompt{}, err
	}
	servers, err := r.o.Hub.Servers(ctx, c, t)
	if err != nil {
		return prompt.Prompt{}, err
	}
	view, err := r.skillsOf(ctx, t)
	if err != nil {
		return prompt.Prompt{}, err
	}
	commands, err := r.o.Commands(t.Owner)
	if err != nil {
		return prompt.Prompt{}, err
	}
	p, err := prompt.Build(prompt.Input{
		Mode: offer.Mode, Settings: r.o.CodeSettings(t.Tenant), Tools: offer.Tools, Servers: servers, Skills: view.List(), Commands: commands,
	})
	if err != nil {
		return p, sandbox.Wrap(sandbox.Internal, err, "the prompt cannot be made")
	}
	return p, nil
}

// Offer returns the tools of a thread and how its agent gets them.
func (r *Orchestrator) Offer(ctx context.Context, c sandbox.Caller, id string) (sandbox.Offer, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.Offer{}, err
	}
	return r.offer(ctx, c, t)
}

func (r *Orchestrator) offer(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (sandbox.Offer, error) {
	info, err := r.o.Store.Thread(ctx, t)
	if err != nil && !errors.Is(err, sandbox.NotFound) { // a thread that is not there yet has asked for no mode
		return sandbox.Offer{}, err
	}
	set, err := r.o.Hub.Tools(ctx, c, t)
	if err != nil {
		return sandbox.Offer{}, err
	}
	settings := r.o.CodeSettings(t.Tenant)
	return sandbox.Offer{Mode: settings.ModeOf(info.Mode, set.Shown()), Code: !settings.Disabled, Tools: set}, nil
}
