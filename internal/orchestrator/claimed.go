package orchestrator

import (
	"errors"
	"io/fs"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/instance/pool"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// maker makes instances, with a sandbox of the pool or without.
type maker struct {
	caps      driver.Capabilities
	copies    *copies.Copies
	folders   *workspace.Folders
	onVolumes bool
	places    *capacity.Places
	pool      *pool.Pool
	queue     *queue
	runRoot   string
	volumes   *volumes.Volumes
}

// takePooled takes a sandbox of the pool for a thread, and makes its place the tenant's; nil: there is none, or the thread
// may have none. Where sandboxes see the server's disk only a thread without files can: its files are those of the
// sandbox from then on. It runs in instance.Map.Put.
func (m *maker) takePooled(t sandbox.Thread, o order) (*instance.Pooled, *capacity.Ticket) {
	if !m.pool.Any() || o.cold {
		return nil, nil
	}
	if _, err := workspace.UID(m.folders.Dir(t)); !errors.Is(err, fs.ErrNotExist) && (err != nil || !m.copies.Apart()) {
		return nil, nil
	}
	x := m.pool.Pick(o.template.Name)
	if x == nil {
		return nil, nil
	}
	place, ok := m.places.Exchange(t.Tenant)
	if !ok { // the tenant waits for a place
		m.pool.PutBack(x)
		return nil, nil
	}
	return x, place
}

// poolSandboxes are the sandboxes of the orchestrator, as the pool makes them.
type poolSandboxes struct{ r *Orchestrator }

// Draining implements pool.Sandboxes.
func (s poolSandboxes) Draining() bool { return s.r.Shutdown.Draining() }

// NewFileSync implements pool.Sandboxes.
func (s poolSandboxes) NewFileSync(id sandbox.ID) *filesync.Sync { return s.r.copies.Sync(id) }

// OpenLink implements pool.Sandboxes.
func (s poolSandboxes) OpenLink(inst *instance.Instance) error { return s.r.hooks.OpenLink(inst) }

// Spec implements pool.Sandboxes.
func (s poolSandboxes) Spec(inst *instance.Instance, files string) sandbox.Spec {
	return s.r.hooks.Spec(inst, files)
}

// Warm implements pool.Sandboxes.
func (s poolSandboxes) Warm(inst *instance.Instance) { s.r.Runs.Warm(inst, nil) }

// Reaped implements pool.Sandboxes.
func (s poolSandboxes) Reaped(t sandbox.Thread, id sandbox.ID, what string, err error) {
	s.r.reaper.noteReaped(t, id, what, err)
}

// ClearAway implements pool.Sandboxes.
func (s poolSandboxes) ClearAway(id sandbox.ID) { s.r.reaper.clearAway(id) }
