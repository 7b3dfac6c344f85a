package execs

import (
	"context"
	"net/http"
	"strconv"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// processRoutes are the routes of processes.
type processRoutes struct {
	api       *route.API
	processes service.Processes
}

func (s processRoutes) add() {
	const list = "/api/threads/{thread}/processes"
	route.Register(s.api, route.On(http.MethodGet, list, "listProcesses", route.TagRun, route.Agents.At(route.Owner), "Processes that commands with leave_processes left, by their pids; with all=true those of running execs as well, 512 at most"),
		func(ctx context.Context, in *struct {
			route.ThreadListIn
			All bool `query:"all" doc:"Also processes of execs that run"`
		},
		) (*route.Body[route.Page[sandbox.Process]], error) {
			items, err := s.processes.Processes(ctx, exchange.CallerOf(ctx), in.Thread, in.All)
			if err != nil {
				return nil, err
			}
			return route.PageIn(in.ListIn, items, processKey)
		})
	route.Register(s.api, route.On(http.MethodDelete, list+"/{pid}", "killProcess", route.TagRun, route.Agents.At(route.Owner), "End a process that a command left, with all below it"),
		func(ctx context.Context, in *struct {
			route.ThreadIn
			PID string `path:"pid" pattern:"^[0-9]{1,7}$"`
		},
		) (*struct{}, error) {
			pid, err := strconv.Atoi(in.PID)
			if err != nil {
				return nil, sandbox.InvalidField("pid", "has to be the pid of a process")
			}
			return nil, s.processes.KillProcess(ctx, exchange.CallerOf(ctx), in.Thread, pid)
		})
}

func processKey(p sandbox.Process) string { return strconv.Itoa(p.PID) }
