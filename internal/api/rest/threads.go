package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// threadRoutes are the routes of threads and their sandboxes.
type threadRoutes struct {
	threads   service.Threads
	sandboxes service.Sandboxes
}

// sandboxBody is the body of PUT /api/threads/{t}/sandbox.
type sandboxBody struct {
	Template     string            `json:"template,omitempty" maxLength:"128" doc:"Name of a template; the default one when absent"`
	Labels       map[string]string `json:"labels,omitempty" doc:"Replace the thread's labels"`
	Env          map[string]string `json:"env,omitempty" doc:"For every exec of this sandbox; 256 KiB at most"`
	Skills       []string          `json:"skills,omitempty" maxItems:"1000" doc:"The thread has only these skills from now on; [\"*\"]: all that are on; as before when absent, which is all at first"`
	Capabilities []string          `json:"capabilities,omitempty" maxItems:"256" doc:"The only ones of the caller's that count in the thread from now on: it sees tools that need no others. The caller must have them; [\"*\"]: all that a caller has; as before when absent"`
	Mode         string            `json:"mode,omitempty" enum:"direct,code,auto" doc:"How tools are offered to the agent"`
	WaitSeconds  *float64          `json:"wait_s,omitempty" minimum:"0" maximum:"300" default:"30" doc:"How long to wait for a starting sandbox"`
}

func (b *sandboxBody) options() (sandbox.AcquireOptions, error) {
	o := sandbox.AcquireOptions{Wait: route.Seconds(30)}
	if b == nil {
		return o, nil
	}
	if !slices.Contains(b.Capabilities, sandbox.AllCapabilities) {
		if _, err := sandbox.CheckCapabilities(b.Capabilities); err != nil {
			return o, err
		}
	}
	if err := sandbox.CheckLabels(b.Labels); err != nil {
		return o, err
	}
	if b.WaitSeconds != nil {
		o.Wait = max(route.Seconds(*b.WaitSeconds), time.Millisecond) // 0 in the options has no end
	}
	o.Template, o.Labels, o.Env, o.Skills, o.Mode, o.Capabilities = b.Template, b.Labels, b.Env, b.Skills, b.Mode, b.Capabilities
	return o, nil
}

// sandboxAnswer is a thread with its sandbox.
type sandboxAnswer struct {
	ThreadID string       `json:"thread_id"`
	Sandbox  sandbox.Info `json:"sandbox"`
}

// sandboxOnly is the answer of pause, resume and hibernate.
type sandboxOnly struct {
	Sandbox sandbox.Info `json:"sandbox"`
}

type listThreadsIn struct {
	User         string    `query:"user" maxLength:"128" doc:"Administrators only, unless it is the caller; * for all users of the tenant"`
	Label        []string  `query:"label,explode" maxItems:"16" doc:"key=value; all have to fit"`
	State        string    `query:"state" enum:"starting,running,paused,stopping,lost,hibernated" doc:"State of the sandbox"`
	Template     string    `query:"template" maxLength:"128" doc:"Template of the sandbox"`
	Text         string    `query:"q" maxLength:"200" doc:"Text that is in the id, the user or a value of the labels, whatever its case"`
	ActiveAfter  time.Time `query:"active_after" doc:"RFC 3339; the last activity is not before it"`
	ActiveBefore time.Time `query:"active_before" doc:"RFC 3339; the last activity is not after it"`
	MinDiskMiB   int64     `query:"min_disk_mib" minimum:"0" maximum:"1073741824" doc:"The files took at least so much when they were last measured"`
	Sort         string    `query:"sort" enum:"thread_id,last_active_at,disk_bytes" doc:"By name, the latest activity first, or the largest files first, without threads that were never measured; by name when absent, of all users by activity"`
	Limit        int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor       string    `query:"cursor" maxLength:"512"`
}

// threadPage is a page of threads.
type threadPage struct {
	Items      []sandbox.ThreadView `json:"items"`
	NextCursor string               `json:"next_cursor,omitempty" doc:"Send it as cursor to get the rest; not there at the end. A page may be shorter than limit, even empty, and have one"`
	Total      int64                `json:"total,omitempty" doc:"How many threads there are, whatever the filter; in the first page only"`
}

func (in *listThreadsIn) filter() (sandbox.ThreadFilter, error) {
	f := sandbox.ThreadFilter{
		User: in.User, State: sandbox.State(in.State), Template: in.Template, Text: in.Text, ActiveAfter: in.ActiveAfter, ActiveBefore: in.ActiveBefore,
		Latest: in.Sort == "last_active_at" || in.Sort == "" && in.User == sandbox.AllUsers, Largest: in.Sort == "disk_bytes", MinDisk: in.MinDiskMiB << 20,
		Limit: in.Limit, Cursor: in.Cursor,
	}
	for _, l := range in.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return f, sandbox.Errorf(sandbox.Invalid, "label: write key=value")
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[k] = v
	}
	return f, nil
}

func (s threadRoutes) add(api *route.API) {
	op := route.On(http.MethodPut, "/api/threads/{thread}/sandbox", "acquireSandbox", route.TagThreads, route.Agents.At(route.Holder), "Give the thread a sandbox: 200 when it is ready, 202 while it starts")
	route.Register(api, route.Also[sandboxAnswer](api, op, "202", "It starts"), s.acquire)
	route.Register(api, route.On(http.MethodGet, "/api/threads/{thread}", "getThread", route.TagThreads, route.Agents.At(route.Owner), "One thread"), s.thread)
	route.Register(api, route.On(http.MethodGet, "/api/threads", "listThreads", route.TagThreads, route.Agents, "The caller's threads, or for administrators those of another user or of the tenant"), s.listThreads)
	route.Register(api, route.On(http.MethodDelete, "/api/threads/{thread}/sandbox", "releaseSandbox", route.TagThreads, route.Agents.At(route.Owner), "End the sandbox; the workspace stays"),
		func(ctx context.Context, in *route.ThreadIn) (*struct{}, error) {
			return nil, s.sandboxes.ReleaseSandbox(ctx, exchange.CallerOf(ctx), in.Thread)
		})
	route.Register(api, route.On(http.MethodDelete, "/api/threads/{thread}", "deleteThread", route.TagThreads, route.Agents.At(route.Holder), "End the sandbox and delete the workspace"),
		func(ctx context.Context, in *route.ThreadIn) (*struct{}, error) {
			return nil, s.threads.DeleteThread(ctx, exchange.CallerOf(ctx), in.Thread)
		})
	s.stateRoute(api, "pause", "Stop the sandbox's processes, which keep their memory, until the next exec; 409 while execs run", s.sandboxes.Pause)
	s.stateRoute(api, "resume", "Go on after a pause or hibernation", s.sandboxes.Resume)
	route.Register(api, route.On(http.MethodPost, "/api/threads/{thread}/sandbox/hibernate", "hibernateSandbox", route.TagThreads, route.Agents.At(route.Holder),
		"End the container and keep the files and what the sandbox was: the next call that needs one starts it again; 409 while execs run"), s.hibernate)
	route.Register(api, route.On(http.MethodGet, "/api/threads/{thread}/sandbox/metrics", "sandboxMetrics", route.TagThreads, route.Agents.At(route.Owner),
		"What the sandbox uses now; it starts none. 409 when it is hibernated, 501 where the driver does not measure it"), s.sandboxMetrics)
}

func (s threadRoutes) stateRoute(api *route.API, verb, summary string, change func(context.Context, sandbox.Caller, string) (sandbox.Info, error)) {
	route.Register(api, route.On(http.MethodPost, "/api/threads/{thread}/sandbox/"+verb, verb+"Sandbox", route.TagThreads, route.Agents.At(route.Holder), summary),
		func(ctx context.Context, in *route.ThreadIn) (*route.Body[sandboxOnly], error) {
			info, err := change(ctx, exchange.CallerOf(ctx), in.Thread)
			if err != nil {
				return nil, err
			}
			return route.BodyOf(sandboxOnly{Sandbox: info}), nil
		})
}

func (s threadRoutes) hibernate(ctx context.Context, in *struct {
	route.ThreadIn
	Body *struct {
		Force bool `json:"force,omitempty" doc:"End execs that run"`
	}
},
) (*route.Body[sandboxOnly], error) {
	info, err := s.sandboxes.Hibernate(ctx, exchange.CallerOf(ctx), in.Thread, in.Body != nil && in.Body.Force)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(sandboxOnly{Sandbox: info}), nil
}

func (s threadRoutes) acquire(ctx context.Context, in *struct {
	route.ThreadIn
	Body *sandboxBody
},
) (*route.StatusBody[sandboxAnswer], error) {
	o, err := in.Body.options()
	if err != nil {
		return nil, err
	}
	info, err := s.sandboxes.Acquire(ctx, exchange.CallerOf(ctx), in.Thread, o)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if info.State == sandbox.Starting {
		status = http.StatusAccepted
	}
	return &route.StatusBody[sandboxAnswer]{Status: status, Body: sandboxAnswer{ThreadID: in.Thread, Sandbox: info}}, nil
}

func (s threadRoutes) thread(ctx context.Context, in *route.ThreadIn) (*route.Body[sandbox.ThreadView], error) {
	v, err := s.threads.Thread(ctx, exchange.CallerOf(ctx), in.Thread)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(labelled(v)), nil
}

func (s threadRoutes) listThreads(ctx context.Context, in *listThreadsIn) (*route.Body[threadPage], error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	list, err := s.threads.Threads(ctx, exchange.CallerOf(ctx), f)
	if err != nil {
		return nil, err
	}
	page := threadPage{Items: make([]sandbox.ThreadView, len(list.Items)), NextCursor: list.Next, Total: list.Total}
	for i, v := range list.Items {
		page.Items[i] = labelled(v)
	}
	return route.BodyOf(page), nil
}

// sandboxMetrics is what a sandbox uses.
type sandboxMetrics struct {
	At               time.Time `json:"at"`
	CPUMillis        int64     `json:"cpu_ms" doc:"Time that its processes computed since it was made, of all cores together; what it uses now is the growth between two answers"`
	CPULimitMillis   int64     `json:"cpu_limit_millis" doc:"Thousandths of a core that it may use"`
	MemoryBytes      int64     `json:"memory_bytes" doc:"With the cache of its files"`
	MemoryLimitBytes int64     `json:"memory_limit_bytes"`
	PIDs             int64     `json:"pids" doc:"Processes and threads; with a kernel of its own (gVisor) those that this kernel has on the host"`
	PIDsLimit        int64     `json:"pids_limit"`
	// Disk is nil when the files cannot be counted.
	Disk *sandboxDisk `json:"disk,omitempty" doc:"The thread's files, as they were measured some seconds ago; absent when they cannot be counted"`
}

// sandboxDisk is what a thread's files take, and may take.
type sandboxDisk struct {
	Bytes      int64 `json:"bytes"`
	Files      int64 `json:"files"`
	LimitBytes int64 `json:"limit_bytes" doc:"0: no limit"`
}

func (s threadRoutes) sandboxMetrics(ctx context.Context, in *route.ThreadIn) (*route.Body[sandboxMetrics], error) {
	l, err := s.sandboxes.SandboxLoad(ctx, exchange.CallerOf(ctx), in.Thread)
	if err != nil {
		return nil, err
	}
	m := sandboxMetrics{
		At: l.At, CPUMillis: l.CPU.Milliseconds(), CPULimitMillis: l.Limits.CPUMillis, MemoryBytes: l.Memory, MemoryLimitBytes: l.Limits.MemoryBytes,
		PIDs: l.PIDs, PIDsLimit: l.Limits.PIDs,
	}
	if l.Disk != nil {
		m.Disk = &sandboxDisk{l.Disk.Bytes, l.Disk.Files, l.Limits.DiskBytes}
	}
	return route.BodyOf(m), nil
}

// labelled shows a thread without labels as having none, not null.
func labelled(v sandbox.ThreadView) sandbox.ThreadView {
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	return v
}
