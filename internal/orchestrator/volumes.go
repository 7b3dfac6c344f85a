package orchestrator

import (
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// onVolume reports whether the next sandbox of a thread has its files on a volume.
func (m *maker) onVolume(t sandbox.Thread) bool {
	return m.volumes != nil && (m.onVolumes || m.volumes.On(t))
}

// volumeSandboxes are the sandboxes of the orchestrator, as volumes see them.
type volumeSandboxes struct{ r *Orchestrator }

// Has implements volumes.Sandboxes.
func (s volumeSandboxes) Has(t sandbox.Thread) bool { return s.r.live.Find(t) != nil }

// copySandboxes are the sandboxes of the orchestrator, as copies see them.
type copySandboxes struct{ r *Orchestrator }

// Find implements copies.Sandboxes.
func (s copySandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.live.Find(t) }

// All implements copies.Sandboxes.
func (s copySandboxes) All() []*instance.Instance { return s.r.live.All() }

// StillOurs implements copies.Sandboxes.
func (s copySandboxes) StillOurs(inst *instance.Instance) bool { return s.r.teardown.stillOurs(inst) }

// Mounts implements copies.Sandboxes.
func (s copySandboxes) Mounts(inst *instance.Instance) []sandbox.Mount {
	return s.r.hooks.Spec(inst, s.r.folders.Dir(inst.Thread)).Mounts
}

// Abandon implements copies.Sandboxes.
func (s copySandboxes) Abandon(inst *instance.Instance, why string) { s.r.teardown.abandon(inst, why) }
