package orchestrator

import (
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// TestKilledInTheSandbox: the caller reads why an exec ended that no caller killed.
func TestKilledInTheSandbox(t *testing.T) {
	t.Parallel()
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
