package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance/start"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// guardedHub has a tool that needs a capability and another that does not.
type guardedHub struct {
	*changingHub
}

func (h guardedHub) Tools(context.Context, sandbox.Thread) (sandbox.ToolSet, error) {
	input := json.RawMessage(`{"type":"object"}`)
	return sandbox.ToolSet{Hash: "guarded", Tools: []sandbox.Tool{
		{Server: "s", Name: "free", Printed: "s__free", Input: input},
		{Server: "s", Name: "paid", Printed: "s__paid", Input: input, Requires: []string{"pay"}},
	}}, nil
}

func (h guardedHub) Announce() { h.change() }

func (h guardedHub) ResolveAmong(ctx context.Context, t sandbox.Thread, ref sandbox.ToolRef, visible func(sandbox.Tool) bool) (sandbox.Tool, error) {
	set, _ := h.Tools(ctx, t)
	for _, tool := range set.Tools {
		if tool.Printed == ref.Printed && visible(tool) {
			return tool, nil
		}
	}
	return sandbox.Tool{}, sandbox.Errorf(sandbox.NotFound, "there is no tool %q", ref.Printed)
}

func (h guardedHub) CallChecked(context.Context, sandbox.Thread, sandbox.Tool, []byte, sandbox.ToolWatch) (sandbox.ToolResult, error) {
	return sandbox.ToolResult{Result: json.RawMessage(`1`)}, nil
}

// TestCapabilitiesOfThreads: narrowing a thread, and widening it again, reaches its running sandbox and its
// next call at once. The server remembers it, and it grants nothing that the caller does not have.
func TestCapabilitiesOfThreads(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, guardedHub{newChangingHub()})
	ctx := t.Context()
	rich := caller
	rich.Capabilities = []string{"pay", "read"}
	acquire := func(c sandbox.Caller, only ...string) error {
		_, err := h.Starts.Acquire(ctx, c, "a", sandbox.AcquireOptions{Capabilities: only})
		return err
	}
	calls := func(c sandbox.Caller, want bool) {
		t.Helper()
		_, err := h.Calls.CallTool(ctx, c, "a", sandbox.ToolRef{Printed: "s__paid"}, json.RawMessage(`{}`))
		if (err == nil) != want || err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("call: %v, want %t", err, want)
		}
	}
	if err := acquire(rich); err != nil {
		t.Fatal(err)
	}
	inst := h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "a"})
	dir := h.seen(inst, sandbox.CodeAPIDir, inst.Dir.CodeAPI())
	shows := func(paid bool) {
		t.Helper()
		within(t, 5*time.Second, "the wrappers", func() bool { return there(dir, "servers/s/free.ts") && there(dir, "servers/s/paid.ts") == paid })
	}
	shows(true)
	calls(rich, true)
	calls(caller, false)
	if err := acquire(rich, "read"); err != nil {
		t.Fatal(err)
	}
	shows(false)
	calls(rich, false)
	if err := acquire(caller, "pay"); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("gives what it does not have: %v", err)
	}
	if err := acquire(rich, "not a name"); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("%v", err)
	}
	view, err := h.Threads.Thread(ctx, rich, "a")
	if err != nil || len(view.Capabilities) != 1 {
		t.Errorf("%+v, %v", view.ThreadInfo, err)
	}
	if err := acquire(rich, sandbox.AllCapabilities); err != nil {
		t.Fatal(err)
	}
	shows(true)
	calls(rich, true)
	// Who runs code sees its own tools, not those of the user before.
	if _, err := h.Runs.RunCode(ctx, caller, "a", sandbox.Code{Language: "python", Text: "1"}); err != nil {
		t.Fatal(err)
	}
	shows(false)
	// Narrowed without a sandbox, it counts without one.
	if err := acquire(rich, "read"); err != nil {
		t.Fatal(err)
	}
	if err := h.Threads.ReleaseSandbox(ctx, rich, "a"); err != nil {
		t.Fatal(err)
	}
	calls(rich, false)
	found := false
	list, _, err := h.audit.List(ctx, audit.Filter{Tenant: caller.Tenant, Action: audit.ActionToolCall})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		found = found || r.Phase == audit.PhaseAttempt && len(r.Why) > 0 && string(r.Why) == `{"effect":"deny","rules":[{"rule":"capabilities","effect":"deny","text":"the caller has not: pay"}],"policy":""}`
	}
	if !found {
		t.Error("no record says why")
	}
}

// TestChangesOfAThreadAtOnce: requests that change different things of a thread at once lose none of each other's
// changes, and the running sandbox goes by what the store has.
func TestChangesOfAThreadAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, guardedHub{newChangingHub()})
	ctx := t.Context()
	rich := caller
	rich.Capabilities = []string{"pay", "read"}
	thread := sandbox.Thread{Owner: caller.Owner, ID: "a"}
	narrowing := start.NewNarrowing(h.live, h.o.Store)
	for i := range 60 {
		capability, skill, label := rich.Capabilities[i%2], []string{}, fmt.Sprint(i)
		mode := []string{sandbox.ModeCode, sandbox.ModeDirect}[i%2]
		if i%2 == 0 {
			skill = []string{sandbox.AllSkills}
		}
		var wg sync.WaitGroup
		for _, o := range []sandbox.AcquireOptions{
			{Capabilities: []string{capability}}, {Skills: skill}, {Labels: map[string]string{"n": label}}, {Mode: mode},
		} {
			wg.Go(func() {
				if _, err := h.Starts.Acquire(ctx, rich, thread.ID, o); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		info, err := h.o.Store.Thread(ctx, thread)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(info.Capabilities, []string{capability}) || (info.Skills == nil) != (i%2 == 0) || info.Labels["n"] != label || info.Mode != mode {
			t.Fatalf("round %d: a change was lost: %+v", i, info)
		}
		for _, only := range rich.Capabilities {
			wg.Go(func() {
				if _, err := h.Starts.Acquire(ctx, rich, thread.ID, sandbox.AcquireOptions{Capabilities: []string{only}}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		info, err = h.o.Store.Thread(ctx, thread)
		only, e := narrowing.Capabilities(ctx, thread)
		if err != nil || e != nil || !slices.Equal(info.Capabilities, only) {
			t.Fatalf("round %d: the sandbox has %v, the store %v: %v %v", i, only, info.Capabilities, err, e)
		}
	}
}
