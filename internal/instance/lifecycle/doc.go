// Package lifecycle is what happens to the sandbox of a thread between its start and its end: instances wait for a slot
// (Queue), are paused, hibernated and put away (Lifecycle), end (Teardown), and are restarted as what they were (Orders).
//
// An instance that starts, or is adopted, comes from packages start and recovery.
package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/instance/usage"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// Options are what the parts work with. All are needed, but for Limits.
type Options struct {
	Parts
	Driver    driver.Driver
	Audit     *audit.Log
	Metrics   *metrics.Metrics
	Limits    *limits.Gate // nil: nothing is limited
	Templates map[string]instance.Template
	Default   string // name of the default template
	Bounds    Bounds
	StartTime time.Duration // bound of one start
	Log       *slog.Logger
	Group     *sync.WaitGroup // counts the goroutines
}

// Parts are the other parts of the server.
type Parts struct {
	Live        *instance.Map
	Specs       *savedspec.Specs
	Slots       *capacity.Places
	Owners      *ownership.Owners
	Copies      *copies.Copies
	Hooks       *hooks.Hooks
	Retirements *instance.Retirements
	Pool        *pool.Pool
	Threads     *threads.Threads
	Usage       *usage.Writer
	Watcher     Watcher
	Followers   Followers
}

// New makes the four parts. What they begin ends with ctx.
func New(ctx context.Context, caps driver.Capabilities, o Options) (*Orders, *Queue, *Teardown, *Lifecycle) {
	nudged := make(chan struct{}, 1)
	orders := &Orders{specs: o.Specs, ctx: ctx, defaultName: o.Default, live: o.Live, log: o.Log, Templates: o.Templates}
	queue := &Queue{
		audit: o.Audit, ctx: ctx, bounds: o.Bounds, limits: o.Limits, live: o.Live, log: o.Log, metrics: o.Metrics, nudged: nudged,
		places: o.Slots, startTime: o.StartTime,
	}
	teardown := &Teardown{
		audit: o.Audit, copies: o.Copies, ctx: ctx, followers: o.Followers, hooks: o.Hooks, live: o.Live, log: o.Log, metrics: o.Metrics, owners: o.Owners, pool: o.Pool,
		retirements: o.Retirements, startTime: o.StartTime, usage: o.Usage, watches: o.Watcher, wg: o.Group,
	}
	return orders, queue, teardown, &Lifecycle{
		nudged: nudged, specs: o.Specs, audit: o.Audit, caps: caps, ctx: ctx, driver: o.Driver, hooks: o.Hooks, bounds: o.Bounds, live: o.Live,
		log: o.Log, metrics: o.Metrics, orders: orders, owners: o.Owners, places: o.Slots, queue: queue, teardown: teardown,
		threads: o.Threads, usage: o.Usage, wg: o.Group,
	}
}
