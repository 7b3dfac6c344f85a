package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var (
	thread = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "main"}
	caller = sandbox.Caller{Owner: thread.Owner}
)

// fakeHub has the tools of one server "s" and remembers what reached it.
type fakeHub struct {
	Hub // what is not below is not called

	tools   []sandbox.Tool
	servers map[string][]string // with what they require
	sent    []string
	reply   sandbox.ToolResult
}

func (h *fakeHub) ResolveAmong(_ context.Context, _ sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (sandbox.Tool, error) {
	for _, t := range h.tools {
		if (t.Printed == ref.Printed || t.Server == ref.Server && t.Name == ref.Name) && visible(t) {
			return t, nil
		}
	}
	return sandbox.Tool{}, sandbox.Errorf(sandbox.NotFound, "there is no tool %q", ref.Printed)
}

func (h *fakeHub) ServerRequires(_ sandbox.Thread, server string) []string {
	return h.servers[server]
}

func (h *fakeHub) Tools(context.Context, sandbox.Thread) (sandbox.ToolSet, error) {
	return sandbox.ToolSet{Hash: "h", Tools: h.tools}, nil
}

func (h *fakeHub) Servers(context.Context, sandbox.Thread) ([]sandbox.ToolServer, error) {
	var list []sandbox.ToolServer
	for name := range h.servers {
		list = append(list, sandbox.ToolServer{Name: name, ToolCount: len(h.tools)})
	}
	return list, nil
}

func (h *fakeHub) Search(_ context.Context, _ sandbox.Thread, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	var res sandbox.ToolSearch
	for _, t := range h.tools {
		if q.Visible(t) {
			res.Tools = append(res.Tools, sandbox.ToolFound{Name: t.Printed})
		}
	}
	return res, nil
}

func (h *fakeHub) Upstream(context.Context, sandbox.Thread, sandbox.UpstreamKind, string) ([]sandbox.UpstreamItem, error) {
	var list []sandbox.UpstreamItem
	for name := range h.servers {
		list = append(list, sandbox.UpstreamItem{Server: name})
	}
	return list, nil
}

func (h *fakeHub) Subscribe(context.Context, sandbox.Thread, string, string, func()) error {
	h.sent = append(h.sent, "subscribe")
	return nil
}

func (h *fakeHub) Arguments(_ context.Context, _ sandbox.Thread, _ sandbox.Tool, input []byte) ([]byte, error) {
	if len(input) == 0 {
		input = []byte("{}")
	}
	return input, nil
}

func (h *fakeHub) CallChecked(_ context.Context, _ sandbox.Thread, tool sandbox.Tool, args []byte, _ sandbox.ToolWatch) (sandbox.ToolResult, error) {
	h.sent = append(h.sent, tool.Printed+" "+string(args))
	return h.reply, nil
}

func (*fakeHub) UpstreamChanged(sandbox.UpstreamKind) <-chan struct{} { panic("not called") }

func (h *fakeHub) Ask(_ context.Context, _ sandbox.Thread, r sandbox.UpstreamRequest) (json.RawMessage, error) {
	h.sent = append(h.sent, r.Method)
	return json.RawMessage(`{}`), nil
}

func tool(name, annotations string) sandbox.Tool {
	return sandbox.Tool{Server: "s", Name: name, Printed: "s__" + name, Annotations: json.RawMessage(annotations)}
}

// decider answers as it is.
type decider struct {
	AllowAll
	decide func(Request) Decision
}

func (d decider) Decide(_ context.Context, r Request) Decision { return d.decide(r) }

func effect(e Effect) decider {
	return decider{decide: func(Request) Decision {
		return Decision{Why: Why{Effect: e, Rules: []Reason{{Rule: "r1", Effect: e, Text: "because"}}}}
	}}
}

type approver func(context.Context, ApprovalRequest) error

func (a approver) Approve(ctx context.Context, r ApprovalRequest) error { return a(ctx, r) }

// call plans and makes a call.
func call(g *Guard, name, input string) (sandbox.ToolResult, error) {
	p, err := g.Plan(context.Background(), Call{Caller: caller, Thread: thread, Ref: sandbox.ToolRef{Printed: "s__" + name}, Input: []byte(input)})
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	return g.Make(context.Background(), p, "attempt", sandbox.ToolWatch{})
}

// TestEffects: only what is allowed, or approved, reaches the server; without anybody who approves, nothing that
// needs an approval does.
func TestEffects(t *testing.T) {
	no := sandbox.Errorf(sandbox.Forbidden, "no")
	for _, c := range []struct {
		name    string
		effect  Effect
		approve error // nil: yes
		nobody  bool
		want    string // of the error
	}{
		{name: "allowed", effect: Allow, nobody: true},
		{name: "denied", effect: Deny, want: "s__x is denied by the policy (rule r1: because)"},
		{name: "no effect", effect: "", want: "denied"},
		{name: "unknown effect", effect: "perhaps", want: "denied"},
		{name: "approved", effect: RequireApproval},
		{name: "refused", effect: RequireApproval, approve: no, want: "no"},
		{name: "nobody to ask", effect: RequireApproval, nobody: true, want: "needs an approval (rule r1: because), and no one can give it on this server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}}
			o := Options{Hub: h, Upstream: h, Decider: effect(c.effect)}
			if !c.nobody {
				o.Approver = approver(func(_ context.Context, r ApprovalRequest) error {
					if r.Attempt != "attempt" || string(r.Shown) != `{"a":1}` || r.Request.Tool != "x" || len(r.ArgsHash) != 64 {
						t.Errorf("asked %+v", r)
					}
					return c.approve
				})
			}
			_, err := call(New(o), "x", `{"a":1}`)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			if err != nil && sandbox.KindOf(err) != sandbox.Forbidden {
				t.Errorf("kind %s", sandbox.KindOf(err))
			}
			if (len(h.sent) == 1) != (err == nil) {
				t.Errorf("sent %q", h.sent)
			}
		})
	}
}

// TestDeniedWhileWaiting: an approval does not outlast the rule that now denies.
func TestDeniedWhileWaiting(t *testing.T) {
	h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}}
	now := RequireApproval
	g := New(Options{
		Hub: h, Upstream: h, Decider: decider{decide: func(Request) Decision { return Decision{Why: Why{Effect: now}} }},
		Approver: approver(func(context.Context, ApprovalRequest) error { now = Deny; return nil }),
	})
	if _, err := call(g, "x", `{}`); sandbox.KindOf(err) != sandbox.Forbidden || len(h.sent) != 0 {
		t.Errorf("%v, sent %q", err, h.sent)
	}
}

// TestUnplanned: what no guard has decided on, or another one, or another kind of request, is not made.
func TestUnplanned(t *testing.T) {
	h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}}
	g, other := New(Options{Hub: h, Upstream: h}), New(Options{Hub: h, Upstream: h})
	ctx := context.Background()
	foreign, err := other.Plan(ctx, Call{Caller: caller, Thread: thread, Ref: sandbox.ToolRef{Printed: "s__x"}})
	if err != nil {
		t.Fatal(err)
	}
	ask, err := g.PlanUpstream(ctx, caller, thread, sandbox.UpstreamRequest{Server: "s", Method: "resources/read"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Plan{{}, {Tool: h.tools[0]}, foreign, ask} {
		if _, err := g.Make(ctx, p, "", sandbox.ToolWatch{}); !errors.Is(err, errUnplanned) {
			t.Errorf("made %+v: %v", p, err)
		}
	}
	if err := g.Permit(ctx, Plan{}, ""); err == nil {
		t.Error("an empty plan is permitted")
	}
	if len(h.sent) != 0 {
		t.Errorf("sent %q", h.sent)
	}
}

// TestArgumentsInTwoCases: arguments that a server may take for one do not reach it, whatever the rules look at.
func TestArgumentsInTwoCases(t *testing.T) {
	h := &fakeHub{tools: []sandbox.Tool{tool("x", "")}, servers: map[string][]string{"s": nil}}
	g := New(Options{Hub: h, Upstream: h})
	for input, want := range map[string]sandbox.Kind{
		`{"path":"/tmp","Path":"/etc"}`: sandbox.Invalid, `{"s":1,"ſ":2}`: sandbox.Invalid, `{"path":1,"path":2}`: sandbox.Invalid,
		`{"path":"/tmp","data":{"a":1,"A":2}}`: "", `{"data":{"a":1,"a":2}}`: sandbox.Invalid,
	} {
		_, err := g.Plan(t.Context(), Call{Caller: caller, Thread: thread, Ref: sandbox.ToolRef{Printed: "s__x"}, Input: []byte(input)})
		_, err2 := g.PlanUpstream(t.Context(), caller, thread, sandbox.UpstreamRequest{Server: "s", Method: "prompts/get", Params: json.RawMessage(input)})
		if sandbox.KindOf(err) != want || sandbox.KindOf(err2) != want {
			t.Errorf("%s: %v, %v", input, err, err2)
		}
	}
	_, err := g.PlanUpstream(t.Context(), caller, thread, sandbox.UpstreamRequest{Server: "s", Method: "prompts/get", Params: json.RawMessage(`{"name":"p","arguments":{"a":"1","A":"2"}}`)})
	if sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("of a prompt: %v", err)
	}
}

// asker notes what a person is asked, and lets something happen meanwhile.
type asker struct {
	asked     []ApprovalRequest
	meanwhile func()
}

func (a *asker) Approve(_ context.Context, r ApprovalRequest) error {
	a.asked = append(a.asked, r)
	if a.meanwhile != nil {
		a.meanwhile()
	}
	return nil
}

// TestChangedMeanwhile: an approval is for the tool as it was when it was asked for, and for a caller who may still use
// it.
func TestChangedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(h *fakeHub, only *[]string)
		want      sandbox.Kind
	}{
		"nothing":         {func(*fakeHub, *[]string) {}, ""},
		"its annotations": {func(h *fakeHub, _ *[]string) { h.tools[0].Annotations = json.RawMessage(`{"readOnlyHint":false}`) }, sandbox.Conflict},
		"its description": {func(h *fakeHub, _ *[]string) { h.tools[0].Description = "another one" }, sandbox.Conflict},
		"it is gone":      {func(h *fakeHub, _ *[]string) { h.tools = nil }, sandbox.NotFound},
		"the thread":      {func(_ *fakeHub, only *[]string) { *only = []string{} }, sandbox.NotFound},
	} {
		h, who, only := &fakeHub{tools: []sandbox.Tool{tool("x", "")}}, &asker{}, []string{"a"}
		h.tools[0].Requires = []string{"a"}
		g := New(Options{
			Hub: h, Approver: who, Decider: setDecider{&Set{Global: rules(t, "default: require_approval")}},
			Narrowed: func(context.Context, sandbox.Thread) ([]string, error) { return only, nil },
		})
		who.meanwhile = func() { c.meanwhile(h, &only) }
		able := caller
		able.Capabilities = []string{"a"}
		p, err := g.Plan(t.Context(), Call{Caller: able, Thread: thread, Ref: sandbox.ToolRef{Printed: "s__x"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Make(t.Context(), p, "", sandbox.ToolWatch{})
		if sandbox.KindOf(err) != c.want || len(who.asked) != 1 || (len(h.sent) == 1) != (c.want == "") {
			t.Errorf("%s: %v, sent %v", name, err, h.sent)
		}
	}
}

// TestHiddenFromPeople: rules judge a run as it is. People see it without its secrets, and two runs that differ in a
// secret alone are not one to them; no one can test a guess of the secret by the hash.
func TestHiddenFromPeople(t *testing.T) {
	who := &asker{}
	g := New(Options{Hub: &fakeHub{}, Approver: who, Decider: setDecider{&Set{Global: rules(t, `default: deny
rules:
- {id: r, effect: require_approval, match: {kind: exec}, when: 'args.command.contains("secret")'}
`)}}})
	hide := func(text []byte) []byte {
		return regexp.MustCompile("secret[0-9]+").ReplaceAll(text, []byte("[redacted]"))
	}
	run := func(command string) ApprovalRequest {
		t.Helper()
		p := g.PlanRun(t.Context(), Request{Kind: KindExec, Caller: caller, Thread: thread, Arguments: json.RawMessage(`{"command":"` + command + `"}`)}, hide)
		if err := g.Permit(t.Context(), p, ""); err != nil {
			t.Fatal(err)
		}
		return who.asked[len(who.asked)-1]
	}
	one, again, two, plain := run("x secret1"), run("x secret1"), run("x secret2"), run("x secret")
	if string(one.Shown) != `{"command":"x [redacted]"}` || string(two.Shown) != string(one.Shown) {
		t.Errorf("shown %s, %s", one.Shown, two.Shown)
	}
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	if one.ArgsHash != again.ArgsHash || one.ArgsHash == two.ArgsHash || one.ArgsHash == sum(`{"command":"x secret1"}`) {
		t.Errorf("hashes %s, %s, %s", one.ArgsHash, again.ArgsHash, two.ArgsHash)
	}
	if plain.ArgsHash != sum(`{"command":"x secret"}`) {
		t.Errorf("without a secret: %s", plain.ArgsHash)
	}
}

// TestSubscription: watching a resource is put to the rules as reading it is.
func TestSubscription(t *testing.T) {
	h := &fakeHub{servers: map[string][]string{"s": nil}}
	decider := setDecider{&Set{Global: rules(t, `default: allow
rules:
- {id: private, effect: deny, match: {kind: mcp_request}, when: 'args.uri.startsWith("file:///private")'}
- {id: asked, effect: require_approval, match: {kind: mcp_request, tool: resources/subscribe}, when: 'args.uri == "file:///asked"'}
`)}}
	g := New(Options{Hub: h, Upstream: h, Decider: decider})
	plan := func(params string) (Plan, error) {
		return g.PlanUpstream(t.Context(), caller, thread, sandbox.UpstreamRequest{Server: "s", Method: sandbox.MethodSubscribe, Params: json.RawMessage(params)})
	}
	for params, want := range map[string]sandbox.Kind{
		`{"uri":"file:///public"}`: "", `{"uri":"file:///private/x"}`: sandbox.Forbidden, `{"uri":"file:///asked"}`: sandbox.Forbidden, `{}`: sandbox.Invalid,
	} {
		h.sent = nil
		p, err := plan(params)
		if err != nil {
			t.Fatal(err)
		}
		err = g.MakeSubscription(t.Context(), p, "", func() {})
		if sandbox.KindOf(err) != want && params != "{}" || (err == nil) != (len(h.sent) == 1) || params == "{}" && err == nil {
			t.Errorf("%s: %v, sent %v", params, err, h.sent)
		}
	}
	h.sent = nil
	read, err := g.PlanUpstream(t.Context(), caller, thread, sandbox.UpstreamRequest{Server: "s", Method: "resources/read", Params: json.RawMessage(`{"uri":"x:"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Plan{{}, read} {
		if err := g.MakeSubscription(t.Context(), p, "", func() {}); !errors.Is(err, errUnplanned) || len(h.sent) != 0 {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// TestAnnotations: what a tool does not say has the specification's defaults, which assume the worst.
func TestAnnotations(t *testing.T) {
	for raw, want := range map[string]Annotations{
		``:                        {Destructive: true, OpenWorld: true},
		`null`:                    {Destructive: true, OpenWorld: true},
		`{"title":"x"}`:           {Destructive: true, OpenWorld: true, Said: true},
		`{"readOnlyHint":true}`:   {ReadOnly: true, OpenWorld: true, Said: true, Explicit: [4]bool{true}},
		`{"readOnlyHint":"true"}`: {Destructive: true, OpenWorld: true, Said: true},
		`{"readOnlyHint":true,"destructiveHint":true}`:    {ReadOnly: true, OpenWorld: true, Said: true, Explicit: [4]bool{true, true}},
		`{"destructiveHint":false,"openWorldHint":false}`: {Said: true, Explicit: [4]bool{1: true, 3: true}},
		`{"ReadOnlyHint":true}`:                           {Destructive: true, OpenWorld: true, Said: true},
		`{"idempotentHint":true,"openWorldHint":[]}`:      {Destructive: true, Idempotent: true, OpenWorld: true, Said: true, Explicit: [4]bool{2: true}},
	} {
		if got := ReadAnnotations(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}
