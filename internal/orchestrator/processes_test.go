package orchestrator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// leaver is a sandboxd that says of each exec what it left.
type leaver struct {
	daemon
	list   []*sandboxv1.Process
	killed chan int32
}

func (l leaver) Status(context.Context, *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
	return connect.NewResponse(&sandboxv1.StatusResponse{Protocol: link.Protocol, Languages: []string{"python"}, LeavesProcesses: true}), nil
}

func (l leaver) ListProcesses(context.Context, *connect.Request[sandboxv1.ListProcessesRequest]) (*connect.Response[sandboxv1.ListProcessesResponse], error) {
	return connect.NewResponse(&sandboxv1.ListProcessesResponse{Processes: l.list}), nil
}

func (l leaver) KillProcess(_ context.Context, r *connect.Request[sandboxv1.KillProcessRequest]) (*connect.Response[sandboxv1.KillProcessResponse], error) {
	l.killed <- r.Msg.GetPid()
	return connect.NewResponse(&sandboxv1.KillProcessResponse{}), nil
}

// TestLeftProcessesAreData: a list is of the caller's thread, shows no control characters and no arguments of an exec that
// the server does not know, and only what is in it can be ended.
func TestLeftProcessesAreData(t *testing.T) {
	t.Parallel()
	d := leaver{daemon: daemon{run: exits}, killed: make(chan int32, 1), list: []*sandboxv1.Process{{Pid: 12, ExecId: "unknown", Command: "ser\x1bver --token s3cret"}, {Pid: 13, ExecId: "unknown", Command: strings.Repeat("x", 1024)}}}
	h := newHouseWith(t, d, noTools{})
	id, err := h.Runs.RunCommand(t.Context(), caller, "t1", sandbox.Command{Shell: "true", LeaveProcesses: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Execs.Wait(t.Context(), caller, "t1", id); err != nil {
		t.Fatal(err)
	}
	list, err := h.Execs.Processes(t.Context(), caller, "t1", false)
	if err != nil || len(list) != 2 || list[0].Command != "ser ver …" || len([]rune(list[1].Command)) != 257 || list[0].Started != nil {
		t.Errorf("%v, %+v", err, list)
	}
	if err := h.Execs.KillProcess(t.Context(), caller, "t1", 14); !errors.Is(err, sandbox.NotFound) {
		t.Error(err)
	}
	if err := h.Execs.KillProcess(t.Context(), caller, "t1", 12); err != nil || <-d.killed != 12 {
		t.Error(err)
	}
	stranger := sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "other"}}
	if _, err := h.Execs.Processes(t.Context(), stranger, "t1", false); !errors.Is(err, sandbox.NotFound) {
		t.Error(err)
	}
	if err := h.Execs.KillProcess(t.Context(), stranger, "t1", 12); !errors.Is(err, sandbox.NotFound) {
		t.Error(err)
	}
}

// TestLeftProcessesNeedSandboxd: a sandbox with an older sandboxd says so, and has none to list.
func TestLeftProcessesNeedSandboxd(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{})
	if _, err := h.Runs.RunCommand(t.Context(), caller, "t1", sandbox.Command{Shell: "true", LeaveProcesses: true}); !errors.Is(err, sandbox.NotSupported) {
		t.Errorf("%v", err)
	}
	if list, err := h.Execs.Processes(t.Context(), caller, "t1", false); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", err, list)
	}
}

// TestTooManyLeft: a processes list that breaks the contract is refused.
func TestTooManyLeft(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]*sandboxv1.Process{
		"pid 1":        {{Pid: 1, ExecId: "e"}},
		"long command": {{Pid: 2, ExecId: "e", Command: strings.Repeat("x", 1025)}},
		"too many":     make513(),
	} {
		h := newHouseWith(t, leaver{daemon: daemon{run: exits}, list: list}, noTools{})
		id, err := h.Runs.RunCommand(t.Context(), caller, "t1", sandbox.Command{Shell: "true"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Execs.Wait(t.Context(), caller, "t1", id); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Execs.Processes(t.Context(), caller, "t1", false); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func make513() []*sandboxv1.Process {
	list := make([]*sandboxv1.Process, 513)
	for i := range list {
		list[i] = &sandboxv1.Process{Pid: int32(i) + 2, ExecId: "e"} //nolint:gosec // small
	}
	return list
}
