package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// onVolume reports whether the next sandbox of a thread has its files on a volume.
func (r *Orchestrator) onVolume(t sandbox.Thread) bool {
	return r.volumes != nil && (r.o.OnVolumes || r.volumes.On(t))
}

// makeSandbox has the driver make the sandbox of an instance.
func (r *Orchestrator) makeSandbox(ctx context.Context, inst *instance.Instance) error {
	if !inst.OnVolume() {
		_, err := r.o.Driver.Create(ctx, r.spec(inst))
		if err == nil && inst.FileSync != nil {
			inst.FileSync.Opened(true)
		}
		if _, gone := os.Lstat(r.folders.Dir(inst.Thread)); err != nil && errors.Is(gone, fs.ErrNotExist) {
			err = sandbox.Wrap(sandbox.Conflict, err, "the thread was deleted while its sandbox started")
		}
		return err
	}
	return r.volumes.Start(ctx, inst.Thread, func(on *sandbox.Volume, due []string) error {
		spec := r.spec(inst)
		spec.Volume = on
		if _, err := r.o.Driver.Create(ctx, spec); err != nil {
			return err
		}
		inst.FileSync.Files.Add(due...)
		inst.FileSync.Opened(!on.Ahead)
		if len(due) > 0 {
			return r.copies.UpToDate(ctx, inst)
		}
		return nil
	})
}

// volumeSandboxes are the sandboxes of the orchestrator, as volumes see them.
type volumeSandboxes struct{ r *Orchestrator }

// Has implements volumes.Sandboxes.
func (s volumeSandboxes) Has(t sandbox.Thread) bool { return s.r.find(t) != nil }

// copySandboxes are the sandboxes of the orchestrator, as copies see them.
type copySandboxes struct{ r *Orchestrator }

// Find implements copies.Sandboxes.
func (s copySandboxes) Find(t sandbox.Thread) *instance.Instance { return s.r.find(t) }

// All implements copies.Sandboxes.
func (s copySandboxes) All() []*instance.Instance { return s.r.all() }

// StillOurs implements copies.Sandboxes.
func (s copySandboxes) StillOurs(inst *instance.Instance) bool { return s.r.stillOurs(inst) }

// Mounts implements copies.Sandboxes.
func (s copySandboxes) Mounts(inst *instance.Instance) []sandbox.Mount {
	return s.r.specOf(inst, s.r.folders.Dir(inst.Thread)).Mounts
}

// Abandon implements copies.Sandboxes.
func (s copySandboxes) Abandon(inst *instance.Instance, why string) { s.r.abandon(inst, why) }
