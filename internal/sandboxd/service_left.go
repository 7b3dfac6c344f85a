package sandboxd

import (
	"context"

	"connectrpc.com/connect"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// leftProcesses is the part of SandboxService about processes that outlived their execs.
type leftProcesses struct{ manager *process.Manager }

func (p leftProcesses) ListProcesses(context.Context, *connect.Request[sandboxv1.ListProcessesRequest]) (*connect.Response[sandboxv1.ListProcessesResponse], error) {
	list, err := p.manager.Left()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	res := &sandboxv1.ListProcessesResponse{}
	for _, left := range list {
		shown := &sandboxv1.Process{Pid: int32(left.PID), ExecId: left.Exec, Command: left.Command, RssBytes: left.RSS} //nolint:gosec // the kernel has no more than 4 million
		if !left.Started.IsZero() {
			shown.StartedUnixMs = left.Started.UnixMilli()
		}
		res.Processes = append(res.Processes, shown)
	}
	return connect.NewResponse(res), nil
}

func (p leftProcesses) KillProcess(ctx context.Context, req *connect.Request[sandboxv1.KillProcessRequest]) (*connect.Response[sandboxv1.KillProcessResponse], error) {
	return answer(&sandboxv1.KillProcessResponse{}, p.manager.KillProcess(ctx, int(req.Msg.GetPid())))
}
