package orchestrator

import (
	"errors"
	"io/fs"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/capacity"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// takePooled takes a sandbox of the pool for a thread, and makes its place the tenant's; nil: there is none, or the thread
// may have none. Where sandboxes see the server's disk only a thread without files can: its files are those of the
// sandbox from then on. It runs in instance.Map.Put.
func (r *Orchestrator) takePooled(t sandbox.Thread, o order) (*instance.Pooled, *capacity.Ticket) {
	if !r.pool.Any() || o.cold {
		return nil, nil
	}
	if _, err := workspace.UID(r.folders.Dir(t)); !errors.Is(err, fs.ErrNotExist) && (err != nil || !r.copies.Apart()) {
		return nil, nil
	}
	x := r.pool.Pick(o.template.Name)
	if x == nil {
		return nil, nil
	}
	place, ok := r.places.Exchange(t.Tenant)
	if !ok { // the tenant waits for a place
		r.pool.PutBack(x)
		return nil, nil
	}
	return x, place
}

// poolSandboxes are the sandboxes of the orchestrator, as the pool makes them.
type poolSandboxes struct{ r *Orchestrator }

// Draining implements pool.Sandboxes.
func (s poolSandboxes) Draining() bool { return s.r.Draining() }

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
	s.r.noteReaped(t, id, what, err)
}

// ClearAway implements pool.Sandboxes.
func (s poolSandboxes) ClearAway(id sandbox.ID) { s.r.clearAway(id) }
