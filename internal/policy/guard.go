package policy

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Hub is what a Guard protects: the tools of MCP servers. Its methods may be called at the same time.
type Hub interface {
	Servers(ctx context.Context, t sandbox.Thread) ([]sandbox.ToolServer, error)
	// ServerRequires returns the capabilities that a server's configuration wants.
	ServerRequires(t sandbox.Thread, server string) []string
	Tools(ctx context.Context, t sandbox.Thread) (sandbox.ToolSet, error)
	Search(ctx context.Context, t sandbox.Thread, q sandbox.ToolQuery) (sandbox.ToolSearch, error)
	// ResolveAmong finds a tool among the tools for which visible reports true. It asks visible
	// about a server as about a tool without a name.
	ResolveAmong(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (sandbox.Tool, error)
	// Arguments returns the bytes that the tool's server gets for an input, or says what is wrong with it.
	Arguments(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, input []byte) ([]byte, error)
	// CallChecked calls a tool with what Arguments returned.
	CallChecked(ctx context.Context, t sandbox.Thread, tool sandbox.Tool, args []byte, watch sandbox.ToolWatch) (sandbox.ToolResult, error)
	ForgetThread(t sandbox.Thread)
}

// Upstream is what MCP servers offer beside tools.
type Upstream interface {
	Upstream(ctx context.Context, t sandbox.Thread, kind sandbox.UpstreamKind, server string) ([]sandbox.UpstreamItem, error)
	Ask(ctx context.Context, t sandbox.Thread, r sandbox.UpstreamRequest) (json.RawMessage, error)
	Subscribe(ctx context.Context, t sandbox.Thread, server, uri string, changed func()) error
	UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{}
}

// Changes tell when sets of tools may have changed.
type Changes interface {
	Version() uint64
	Changed() <-chan struct{}
	// Announce moves Version on.
	Announce()
}

// Options are what a Guard works with. Hub is needed, and Upstream and Changes are by the methods that pass them on; a nil Decider allows all, a nil Approver approves nothing,
// with a nil Counter nothing is allowed that has a rate, a nil Log discards.
type Options struct {
	Hub      Hub
	Upstream Upstream
	Changes  Changes
	Decider  Decider
	Approver Approver
	Counter  Counter
	// Narrowed returns the capabilities that a thread was narrowed to; nil when it was not. A nil Narrowed: none ever is.
	Narrowed func(ctx context.Context, t sandbox.Thread) ([]string, error)
	Log      *slog.Logger
}

// Guard stands between those who call tools and the hub that makes the calls. All methods may be called at
// the same time.
type Guard struct {
	o   Options
	now func() time.Time
	key [sha256.Size]byte // of argsHash
}

// New returns a guard. It panics without a hub: that is a mistake of the program, found when it starts.
func New(o Options) *Guard {
	if o.Hub == nil {
		panic("policy: a Hub is required")
	}
	if o.Decider == nil {
		o.Decider = AllowAll{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{o: o, now: time.Now}
	_, _ = rand.Read(g.key[:]) // never fails
	return g
}

// Call is a tool call that a caller wants to make.
type Call struct {
	Caller sandbox.Caller
	Thread sandbox.Thread
	Exec   string         // whose code calls; "" for the agent itself
	Skill  *sandbox.Skill // whose script calls; nil: none
	Ref    sandbox.ToolRef
	Input  []byte // a JSON object; nothing stands for {}
	// Hide takes the exec's secrets out of a text that people or records see; nil: there are none.
	Hide func([]byte) []byte
}

// Plan is a request that was decided on and not acted upon yet. A Guard accepts only its own plans.
type Plan struct {
	// Tool is the tool of a tool call. It is known also when the arguments are wrong.
	Tool sandbox.Tool

	guard    *Guard
	request  Request
	decision Decision
	ref      sandbox.ToolRef // by which the tool was found
	upstream sandbox.UpstreamRequest
	hide     func([]byte) []byte
	unknown  error // why it cannot be decided on; the decision denies
}

// Why is the decision as the audit log keeps it; nil when there is none, because the call cannot be made.
func (p Plan) Why() json.RawMessage {
	if p.guard == nil {
		return nil
	}
	why, err := json.Marshal(p.decision.Why)
	if err != nil {
		return nil
	}
	return why
}

// Effect is what was decided, "" when nothing was.
func (p Plan) Effect() Effect { return p.decision.Effect() }

// Shown returns the arguments of a request as they may be recorded: input, or what the rules leave of it.
func (p Plan) Shown(input []byte) []byte {
	if p.guard == nil || p.decision.Redact.Args.empty() {
		return input
	}
	return p.decision.Redact.Args.apply(input)
}

// Redacts reports whether Shown leaves something out.
func (p Plan) Redacts() bool { return !p.decision.Redact.Args.empty() }

// ShownText is Shown for a text that is no JSON.
func (p Plan) ShownText(s string) string {
	if !p.Redacts() {
		return s
	}
	return p.decision.Redact.Args.text(s)
}

// Plan looks at a tool call: it finds the tool among the tools that the caller may use, checks the arguments
// and asks the rules. A denied call is a Plan, whose Make fails. An error is NotFound, also for a tool that
// the caller must not know of, whose Plan then says why. Or it is about the tool's server, or the arguments.
func (g *Guard) Plan(ctx context.Context, c Call) (Plan, error) {
	holder, err := g.holder(ctx, c.Caller, c.Thread)
	if err != nil {
		return Plan{}, err
	}
	var hidden *Plan
	tool, err := g.o.Hub.ResolveAmong(ctx, c.Thread, c.Ref, func(t sandbox.Tool) bool {
		if t.Name == "" {
			return holder.sees(t)
		}
		why := holder.whyNot(t)
		if why != nil {
			hidden = &Plan{guard: g, decision: Decision{Why: Why{Effect: Deny, Rules: []Reason{*why}}}}
		}
		return why == nil
	})
	if err != nil && hidden != nil {
		return *hidden, err
	}
	if err != nil {
		return Plan{}, err
	}
	args, err := g.o.Hub.Arguments(ctx, c.Thread, tool, c.Input)
	if err != nil {
		return Plan{Tool: tool}, err
	}
	// Two programs may read such arguments differently: then the rules would judge others than the server gets.
	if _, err := parseArguments(args); err != nil {
		return Plan{Tool: tool}, sandbox.Errorf(sandbox.Invalid, "%s: input: %w", tool.Printed, err)
	}
	r := Request{
		Kind: KindToolCall, Caller: c.Caller, Thread: c.Thread, Exec: c.Exec, Server: tool.Server, Tool: tool.Name, Printed: tool.Printed,
		Annotations: ReadAnnotations(tool.Annotations), Findings: tool.Findings, Arguments: args, Capabilities: holder.names,
	}
	if c.Skill != nil {
		r.Skill, r.AllowedTools = c.Skill.Name, c.Skill.AllowedTools
	}
	p := g.decide(ctx, r)
	p.Tool, p.ref, p.hide = tool, c.Ref, c.Hide
	return p, nil
}

// PlanUpstream looks at another request for an MCP server.
func (g *Guard) PlanUpstream(ctx context.Context, c sandbox.Caller, t sandbox.Thread, r sandbox.UpstreamRequest) (Plan, error) {
	holder, err := g.holder(ctx, c, t)
	if err != nil {
		return Plan{}, err
	}
	if !holder.uses(r.Server) {
		return Plan{}, noServer(r.Server)
	}
	if len(r.Params) > 0 { // as of a tool call
		if err := checkParams(r.Params); err != nil {
			return Plan{}, sandbox.Errorf(sandbox.Invalid, "%s %s: %w", r.Server, r.Method, err)
		}
	}
	p := g.decide(ctx, Request{Kind: KindUpstream, Caller: c, Thread: t, Server: r.Server, Tool: r.Method, Printed: r.Server + " " + r.Method, Arguments: r.Params, Capabilities: holder.names})
	p.upstream = r
	return p, nil
}

// checkParams looks at the parameters of a request, among which those of a prompt have arguments of their own.
func checkParams(params json.RawMessage) error {
	v, err := parseArguments(params)
	if err != nil {
		return err
	}
	object, _ := v.(map[string]any)
	arguments, _ := object["arguments"].(map[string]any)
	return onlyOnce(arguments)
}

// PlanRun looks at what is to run in a sandbox: r without time and capabilities. Permit says whether it may. hide takes
// the run's secrets out of a text that people see; nil: there are none.
func (g *Guard) PlanRun(ctx context.Context, r Request, hide func([]byte) []byte) Plan {
	h, err := g.holder(ctx, r.Caller, r.Thread)
	if err != nil {
		g.o.Log.Error("policy: the capabilities of a thread cannot be known", "thread", r.Thread.String(), "error", err)
		return Plan{guard: g, request: r, unknown: err, decision: Decision{Why: Why{Effect: Deny, Rules: []Reason{{Rule: "capabilities", Effect: Deny, Text: "they cannot be known now"}}}}}
	}
	r.Capabilities = h.names
	p := g.decide(ctx, r)
	p.hide = hide
	return p
}

func (g *Guard) decide(ctx context.Context, r Request) Plan {
	r.Time = g.now()
	return Plan{guard: g, request: r, decision: g.o.Decider.Decide(ctx, r)}
}

// errUnplanned is our own mistake: the call was not decided on.
var errUnplanned = errors.New("policy: a call that was not planned")

// Permit waits until the planned request may be acted upon, or says why it may not. attempt is its audit record.
// Errors are Forbidden, QuotaExceeded, Unavailable, or those of the Approver.
func (g *Guard) Permit(ctx context.Context, p Plan, attempt string) error {
	if p.guard != g {
		return errUnplanned
	}
	if p.unknown != nil {
		return sandbox.Wrap(sandbox.Unavailable, p.unknown, "what thread %s may do cannot be known now", p.request.Thread)
	}
	d := p.decision
	if e := d.Effect(); e != Allow && e != RequireApproval {
		return refusal(p)
	}
	if err := g.admit(ctx, p); err != nil || d.Effect() == Allow {
		return sandbox.NotStarted(err)
	}
	if g.o.Approver == nil {
		return sandbox.Errorf(sandbox.Forbidden, "%s needs an approval%s, and no one can give it on this server", what(p.request), because(d, RequireApproval))
	}
	shown := []byte(p.request.Arguments)
	if p.hide != nil {
		shown = p.hide(bytes.Clone(shown))
	}
	err := g.o.Approver.Approve(ctx, ApprovalRequest{Request: p.request, Decision: d, Shown: p.Shown(shown), ArgsHash: g.argsHash(p.request.Arguments, shown), Attempt: attempt})
	if err != nil {
		return err
	}
	// Rules may have changed while a person thought about it.
	if again := g.decide(ctx, p.request); again.Effect() == Deny {
		return refusal(again)
	}
	return nil
}

// argsHash tells arguments apart. Of arguments with a secret, readers of the log could test guesses by a plain hash:
// they get one by a key of this process.
func (g *Guard) argsHash(args, shown []byte) string {
	if bytes.Equal(args, shown) {
		sum := sha256.Sum256(args)
		return hex.EncodeToString(sum[:])
	}
	mac := hmac.New(sha256.New, g.key[:])
	_, _ = mac.Write(args) // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// Make makes a planned tool call.
func (g *Guard) Make(ctx context.Context, p Plan, attempt string, watch sandbox.ToolWatch) (sandbox.ToolResult, error) {
	if p.guard != g || p.request.Kind != KindToolCall {
		return sandbox.ToolResult{}, errUnplanned
	}
	if err := g.Permit(ctx, p, attempt); err != nil {
		return sandbox.ToolResult{}, err
	}
	if p.Effect() == RequireApproval {
		if err := g.still(ctx, p); err != nil {
			return sandbox.ToolResult{}, err
		}
	}
	return g.limited(ctx, p, watch)
}

// still reports as an error that the tool of a call changed while a person thought about it, or that the caller may not
// use it any more.
func (g *Guard) still(ctx context.Context, p Plan) error {
	h, err := g.holder(ctx, p.request.Caller, p.request.Thread)
	if err != nil {
		return err
	}
	now, err := g.o.Hub.ResolveAmong(ctx, p.request.Thread, p.ref, func(t sandbox.Tool) bool {
		return t.Name == "" && h.sees(t) || t.Name != "" && h.whyNot(t) == nil
	})
	if err != nil {
		return err
	}
	was := p.Tool
	if now.Server != was.Server || now.Name != was.Name || now.Description != was.Description || !bytes.Equal(now.Annotations, was.Annotations) || !bytes.Equal(now.Input, was.Input) {
		return sandbox.Errorf(sandbox.Conflict, "%s changed before its call was approved: make the call again", was.Printed)
	}
	return nil
}

// MakeUpstream sends a planned request to its MCP server.
func (g *Guard) MakeUpstream(ctx context.Context, p Plan, attempt string) (json.RawMessage, error) {
	if p.guard != g || p.request.Kind != KindUpstream {
		return nil, errUnplanned
	}
	if err := g.Permit(ctx, p, attempt); err != nil {
		return nil, err
	}
	return g.o.Upstream.Ask(ctx, p.request.Thread, p.upstream)
}

// MakeSubscription makes a planned request of MethodSubscribe: it calls changed whenever the server says that the
// resource is another one now, until ctx ends. What the rules say later does not end it.
func (g *Guard) MakeSubscription(ctx context.Context, p Plan, attempt string, changed func()) error {
	if p.guard != g || p.request.Kind != KindUpstream || p.upstream.Method != sandbox.MethodSubscribe {
		return errUnplanned
	}
	params, err := parse(p.upstream.Params)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%s: %w", p.request.Printed, err)
	}
	object, _ := params.(map[string]any)
	uri, ok := object["uri"].(string)
	if !ok {
		return sandbox.Errorf(sandbox.Invalid, "%s: uri: name the resource", p.request.Printed)
	}
	if err := g.Permit(ctx, p, attempt); err != nil {
		return err
	}
	return g.o.Upstream.Subscribe(ctx, p.request.Thread, p.upstream.Server, uri, changed)
}

// what names a request in an error.
func what(r Request) string {
	switch r.Kind {
	case KindToolCall, KindUpstream:
		return r.Printed
	case KindSkillRun:
		return fmt.Sprintf("the script of the skill %q", r.Skill)
	case KindCode:
		return "this code"
	}
	return "this command"
}

// refusal is the error of a denied request.
func refusal(p Plan) error {
	return sandbox.Errorf(sandbox.Forbidden, "%s is denied by the policy%s", what(p.request), because(p.decision, Deny))
}

// because names the first rule that had an effect.
func because(d Decision, e Effect) string {
	for _, r := range d.Why.Rules {
		switch {
		case r.Effect != e:
		case r.Error != "":
			return fmt.Sprintf(" (rule %s: %s)", r.Rule, r.Error)
		case r.Text != "":
			return fmt.Sprintf(" (rule %s: %s)", r.Rule, r.Text)
		default:
			return fmt.Sprintf(" (rule %s)", r.Rule)
		}
	}
	return " (no rule allows it)"
}

// Version changes whenever a set of tools may have changed.
func (g *Guard) Version() uint64 { return g.o.Changes.Version() }

// Changed returns a channel that is closed at the next change of Version.
func (g *Guard) Changed() <-chan struct{} { return g.o.Changes.Changed() }

// Announce tells all listeners that who may use which tools may have changed.
func (g *Guard) Announce() { g.o.Changes.Announce() }

// UpstreamChanged returns a channel that is closed when prompts or resources may have changed.
func (g *Guard) UpstreamChanged(kind sandbox.UpstreamKind) <-chan struct{} {
	return g.o.Upstream.UpstreamChanged(kind)
}

// ForgetThread ends what is kept for a thread that no longer exists.
func (g *Guard) ForgetThread(t sandbox.Thread) { g.o.Hub.ForgetThread(t) }
