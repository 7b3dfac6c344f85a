package recovery

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
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// Reaper removes what no server knows: sandboxes without an owner record, folders without a sandbox.
type Reaper struct {
	contexts *contexts.Registry
	audit    *audit.Log
	peers    ownership.Peers
	ctx      context.Context
	dataDir  string
	driver   driver.Driver
	execs    *execution.Registry
	install  string
	live     *instance.Map
	log      *slog.Logger
	metrics  *metrics.Metrics
	owners   *ownership.Owners
	runRoot  string
	Young    time.Duration // age below which a sandbox may be in the middle of its start
	volumes  *volumes.Volumes
}

// ClearAway removes the run folder of a sandbox that no longer exists.
func (r *Reaper) ClearAway(id sandbox.ID) {
	if id == "" {
		return
	}
	if err := os.RemoveAll(filepath.Join(r.runRoot, string(id))); err != nil {
		r.log.Error("run folder not removed", "sandbox", string(id), "error", err)
	}
}

// reapEvery is how often the Reaper looks.
const reapEvery = 10 * time.Second

// ReapFolders removes run folders of sandboxes that no longer exist. It leaves alone the folder of a sandbox
// that its driver knows, or that an owner record names, here or of another server. It also leaves a young
// one alone.
func (r *Reaper) ReapFolders(found []sandbox.Instance) {
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
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= r.Young {
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
			r.Note(sandbox.Thread{}, id, "a folder of a sandbox that does not exist", os.RemoveAll(filepath.Join(r.runRoot, string(id))))
		}
	}
}

// Note records what was removed, or why it was not.
func (r *Reaper) Note(t sandbox.Thread, id sandbox.ID, what string, err error) {
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

// Watch forgets what is old, and removes what no server knows.
func (r *Reaper) Watch() {
	orphans := map[sandbox.ID]time.Time{}
	for range every.Tick(r.ctx, reapEvery) {
		r.execs.Expire(time.Now())
		r.contexts.Expire(r.ctx)
		r.Reconcile(orphans)
	}
}

// Reconcile removes sandboxes of this data folder that no owner record names, for instance because their
// removal failed the first time. A young sandbox may be in the middle of its creation. A sandbox with an
// owner record a moment ago may be in a take-over. So each must stay an orphan for a whole lease time first.
func (r *Reaper) Reconcile(orphans map[sandbox.ID]time.Time) {
	ctx, cancel := context.WithTimeout(r.ctx, hooks.RemoveTimeout)
	defer cancel()
	found, err := r.driver.List(ctx, map[string]string{sandbox.LabelInstall: r.install})
	if err != nil {
		r.log.Warn("sandboxes not listed", "error", err)
		return
	}
	strays := r.strayPooled(found)
	there := map[sandbox.ID]bool{}
	for _, entry := range found {
		if r.volumes.Left(entry) {
			if err := r.driver.Remove(ctx, entry.ID); err != nil {
				r.log.Warn("a sandbox for files alone was not removed", "sandbox", string(entry.ID), "error", err)
			}
			continue
		}
		if r.live.FindID(entry.ID) != nil || !r.ofThread(entry) && !strays[entry.ID] || time.Since(entry.CreatedAt) < r.Young {
			continue
		}
		c, ok, err := r.owners.Book.Read(hooks.ThreadOf(entry)) // after the list: an owner record comes before its sandbox
		if err != nil {
			r.log.Error("owner record not read", "sandbox", string(entry.ID), "error", err)
		}
		if err != nil || ok && c.Sandbox == entry.ID {
			continue
		}
		there[entry.ID] = true
		since, seen := orphans[entry.ID]
		if !seen {
			orphans[entry.ID] = time.Now()
		} else if time.Since(since) > ownership.LeaseTime {
			r.RemoveOrphan(ctx, entry)
		}
	}
	for id := range orphans {
		if !there[id] {
			delete(orphans, id)
		}
	}
	r.ReapFolders(found)
}

// ofThread reports whether a sandbox was made for a thread, and is not the second one of another server that lives.
func (r *Reaper) ofThread(entry sandbox.Instance) bool {
	switch entry.Labels[sandbox.LabelRole] {
	case "":
		return true
	case sandbox.RoleSecond:
		maker := entry.Labels[sandbox.LabelReplica]
		return maker == r.peers.ID() || !r.peers.Alive(maker)
	}
	return false
}

// EndSeconds removes the second sandboxes of servers that ended, and those of a thread that is this server's now; the zero
// Thread: of no thread. What cannot be removed now is an orphan.
func (r *Reaper) EndSeconds(ctx context.Context, found []sandbox.Instance, t sandbox.Thread) {
	for _, entry := range found {
		maker := entry.Labels[sandbox.LabelReplica]
		if entry.Labels[sandbox.LabelRole] != sandbox.RoleSecond || maker == r.peers.ID() || r.peers.Alive(maker) && hooks.ThreadOf(entry) != t {
			continue
		}
		err := r.driver.Remove(ctx, entry.ID)
		if err == nil {
			r.ClearAway(entry.ID)
		}
		r.Note(hooks.ThreadOf(entry), entry.ID, "a second sandbox of a server that ended", err)
	}
}

// strayPooled returns the sandboxes made for the pool that neither wait in it nor have an owner record. Their labels do not
// say which thread's owner record that could be, so all are read, when there is one to look for.
func (r *Reaper) strayPooled(found []sandbox.Instance) map[sandbox.ID]bool {
	strays := map[sandbox.ID]bool{}
	for _, entry := range found {
		if entry.Labels[sandbox.LabelRole] == sandbox.RolePool && r.live.FindID(entry.ID) == nil {
			strays[entry.ID] = true
		}
	}
	if len(strays) == 0 {
		return nil
	}
	waiting, err := pool.RootIn(r.dataDir).List()
	if err != nil {
		r.log.Warn("pool not read", "error", err)
		return nil
	}
	for _, f := range waiting {
		delete(strays, f.ID)
	}
	if len(strays) == 0 {
		return nil
	}
	claims, err := r.owners.Book.All() // after the pool: an owner record comes before its folder moves
	if err != nil {
		r.log.Error("claims not read", "error", err)
		return nil
	}
	for _, c := range claims {
		delete(strays, c.Sandbox)
	}
	return strays
}

// RemoveOrphan removes a sandbox that no owner record names, while no replica can claim it.
func (r *Reaper) RemoveOrphan(ctx context.Context, entry sandbox.Instance) {
	page, err := r.owners.LockPage(ctx, hooks.ThreadOf(entry))
	if err != nil {
		r.log.Warn("orphan sandbox not removed", "sandbox", string(entry.ID), "error", err)
		return
	}
	defer page.Close()
	if c, ok, err := page.Record(); err != nil || ok && c.Sandbox == entry.ID {
		return
	}
	err = r.driver.Remove(ctx, entry.ID)
	if err == nil {
		r.ClearAway(entry.ID)
	}
	r.Note(hooks.ThreadOf(entry), entry.ID, "a sandbox without a record", err)
}
