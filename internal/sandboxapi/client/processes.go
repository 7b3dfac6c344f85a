package client

import (
	"context"
	"time"

	"connectrpc.com/connect"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

// Bounds of a list of processes.
const (
	maxProcesses = 512
	maxCommand   = 1 << 10 // bytes of a command line
)

// ListProcesses lists the processes that execs left, with all those of running ones as well. Their command lines are as sandboxd sent them. NotSupported: sandboxd is too old.
func (c *Client) ListProcesses(ctx context.Context, all bool) ([]*sandboxv1.Process, error) {
	res, err := call(ctx, c, &sandboxv1.ListProcessesRequest{All: all},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.ListProcessesRequest]) (*connect.Response[sandboxv1.ListProcessesResponse], error) {
			return api.ListProcesses(ctx, r)
		})
	if err != nil {
		return nil, err
	}
	if len(res.GetProcesses()) > maxProcesses {
		return nil, contractError("a list of %d processes", len(res.GetProcesses()))
	}
	for _, p := range res.GetProcesses() {
		if p.GetPid() <= 1 || len(p.GetExecId()) > maxWord || len(p.GetCommand()) > maxCommand || p.GetRssBytes() < 0 || p.GetCpuMs() < 0 || p.GetParentPid() < 0 {
			return nil, contractError("process %d of an exec with an id of %d bytes and a command line of %d", p.GetPid(), len(p.GetExecId()), len(p.GetCommand()))
		}
		if at := time.UnixMilli(p.GetStartedUnixMs()); at.Before(time.Unix(0, 0)) || at.After(time.Now().Add(24*time.Hour)) {
			p.StartedUnixMs = 0
		}
	}
	return res.GetProcesses(), nil
}

// KillProcess ends a process that an exec left, with all below it. NotFound: no exec left it.
func (c *Client) KillProcess(ctx context.Context, pid int32) error {
	_, err := call(ctx, c, &sandboxv1.KillProcessRequest{Pid: pid},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.KillProcessRequest]) (*connect.Response[sandboxv1.KillProcessResponse], error) {
			return api.KillProcess(ctx, r)
		})
	return err
}
