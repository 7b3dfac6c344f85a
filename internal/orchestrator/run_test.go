package orchestrator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

func TestCommandsThatCannotBeRight(t *testing.T) {
	for name, cmd := range map[string]sandbox.Command{
		"neither":     {},
		"both":        {Shell: "a", Argv: []string{"a"}},
		"many words":  {Argv: make([]string, maxArgs+1)},
		"NUL":         {Argv: []string{"a\x00"}},
		"long word":   {Shell: strings.Repeat("x", maxArgBytes+1)},
		"long stdin":  {Shell: "a", Stdin: strings.Repeat("x", sandbox.MaxStdinBytes+1)},
		"cwd":         {Shell: "a", Cwd: "relative"},
		"timeout":     {Shell: "a", Timeout: -1},
		"env name":    {Shell: "a", Env: map[string]string{"1A": ""}},
		"env of ours": {Shell: "a", Env: map[string]string{"SKERRY_EXEC_TOKEN": "x"}},
		"env NUL":     {Shell: "a", Env: map[string]string{"A": "\x00"}},
	} {
		if err := checkCommand(cmd); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkCommand(sandbox.Command{Shell: "true", Env: map[string]string{"A": "1"}}); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// TestKilledInTheSandbox: the caller reads why an exec ended that no caller killed.
func TestKilledInTheSandbox(t *testing.T) {
	h := newHouse(t, daemon{run: func(out *connect.ServerStream[sandboxv1.Event]) error {
		return errors.Join(
			out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}),
			out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: &sandboxv1.Exit{
				Status: sandboxv1.Exit_STATUS_KILLED, Reason: "its supervisor was killed", Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{},
			}}}),
		)
	}})
	res, err := h.exec(t, "one", time.Minute)
	if err != nil || res.Status != sandbox.StatusKilled || res.Detail != "its supervisor was killed" {
		t.Errorf("%+v, %v", res, err)
	}
}
