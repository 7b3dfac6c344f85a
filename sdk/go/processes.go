package skerry

import (
	"context"
	"net/http"
	"strconv"
)

// Processes are those that outlived the commands which started them, with LeaveProcesses.
type Processes struct{ t *Thread }

// List lists them, by their pids. It starts no sandbox.
func (p Processes) List(ctx context.Context) ([]LeftProcess, error) {
	return list[LeftProcess](ctx, p.t.c, p.t.path("processes"), nil)
}

// Kill ends one of them, with all below it.
func (p Processes) Kill(ctx context.Context, pid int64) error {
	return p.t.call(ctx, Request{Method: http.MethodDelete, Path: p.t.path("processes", strconv.FormatInt(pid, 10))}, nil)
}
