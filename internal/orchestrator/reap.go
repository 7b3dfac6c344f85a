package orchestrator

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// reaper removes what no server knows: sandboxes without an owner record, folders without a sandbox.
type reaper struct {
	contexts  *contexts.Contexts
	audit     *audit.Log
	ctx       context.Context
	dataDir   string
	driver    driver.Driver
	execs     *execution.Registry
	install   string
	live      *instance.Map
	log       *slog.Logger
	metrics   *metrics.Metrics
	owners    *ownership.Owners
	runRoot   string
	startTime time.Duration
	volumes   *volumes.Volumes
}

// reapFolders removes run folders of sandboxes that no longer exist. One of a sandbox that its driver knows or an owner record
// names, here or of another server, is left alone, and so is a young one.
func (r *reaper) reapFolders(found []sandbox.Instance) {
	entries, err := os.ReadDir(r.runRoot)
	if err != nil {
		r.log.Warn("run folder not read", "error", err)
		return
	}
	used := map[sandbox.ID]bool{}
	for _, entry := range found {
		used[entry.ID] = true
	}
	var unknown []sandbox.ID
	for _, e := range entries {
		id := sandbox.ID(e.Name())
		if used[id] || len(id) != len(sandbox.NewID()) || r.live.FindID(id) != nil {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= r.startTime {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return
	}
	waiting, err := pool.RootIn(r.dataDir).List()
	if err != nil {
		r.log.Warn("pool not read", "error", err)
		return
	}
	claims, err := r.owners.Book.All() // after the folders: an owner record comes before its folder
	if err != nil {
		r.log.Error("claims not read", "error", err)
		return
	}
	for _, f := range waiting {
		used[f.ID] = true
	}
	for _, c := range claims {
		used[c.Sandbox] = true
	}
	for _, id := range unknown {
		if !used[id] {
			r.noteReaped(sandbox.Thread{}, id, "a folder of a sandbox that does not exist", os.RemoveAll(filepath.Join(r.runRoot, string(id))))
		}
	}
}

func (r *reaper) noteReaped(t sandbox.Thread, id sandbox.ID, what string, err error) {
	rec := audit.About(sandbox.Caller{}, t, audit.ActionSandboxReap, audit.PhaseResult)
	rec.Sandbox, rec.Outcome, rec.Detail = string(id), "ok", what
	if err != nil {
		r.log.Warn("what is left of a sandbox cannot be removed; tried again", "sandbox", string(id), "what", what, "error", err)
		return // the record says what was done, not every ten seconds what was not
	}
	r.log.Info("removed "+what, "sandbox", string(id))
	r.metrics.Changed(audit.ActionSandboxReap, "orphan")
	if _, err := r.audit.Append(context.WithoutCancel(r.ctx), rec); err != nil {
		r.log.Error("the audit log cannot be written", "error", err)
	}
}
