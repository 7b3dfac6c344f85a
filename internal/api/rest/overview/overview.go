package overview

import (
	"context"
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/series"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Server is what a server tells of itself.
type Server struct {
	Replica string
	Version string
	Series  Series
	// Disk is the room of the data folder. Nil: unknown.
	Disk func() (DiskRoom, error)
	// Examine looks at the machine and at what the server depends on, or says what was found a while ago. Nil: it does not.
	Examine func(ctx context.Context) (ServerFindings, error)
}

// ServerFindings are what an examination found.
type ServerFindings struct {
	At    time.Time       `json:"at" doc:"When the server looked; it does again when somebody asks after half a minute"`
	Items []ServerFinding `json:"items"`
}

// ServerFinding is how one thing is.
type ServerFinding struct {
	Check  string `json:"check" doc:"What was looked at: kernel, cgroups, clock, data folder, disk quota, state, driver, audit log, capacity, server"`
	Name   string `json:"name,omitempty" doc:"Which of several"`
	State  string `json:"state" enum:"ok,warning,problem" doc:"warning: the server serves, but something does not work as it should; problem: mend it first"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty" doc:"What to do; absent when there is nothing to do"`
}

// Series keeps how the server went.
type Series interface {
	Points(step time.Duration) (points []series.Point, since time.Time)
	// Levels is how full the server is now; false: it is not known yet.
	Levels() (metrics.Levels, bool)
}

// DiskRoom is the room of the data folder.
type DiskRoom struct {
	TotalBytes int64 `json:"total_bytes"`
	FreeBytes  int64 `json:"free_bytes" doc:"For the server; what is reserved for root is not free"`
}

// Routes are the routes of the overview.
type Routes struct {
	Server *Server // nil: the server keeps none
	Fleet  Fleet   // nil: the servers are not known
}

type in struct {
	Window string `query:"window" enum:"hour,day" default:"hour" doc:"The last hour in steps of 10 s, or the last day in steps of 5 min"`
}

// serverOverview is the overview of a server.
type serverOverview struct {
	Replica   string        `json:"replica" doc:"The server that answers; each keeps its own"`
	Version   string        `json:"version"`
	StartedAt time.Time     `json:"started_at" doc:"Since when it counts: a restart begins anew"`
	Now       serverLevels  `json:"now"`
	Disk      *DiskRoom     `json:"disk,omitempty"`
	StepS     int           `json:"step_s" doc:"Length of a step, in seconds"`
	Times     []int64       `json:"times" doc:"Ends of the steps, in Unix seconds, the oldest first"`
	Series    []namedSeries `json:"series"`
}

type serverLevels struct {
	Sandboxes     map[string]int `json:"sandboxes" doc:"By state"`
	MaxSandboxes  int            `json:"max_sandboxes" doc:"0: no bound"`
	Execs         int            `json:"execs" doc:"That run"`
	Queue         int            `json:"queue" doc:"Requests that wait for a place"`
	Pools         []poolLevels   `json:"pools"`
	AuditLag      int            `json:"audit_lag" doc:"Audit records that are on the disk and not yet in Redis"`
	AuditFailing  bool           `json:"audit_failing" doc:"The audit log cannot be written, or its disk is full"`
	AuditUnsigned int            `json:"audit_unsigned" doc:"Audit records behind the last signature"`
}

type poolLevels struct {
	Template string `json:"template"`
	Waiting  int    `json:"waiting" doc:"Sandboxes of this server that wait for a thread"`
	Starting int    `json:"starting"`
	Target   int    `json:"target" doc:"Of all servers together"`
}

type namedSeries struct {
	Name   string  `json:"name" doc:"Of a level such as sandboxes_running, queue or pool, or of what is counted, such as execs, tool_errors or refused"`
	Kind   string  `json:"kind" enum:"level,count" doc:"level: the most in a step; count: what was counted in it"`
	Values []int64 `json:"values" doc:"One for each of times"`
}

// Add adds the routes to api.
func (r Routes) Add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/overview", "getOverview", route.TagAdmin, route.Operators,
		"How full this server is, and how it went in the last hour or day"), r.overview)
	route.Register(api, route.On(http.MethodGet, "/api/doctor", "examineServer", route.TagAdmin, route.Operators,
		"What of skerry doctor this server sees itself, and what to do about it"), r.examine)
	r.addServers(api)
}

// examineTime bounds the wait for findings.
const examineTime = 12 * time.Second

func (r Routes) examine(ctx context.Context, _ *struct{}) (*route.Body[ServerFindings], error) {
	if r.Server == nil || r.Server.Examine == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "this server does not examine itself")
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	f, err := r.Server.Examine(ctx)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(f), nil
}

func (r Routes) overview(_ context.Context, q *in) (*route.Body[serverOverview], error) {
	if r.Server == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "this server keeps no series")
	}
	step := series.Fine
	if q.Window == "day" {
		step = series.Coarse
	}
	points, since := r.Server.Series.Points(step)
	v := serverOverview{Replica: r.Server.Replica, Version: r.Server.Version, StartedAt: since.UTC(), StepS: int(step / time.Second), Times: make([]int64, len(points)), Now: r.now()}
	for i, p := range points {
		v.Times[i] = p.At.Unix()
	}
	for _, s := range shown {
		values := make([]int64, len(points))
		for i := range points {
			values[i] = s.of(&points[i])
		}
		v.Series = append(v.Series, namedSeries{s.name, s.kind, values})
	}
	if r.Server.Disk != nil {
		d, err := r.Server.Disk()
		if err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the room of the data folder cannot be read")
		}
		v.Disk = &d
	}
	return route.BodyOf(v), nil
}

func (r Routes) now() serverLevels {
	l, _ := r.Server.Series.Levels()
	return serverLevels{
		Sandboxes: byState(l), MaxSandboxes: l.Places, Execs: l.Execs, Queue: l.Waiting, Pools: poolsOf(l),
		AuditLag: l.AuditLag, AuditFailing: l.Audit.Failing > 0, AuditUnsigned: l.Audit.Unsigned,
	}
}

const (
	level = "level"
	count = "count"
)

// shown are the series, with what each is of a point.
var shown = []struct {
	name, kind string
	of         func(*series.Point) int64
}{
	{"sandboxes_starting", level, func(p *series.Point) int64 { return int64(p.Levels.Starting) }},
	{"sandboxes_running", level, func(p *series.Point) int64 { return int64(p.Levels.Running) }},
	{"sandboxes_paused", level, func(p *series.Point) int64 { return int64(p.Levels.Paused) }},
	{"execs_running", level, func(p *series.Point) int64 { return int64(p.Levels.Execs) }},
	{"queue", level, func(p *series.Point) int64 { return int64(p.Levels.Queue) }},
	{"pool", level, func(p *series.Point) int64 { return int64(p.Levels.Pool) }},
	{"audit_lag", level, func(p *series.Point) int64 { return int64(p.Levels.AuditLag) }},
	{"execs", count, func(p *series.Point) int64 { return signed(p.Counts.Execs) }},
	{"execs_failed", count, func(p *series.Point) int64 { return signed(p.Counts.ExecsFailed) }},
	{"execs_nonzero", count, func(p *series.Point) int64 { return signed(p.Counts.Nonzero) }},
	{"tool_calls", count, func(p *series.Point) int64 { return signed(p.Counts.ToolCalls) }},
	{"tool_errors", count, func(p *series.Point) int64 { return signed(p.Counts.ToolErrors) }},
	{"requests", count, func(p *series.Point) int64 { return signed(p.Counts.Requests) }},
	{"request_errors", count, func(p *series.Point) int64 { return signed(p.Counts.RequestErrors) }},
	{"starts", count, func(p *series.Point) int64 { return signed(p.Counts.Starts) }},
	{"start_failures", count, func(p *series.Point) int64 { return signed(p.Counts.StartFailures) }},
	{"refused", count, func(p *series.Point) int64 { return signed(p.Counts.Refused) }},
}

func signed(n uint64) int64 { return int64(min(n, 1<<53)) } //nolint:gosec // bounded
