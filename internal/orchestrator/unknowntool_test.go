package orchestrator

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestUnknownToolIsRecorded: a call of a tool that is not there is in the log with both of its records, also when an
// agent makes it. Calls of code are tested in tools/bridge.
func TestUnknownToolIsRecorded(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{run: exits})
	ctx := t.Context()
	ways := map[string]func(ref sandbox.ToolRef) error{
		"none__http": func(ref sandbox.ToolRef) error {
			_, err := h.Calls.CallTool(ctx, caller, "a", ref, json.RawMessage(`{"a":1}`))
			return err
		},
		"none__mcp": func(ref sandbox.ToolRef) error {
			_, err := h.Calls.WatchTool(ctx, caller, "a", ref, json.RawMessage(`{"a":1}`), sandbox.ToolWatch{})
			return err
		},
	}
	for name, way := range ways {
		if err := way(sandbox.ToolRef{Printed: name}); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s: %v, want NotFound", name, err)
		}
	}
	list, _, err := h.audit.List(ctx, audit.Filter{Tenant: caller.Tenant, Action: audit.ActionToolCall})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, r := range list { // the newest first
		seen[r.Subject] = r.Phase + " " + r.Outcome + " " + r.Detail + ", " + seen[r.Subject]
	}
	for name := range ways {
		if got := seen[name]; got != "attempt  , result error not_found, " {
			t.Errorf("%s: %q", name, got)
		}
	}
}
