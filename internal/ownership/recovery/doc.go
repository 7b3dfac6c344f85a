// Package recovery finds again what a server left behind: it adopts sandboxes (Recovery), writes the results that an exited
// server still owes (Settlement), and removes what no server knows (Reaper).
package recovery

import (
	"context"
	"log/slog"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// Options are what a Recovery works with. A field is needed unless its comment says what nil means.
type Options struct {
	Parts
	Driver  driver.Driver
	Audit   *audit.Log
	Limits  *limits.Gate // nil: nothing is limited
	RunRoot string       // has the run folders of sandboxes
	Install string       // id of the data folder
	Log     *slog.Logger
}

// Parts are the other parts of the server.
type Parts struct {
	Live       *instance.Map
	Specs      *savedspec.Specs
	Slots      *capacity.Places
	Owners     *ownership.Owners
	Takeover   *ownership.Takeover
	Peers      ownership.Peers
	Volumes    *volumes.Volumes // nil when the driver keeps none
	Copies     *copies.Copies
	Hooks      *hooks.Hooks
	Orders     *lifecycle.Orders
	Reaper     *Reaper
	Settlement *Settlement
}

// New returns the recovery of a server.
func New(caps driver.Capabilities, o Options) *Recovery {
	return &Recovery{
		specs: o.Specs, audit: o.Audit, caps: caps, copies: o.Copies, driver: o.Driver, hooks: o.Hooks, install: o.Install, limits: o.Limits,
		live: o.Live, log: o.Log, orders: o.Orders, owners: o.Owners, peers: o.Peers, places: o.Slots, reaper: o.Reaper, runRoot: o.RunRoot,
		takeover: o.Takeover, settlement: o.Settlement, volumes: o.Volumes,
	}
}

// ReaperOptions are what a Reaper works with. All are needed, but for Volumes.
type ReaperOptions struct {
	Live      *instance.Map
	Execs     *execution.Registry
	Contexts  *contexts.Registry
	Owners    *ownership.Owners
	Peers     ownership.Peers
	Volumes   *volumes.Volumes // nil when the driver keeps none
	Driver    driver.Driver
	Audit     *audit.Log
	Metrics   *metrics.Metrics
	StartTime time.Duration // bound of one start: a younger sandbox may be in the middle of it
	DataDir   string
	RunRoot   string // has the run folders of sandboxes
	Install   string // id of the data folder
	Log       *slog.Logger
}

// NewReaper returns the reaper of a server, which works until ctx ends.
func NewReaper(ctx context.Context, o ReaperOptions) *Reaper {
	return &Reaper{
		contexts: o.Contexts, audit: o.Audit, peers: o.Peers, ctx: ctx, dataDir: o.DataDir, driver: o.Driver, execs: o.Execs, install: o.Install, live: o.Live,
		log: o.Log, metrics: o.Metrics, owners: o.Owners, runRoot: o.RunRoot, Young: o.StartTime, volumes: o.Volumes,
	}
}
