package sandboxd

import (
	"context"

	"connectrpc.com/connect"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// leftProcesses is the part of SandboxService about processes of execs.
type leftProcesses struct{ manager *process.Manager }

func (p leftProcesses) ListProcesses(_ context.Context, req *connect.Request[sandboxv1.ListProcessesRequest]) (*connect.Response[sandboxv1.ListProcessesResponse], error) {
	list, err := p.manager.Processes(req.Msg.GetAll())
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	res := &sandboxv1.ListProcessesResponse{}
	for _, one := range list {
		//nolint:gosec // the kernel has no more than 4 million
		shown := &sandboxv1.Process{
			Pid: int32(one.PID), ParentPid: int32(one.Parent), ExecId: one.Exec, Running: one.Running, Command: one.Command,
			RssBytes: one.RSS, CpuMs: one.CPU.Milliseconds(), Threads: uint32(one.Threads),
		}
		if !one.Started.IsZero() {
			shown.StartedUnixMs = one.Started.UnixMilli()
		}
		res.Processes = append(res.Processes, shown)
	}
	return connect.NewResponse(res), nil
}

func (p leftProcesses) KillProcess(ctx context.Context, req *connect.Request[sandboxv1.KillProcessRequest]) (*connect.Response[sandboxv1.KillProcessResponse], error) {
	return answer(&sandboxv1.KillProcessResponse{}, p.manager.KillProcess(ctx, int(req.Msg.GetPid())))
}
