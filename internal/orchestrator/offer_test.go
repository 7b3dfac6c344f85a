package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestModeOutlivesTheSandbox: what a thread asked for when it acquired its sandbox still holds when the
// sandbox has ended; a thread that asked for nothing follows its tenant.
func TestModeOutlivesTheSandbox(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, func(o *Options) {
		o.Tools.CodeSettings = func(tenant string) sandbox.CodeSettings {
			s := sandbox.DefaultCodeSettings()
			if tenant == "coders" {
				s.Mode = sandbox.ModeCode
			}
			return s
		}
	})
	want := func(c sandbox.Caller, thread, mode string) {
		t.Helper()
		if got, err := h.Calls.Offer(t.Context(), c, thread); err != nil || got.Mode != mode {
			t.Errorf("%s: mode %q, %v, want %q", thread, got.Mode, err, mode)
		}
		if p, err := h.Prompts.Prompt(t.Context(), c, thread); err != nil || p.Mode != mode {
			t.Errorf("%s: prompt in mode %q, %v, want %q", thread, p.Mode, err, mode)
		}
	}
	coder := sandbox.Caller{Owner: sandbox.Owner{Tenant: "coders", User: "u"}}
	want(caller, "new", sandbox.ModeDirect)
	want(coder, "new", sandbox.ModeCode)
	if _, err := h.Starts.Acquire(t.Context(), caller, "t", sandbox.AcquireOptions{Mode: sandbox.ModeCode}); err != nil {
		t.Fatal(err)
	}
	want(caller, "t", sandbox.ModeCode)
	if err := h.Threads.ReleaseSandbox(t.Context(), caller, "t"); err != nil {
		t.Fatal(err)
	}
	want(caller, "t", sandbox.ModeCode)
	if _, err := h.Starts.Acquire(t.Context(), caller, "t", sandbox.AcquireOptions{Mode: sandbox.ModeDirect, Labels: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	want(caller, "t", sandbox.ModeDirect)
}

// offering is a hub with a number of tools that are shown, and a number that only a search finds. Each has 100 tokens.
type offering struct {
	noTools
	shown, deferred int
}

func (o offering) Tools(context.Context, sandbox.Thread) (sandbox.ToolSet, error) {
	var set sandbox.ToolSet
	for i := range o.shown + o.deferred {
		t := sandbox.Tool{Server: "s", Name: fmt.Sprint("t", i), Printed: fmt.Sprint("s__t", i), Input: json.RawMessage(`{"type":"object"}`)}
		t.Description = strings.Repeat("x", 400-len(t.Printed)-len(t.Input))
		if i >= o.shown {
			t.Disclosure = sandbox.DiscloseDeferred
		}
		set.Tools = append(set.Tools, t)
	}
	return set, nil
}

// TestAutoWeighsWhatIsShown: the mode follows from the room that tools would take in the model's context.
func TestAutoWeighsWhatIsShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hub  offering
		want string
	}{
		{offering{shown: 30}, sandbox.ModeDirect},
		{offering{shown: 31}, sandbox.ModeCode},
		{offering{shown: 30, deferred: 100}, sandbox.ModeDirect},
		{offering{deferred: 31}, sandbox.ModeDirect},
		{offering{shown: 31, deferred: 1}, sandbox.ModeCode},
	} {
		h := newHouseWith(t, daemon{run: exits}, c.hub)
		if got, err := h.Calls.Offer(t.Context(), caller, "t"); err != nil || got.Mode != c.want {
			t.Errorf("%+v: %s %v, want %s", c.hub, got.Mode, err, c.want)
		}
	}
}
