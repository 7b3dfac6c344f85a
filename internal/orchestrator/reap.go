package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// reapFolders removes run folders of sandboxes that no longer exist. One of a sandbox that its driver knows or an owner record
// names, here or of another server, is left alone, and so is a young one.
func (r *Orchestrator) reapFolders(found []sandbox.Instance) {
	entries, err := os.ReadDir(r.runRoot())
	if err != nil {
		r.o.Log.Warn("run folder not read", "error", err)
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
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= r.o.StartTime {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return
	}
	waiting, err := pool.RootIn(r.o.DataDir).List()
	if err != nil {
		r.o.Log.Warn("pool not read", "error", err)
		return
	}
	claims, err := r.owners.Book.All() // after the folders: an owner record comes before its folder
	if err != nil {
		r.o.Log.Error("claims not read", "error", err)
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
			r.noteReaped(sandbox.Thread{}, id, "a folder of a sandbox that does not exist", os.RemoveAll(filepath.Join(r.runRoot(), string(id))))
		}
	}
}

func (r *Orchestrator) noteReaped(t sandbox.Thread, id sandbox.ID, what string, err error) {
	rec := audit.About(sandbox.Caller{}, t, audit.ActionSandboxReap, audit.PhaseResult)
	rec.Sandbox, rec.Outcome, rec.Detail = string(id), "ok", what
	if err != nil {
		r.o.Log.Warn("what is left of a sandbox cannot be removed; tried again", "sandbox", string(id), "what", what, "error", err)
		return // the record says what was done, not every ten seconds what was not
	}
	r.o.Log.Info("removed "+what, "sandbox", string(id))
	r.o.Metrics.Changed(audit.ActionSandboxReap, "orphan")
	if _, err := r.o.Audit.Append(context.WithoutCancel(r.ctx), rec); err != nil {
		r.o.Log.Error("the audit log cannot be written", "error", err)
	}
}
