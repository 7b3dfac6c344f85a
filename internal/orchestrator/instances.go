package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
)

// teardown ends instances: on request, when their sandbox dies, and when another server takes their thread.
type teardown struct {
	audit     *audit.Log
	copies    *copies.Copies
	ctx       context.Context
	hooks     *hooks.Hooks
	live      *instance.Map
	log       *slog.Logger
	metrics   *metrics.Metrics
	owners    *ownership.Owners
	pool      *pool.Pool
	startTime time.Duration
	watches   *fileWatches
	wg        *sync.WaitGroup
}

// stillOurs reports whether no other server has taken the instance's thread. As long as its lease was renewed in
// time that is so; else the owner record is read. An unreadable one counts as ours: no server can take it.
func (d *teardown) stillOurs(inst *instance.Instance) bool {
	own := inst.Owned()
	if own == nil {
		return true
	}
	return d.owners.Current(own)
}

// abandonTo takes an instance that is another replica's out of this process and leaves all of it in place.
func (d *teardown) abandonTo(inst *instance.Instance) {
	d.hooks.Leave(d.ctx, inst)
	d.leaveMap(inst)
}

// leaveMap takes an instance out of the map, once.
func (d *teardown) leaveMap(inst *instance.Instance) {
	if d.live.Remove(inst) {
		d.watches.sandboxEnded(inst.Thread)
	}
}

// Lost ends the instance of a thread that another server has taken. False: this server has none.
func (d *teardown) Lost(own *ownership.Ownership) bool {
	inst := d.live.Find(own.Thread)
	if inst == nil || inst.Owned() != own {
		return false
	}
	inst.End(sandbox.StatusLost)
	d.wg.Go(func() {
		<-inst.Ready
		d.abandonTo(inst)
	})
	return true
}

// Renewed tells the thread's sandbox, and other servers, about a new token. The record went with the former lease.
func (d *teardown) Renewed(ctx context.Context, own *ownership.Ownership) error {
	inst := d.live.Find(own.Thread)
	if inst == nil || !inst.IsReady() || inst.Ending() != "" {
		return nil
	}
	d.copies.AttachAgain(ctx, inst)
	return d.hooks.Publish(ctx, inst)
}

// hookServer is the orchestrator, as hooks see it.
type hookServer struct{ r *Orchestrator }

// StillRuns implements hooks.Server: it reports whether a sandbox that does not answer just now is worth waiting for. An engine that does not tell has
// as much to do as the rest of the machine.
func (s hookServer) StillRuns(ctx context.Context, inst *instance.Instance) bool {
	if inst.Ending() != "" || s.r.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	entry, err := s.r.o.Driver.Inspect(ctx, inst.ID)
	if err != nil {
		return !errors.Is(err, sandbox.NotFound)
	}
	return entry.State == sandbox.Running || entry.State == sandbox.Paused
}

// Warm implements hooks.Server.
func (s hookServer) Warm(inst *instance.Instance, env map[string]string) { s.r.Runs.Warm(inst, env) }

// AdoptContexts implements hooks.Server.
func (s hookServer) AdoptContexts(ctx context.Context, inst *instance.Instance, known []*sandboxv1.ContextStatus) {
	s.r.Contexts.Adopt(ctx, inst, known)
}
