package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
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
			return r.upToDate(ctx, inst)
		}
		return nil
	})
}

// bringKept is bringToRead for a thread that is on a volume.
func (r *Orchestrator) bringKept(ctx context.Context, t sandbox.Thread) error {
	for {
		inst := r.find(t)
		if inst == nil {
			if again, err := r.volumes.Fetch(ctx, t); !again || err != nil {
				return err
			}
			continue
		}
		ended := inst.Gone
		select {
		case <-inst.Ready:
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the thread's files are on its user's volume, and its sandbox is still starting; try again")
		}
		if inst.Err == nil && inst.Ending() == "" {
			if inst.FileSync.Same(true) {
				return nil
			}
			err := r.pull(ctx, inst, readPatience)
			if inst.Ending() == "" {
				if err != nil {
					return filesync.Unreadable(err)
				}
				return nil
			}
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the thread's files are on its user's volume, and its sandbox is still stopping; try again")
		}
	}
}

// Has implements volumes.Sandboxes.
func (s volumeSandboxes) Has(t sandbox.Thread) bool { return s.r.find(t) != nil }

// volumeSandboxes are the sandboxes of the orchestrator, as volumes see them.
type volumeSandboxes struct{ r *Orchestrator }
