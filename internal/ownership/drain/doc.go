// Package drain ends the work of a server: threads are handed over to other servers, new work is passed on or refused, and
// what still runs at the deadline is killed.
//
// How a server that stops hands its threads over to the servers that go on. A thread can be handed over when
// no exec runs and no request is about it. Then its owner record names no replica, its lease is released,
// and the server that is asked next adopts the sandbox. An exec is never moved: its deadline, its token and
// its callers are here, so its thread stays until it ends.
//
// Locks: a mutex in endAll guards the count of killed execs and is held alone.
package drain

import (
	"context"
	"log/slog"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/ownership"
)

// Options are what a Drain works with. All are needed.
type Options struct {
	Live     *instance.Map
	Execs    *execution.Registry
	Hooks    *hooks.Hooks
	Teardown *lifecycle.Teardown
	Owners   *ownership.Owners
	Takeover *ownership.Takeover
	Peers    ownership.Peers
	Audit    *audit.Log
	Log      *slog.Logger
}

// New returns the drain of a server that works until ctx ends.
func New(ctx context.Context, o Options) *Drain {
	stopping, endStreams := context.WithCancel(ctx)
	return &Drain{
		stopping: stopping, endStreams: endStreams, targets: ownership.NewTargets(o.Peers, o.Log),
		audit: o.Audit, execs: o.Execs, hooks: o.Hooks, live: o.Live, log: o.Log, owners: o.Owners, takeover: o.Takeover, teardown: o.Teardown,
	}
}
