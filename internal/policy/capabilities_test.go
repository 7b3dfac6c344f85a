package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// seen asks every surface which tools of a server a caller has, and returns the answer when all agree.
func seen(t *testing.T, g *Guard, c sandbox.Caller) string {
	t.Helper()
	ctx := context.Background()
	set, err := g.Tools(ctx, c, thread)
	if err != nil {
		t.Fatal(err)
	}
	var listed, found, called []string
	for _, x := range set.Tools {
		listed = append(listed, x.Name)
	}
	res, err := g.Search(ctx, c, thread, sandbox.ToolQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range res.Tools {
		found = append(found, strings.TrimPrefix(x.Name, "s__"))
	}
	for _, name := range []string{"free", "one", "two"} {
		for _, ref := range []sandbox.ToolRef{{Printed: "s__" + name}, {Server: "s", Name: name}} {
			p, err := g.Plan(ctx, Call{Caller: c, Thread: thread, Ref: ref})
			if err == nil {
				_, err = g.Make(ctx, p, "", sandbox.ToolWatch{})
			} else if sandbox.KindOf(err) != sandbox.NotFound || !strings.Contains(string(p.Why()), "capabilities") || p.Tool.Name != "" {
				t.Errorf("%s: %v, %s", name, err, p.Why())
			}
			if err == nil && !slices.Contains(called, name) {
				called = append(called, name)
			}
		}
	}
	servers, err := g.Servers(ctx, c, thread)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, s := range servers {
		count += s.ToolCount
	}
	shown, err := g.Visible(ctx, c, thread, []sandbox.Tool{{Server: "skill/x", Name: "free"}, {Server: "skill/x", Name: "one", Requires: []string{"a"}}, {Server: "skill/x", Name: "two", Requires: []string{"a", "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	var visible []string
	for _, x := range shown {
		visible = append(visible, x.Name)
	}
	if !slices.Equal(listed, visible) {
		t.Errorf("listed %q, and of a skill %q are visible", listed, visible)
	}
	if !slices.Equal(listed, found) || !slices.Equal(listed, called) || count != len(listed) {
		t.Errorf("listed %q, found %q, called %q, counted %d", listed, found, called, count)
	}
	return strings.Join(listed, " ")
}

// TestCapabilities: a tool is there only for a caller, in a thread, that has all that it requires, on every surface.
func TestCapabilities(t *testing.T) {
	tools := []sandbox.Tool{tool("free", ""), tool("one", ""), tool("two", "")}
	tools[1].Requires, tools[2].Requires = []string{"a"}, []string{"a", "b"}
	for i, c := range []struct {
		caps   []string
		role   sandbox.Role
		thread []string
		want   string
	}{
		{want: "free"},
		{caps: []string{"a"}, want: "free one"},
		{caps: []string{"b"}, want: "free"},
		{caps: []string{"a", "b"}, want: "free one two"},
		{caps: []string{"*"}, want: "free one two"},
		{role: sandbox.RoleAdmin, want: "free one two"},
		{role: sandbox.RoleAdmin, caps: []string{"a"}, want: "free one"},
		{role: sandbox.RoleAdmin, thread: []string{"a"}, want: "free one"},
		{caps: []string{"a", "b"}, thread: []string{"b"}, want: "free"},
		{caps: []string{"a", "b"}, thread: []string{}, want: "free"},
		{caps: []string{"a"}, thread: []string{"a", "b"}, want: "free one"}, // narrowed by a caller who had more
		{caps: []string{"A"}, want: "free"},
	} {
		h := &fakeHub{tools: tools, servers: map[string][]string{"s": nil}}
		g := New(Options{Hub: h, Upstream: h, Narrowed: func(context.Context, sandbox.Thread) ([]string, error) { return c.thread, nil }})
		if got := seen(t, g, sandbox.Caller{Owner: thread.Owner, Role: c.role, Capabilities: c.caps}); got != c.want {
			t.Errorf("%d %+v: sees %q", i, c, got)
		}
	}
	// What rules want counts as what the configuration says.
	h := &fakeHub{tools: []sandbox.Tool{tool("free", ""), tool("one", ""), tool("two", "")}, servers: map[string][]string{"s": nil}}
	set := &Set{Global: rules(t, "default: allow\ncapabilities:\n- {server: s, tool: [one, two], needs: a}\n- {tool: two, needs: b}")}
	g := New(Options{Hub: h, Upstream: h, Decider: setDecider{set}})
	for caps, want := range map[string]string{"": "free", "a": "free one", "b": "free", "a b": "free one two"} {
		if got := seen(t, g, sandbox.Caller{Owner: thread.Owner, Capabilities: strings.Fields(caps)}); got != want {
			t.Errorf("%q sees %q", caps, got)
		}
	}
	one, _ := g.Tools(context.Background(), sandbox.Caller{Capabilities: []string{"a"}}, thread)
	two, _ := g.Tools(context.Background(), sandbox.Caller{}, thread)
	if one.Hash == two.Hash || one.Hash == "h" {
		t.Errorf("other tools, the same hash: %q %q", one.Hash, two.Hash)
	}
}

type setDecider struct{ *Set }

func (s setDecider) Requires(t sandbox.Thread, tool sandbox.Tool) []string {
	return s.Set.Requires(t.Tenant, tool)
}

// TestCapabilitiesOfServers: a server that requires what the caller has not is not there at all.
func TestCapabilitiesOfServers(t *testing.T) {
	ctx := context.Background()
	h := &fakeHub{servers: map[string][]string{"s": {"a"}, "open": nil}}
	g := New(Options{Hub: h, Upstream: h})
	for _, c := range []struct {
		caps []string
		want int
	}{{nil, 1}, {[]string{"a"}, 2}} {
		who := sandbox.Caller{Owner: thread.Owner, Capabilities: c.caps}
		servers, err := g.Servers(ctx, who, thread)
		items, err2 := g.Upstream(ctx, who, thread, sandbox.UpstreamResources, "")
		_, err3 := g.Upstream(ctx, who, thread, sandbox.UpstreamResources, "s")
		_, err4 := g.PlanUpstream(ctx, who, thread, sandbox.UpstreamRequest{Server: "s", Method: "resources/read"})
		_, err5 := g.PlanUpstream(ctx, who, thread, sandbox.UpstreamRequest{Server: "s", Method: sandbox.MethodSubscribe, Params: json.RawMessage(`{"uri":"x:"}`)})
		if err != nil || err2 != nil || len(servers) != c.want || len(items) != c.want {
			t.Errorf("%v: %v %v, %v %v", c.caps, servers, err, items, err2)
		}
		for _, err := range []error{err3, err4, err5} {
			if (err == nil) != (c.want == 2) || err != nil && sandbox.KindOf(err) != sandbox.NotFound {
				t.Errorf("%v: %v", c.caps, err)
			}
		}
	}
}

// TestHiddenByRules: a tool that the rules deny altogether is on no surface.
func TestHiddenByRules(t *testing.T) {
	h := &fakeHub{tools: []sandbox.Tool{tool("free", ""), tool("one", "")}, servers: map[string][]string{"s": nil}}
	g := New(Options{Hub: h, Upstream: h, Decider: setDecider{&Set{Global: rules(t, "default: allow\nrules:\n- {id: r, effect: deny, match: {tool: one}}")}}})
	set, err := g.Tools(context.Background(), caller, thread)
	if err != nil || len(set.Tools) != 1 {
		t.Errorf("%+v, %v", set, err)
	}
	p, err := g.Plan(context.Background(), Call{Caller: caller, Thread: thread, Ref: sandbox.ToolRef{Printed: "s__one"}})
	if sandbox.KindOf(err) != sandbox.NotFound || p.Effect() != Deny || fmt.Sprint(h.sent) != "[]" {
		t.Errorf("%v %s", err, p.Why())
	}
}

// TestUnknownCapabilities: without the state store nothing runs, and a caller is told to come again, not that it may not.
func TestUnknownCapabilities(t *testing.T) {
	away := sandbox.Errorf(sandbox.Unavailable, "the state store does not answer")
	g := New(Options{
		Hub: &fakeHub{}, Decider: setDecider{&Set{Global: rules(t, "default: allow")}},
		Narrowed: func(context.Context, sandbox.Thread) ([]string, error) { return nil, away },
	})
	p := g.PlanRun(t.Context(), Request{Kind: KindExec, Caller: caller, Thread: thread}, nil)
	if err := g.Permit(t.Context(), p, "attempt"); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("%v", err)
	}
}
