package skerry

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Processes are those of a thread's commands.
type Processes struct{ t *Thread }

// List lists those that outlived the commands which started them, with LeaveProcesses, by their pids. It starts no sandbox.
func (p Processes) List(ctx context.Context) ([]Process, error) {
	return list[Process](ctx, p.t.c, p.t.path("processes"), nil)
}

// All lists these and the processes of commands that run, 512 at most.
func (p Processes) All(ctx context.Context) ([]Process, error) {
	return list[Process](ctx, p.t.c, p.t.path("processes"), url.Values{"all": {"true"}})
}

// Kill ends one that outlived its command, with all below it.
func (p Processes) Kill(ctx context.Context, pid int64) error {
	return p.t.call(ctx, Request{Method: http.MethodDelete, Path: p.t.path("processes", strconv.FormatInt(pid, 10))}, nil)
}

// Metrics returns what the sandbox of all of them uses now, and may use. It starts none.
func (p Processes) Metrics(ctx context.Context) (*SandboxMetrics, error) {
	return get[SandboxMetrics](ctx, p.t.c, Request{Method: http.MethodGet, Path: p.t.path("sandbox", "metrics")})
}
