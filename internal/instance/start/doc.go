// Package start starts the sandboxes of threads. It finds the instance of a thread or starts one, cold or
// with a sandbox of the pool, and lets execs into it. Each start runs the hooks of package hooks.
package start

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// Options are what the parts work with. A field is needed unless its comment says what nil means.
type Options struct {
	Parts
	Workspace
	Hub       announcer
	Store     *store.Store
	Audit     *audit.Log
	StartTime time.Duration // bound of one start
	RunRoot   string        // has the run folders of sandboxes
	Log       *slog.Logger
	Group     *sync.WaitGroup // counts the goroutines
}

// Parts are the other parts of the server that know instances.
type Parts struct {
	Live      *instance.Map
	Execs     *execution.Registry
	Slots     *capacity.Places
	Owners    *ownership.Owners
	Drain     *drain.Drain
	Hooks     *hooks.Hooks
	Pool      *pool.Pool
	Orders    *lifecycle.Orders
	Queue     *lifecycle.Queue
	Teardown  *lifecycle.Teardown
	Lifecycle *lifecycle.Lifecycle
}

// Workspace is what a sandbox shows.
type Workspace struct {
	Skills    *mounted.Skills
	Threads   *threads.Threads
	Folders   *workspace.Folders
	Copies    *copies.Copies
	Volumes   *volumes.Volumes // nil when the driver keeps none
	OnVolumes bool             // files of new threads lie on volumes
}

// New makes Starts. What they begin ends with ctx.
func New(ctx context.Context, caps driver.Capabilities, o Options) *Starts {
	narrowing := &narrower{Narrowing: NewNarrowing(o.Live, o.Store), hub: o.Hub, threads: o.Threads}
	return &Starts{
		lifecycle: o.Lifecycle, drain: o.Drain, skills: o.Skills, audit: o.Audit, ctx: ctx, execs: o.Execs, hooks: o.Hooks, live: o.Live,
		log: o.Log, narrowing: narrowing, orders: o.Orders, owners: o.Owners, pool: o.Pool, queue: o.Queue, startTime: o.StartTime, store: o.Store,
		teardown: o.Teardown, threads: o.Threads, wg: o.Group,
		Maker: &Maker{
			caps: caps, copies: o.Copies, folders: o.Folders, OnVolumes: o.OnVolumes, places: o.Slots, pool: o.Pool, queue: o.Queue,
			runRoot: o.RunRoot, volumes: o.Volumes,
		},
	}
}
