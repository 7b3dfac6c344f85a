package hooks

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// How a thread gets a sandbox of the pool. First its owner record names the sandbox, then the folder moves.
// A server that finds the record after a crash compares the owner of the thread's workspace with the
// sandbox's uid. No other workspace ever has that uid. If they match, the folder has moved, and the sandbox
// is the thread's. Otherwise, or without a workspace, the server removes the sandbox. Nothing has run in it
// by then, so nothing is lost.
//
// A thread that has files keeps its folder: they are copied into the sandbox, where that has a disk of its own. When all of them
// are there, a note in the sandbox's folder says whose they are, and only then may anything run. Until the note is there the
// sandbox belongs to no thread, and nothing is ever copied from it. A sandbox that got a part of them returns to no pool.

// workspaceHook finds or makes the thread's folder.
type workspaceHook struct {
	threads *threads.Threads
	folders *workspace.Folders
	copies  *copies.Copies
	disk    *quota.Volume
	runRoot string
	group   *sync.WaitGroup
	log     *slog.Logger
}

func (h *workspaceHook) name() string { return "workspace" }

func (h *workspaceHook) up(ctx context.Context, s *Start) (err error) {
	inst := s.Instance
	if inst.Main != nil { // its bounds are those of the thread's own
		inst.UID = inst.Main.UID
		return nil
	}
	switch s.Way {
	case Cold:
		inst.UID, err = h.threads.Ensure(ctx, inst.Thread)
	case Pooled:
		inst.UID, err = h.folders.Make(ctx, inst.Pooled.Files, workspace.Fill)
		return err
	case Claimed:
		err = h.claim(ctx, s)
	case Adopted:
		err = h.adopt(ctx, s)
	}
	if err != nil {
		return err
	}
	return h.folders.Bound(inst.Thread, inst.UID, inst.Template.Limits.DiskBytes)
}

func (h *workspaceHook) claim(ctx context.Context, s *Start) (err error) {
	inst := s.Instance
	if s.moved, err = h.pass(ctx, inst.Thread, inst.Pooled); err != nil {
		return err
	}
	// The disk may take its time; no caller sees the thread before it has.
	s.synced = make(chan error, 1)
	synced := s.synced
	h.group.Go(func() { synced <- lockedfile.SyncDir(filepath.Dir(h.folders.Dir(inst.Thread))) })
	uid, err := h.threads.Ensure(ctx, inst.Thread)
	if err == nil && s.moved && uid != inst.Pooled.UID { // it was deleted and made anew meanwhile
		err = instance.ErrGivenUp
	}
	if err == nil {
		inst.UID = uid
	}
	return err
}

func (h *workspaceHook) adopt(ctx context.Context, s *Start) error {
	t := s.Instance.Thread
	if err := h.threads.CheckSuperseded(ctx, t); err != nil {
		return err
	}
	uid, err := workspace.UID(h.folders.Dir(t))
	if err != nil {
		return err
	}
	s.Instance.UID = uid
	return h.belongs(s.Entry, t, uid)
}

// down takes away the folder that waits, or that a failed claim left in the pool, and keeps the files of a thread.
func (h *workspaceHook) down(_ context.Context, e *end) {
	if e.leave || e.held {
		return
	}
	if x := e.inst.Pooled; x != nil {
		if e.failed == nil {
			if err := h.folders.Drop(x.Files, x.UID); err != nil {
				logOf(h.log, e.inst).Warn("folder of a pooled sandbox not removed; tried again", "error", err)
			}
		}
		x.Forget()
	}
	if e.failed == nil && !e.inst.Waits() && e.inst.Main == nil {
		h.threads.SaveLast(e.inst)
	}
}

// pass moves the folder that waited with a sandbox. moved is false when the thread has files of its own, which the
// sandbox can be filled with; instance.ErrGivenUp: it cannot.
func (h *workspaceHook) pass(ctx context.Context, t sandbox.Thread, x *instance.Pooled) (moved bool, err error) {
	dir := h.folders.Dir(t)
	if _, err := workspace.UID(dir); err == nil && h.copies.Apart() {
		return false, nil
	}
	parent := filepath.Dir(dir)
	err = h.disk.MakeUser(parent)
	if err == nil {
		err = h.disk.Pass(ctx, x.Files, dir)
	}
	if errors.Is(err, fs.ErrExist) {
		if h.copies.Apart() {
			return false, nil
		}
		return false, instance.ErrGivenUp
	}
	if err != nil {
		return false, workspace.NoRoom(err, "the thread's files cannot be made")
	}
	return true, nil
}

// belongs says whether a sandbox was made for this thread, or was made for the pool and is the thread's now.
func (h *workspaceHook) belongs(entry sandbox.Instance, t sandbox.Thread, uid int) error {
	if entry.Labels[sandbox.LabelRole] != sandbox.RolePool {
		if ThreadOf(entry) != t {
			return errors.New("its labels name another thread")
		}
		return nil
	}
	if entry.Labels[sandbox.LabelUID] != strconv.Itoa(uid) && filledWith(h.runRoot, entry.ID) != uid {
		return errors.New("it waited in the pool, and the thread has other files")
	}
	return nil
}

// ThreadOf reads the labels of a sandbox.
func ThreadOf(entry sandbox.Instance) sandbox.Thread {
	return sandbox.Thread{
		Owner: sandbox.Owner{Tenant: entry.Labels[sandbox.LabelTenant], User: entry.Labels[sandbox.LabelUser]},
		ID:    entry.Labels[sandbox.LabelThread],
	}
}

// folderHook makes the run folder, or opens the existing one.
type folderHook struct {
	views  *skills.Views
	skills *mounted.Skills
	group  *sync.WaitGroup
	log    *slog.Logger
}

func (h *folderHook) name() string { return "folder" }

func (h *folderHook) up(ctx context.Context, s *Start) (err error) {
	inst := s.Instance
	switch s.Way {
	case Claimed: // it waited with the sandbox
	case Adopted:
		if _, err := os.Stat(inst.Dir.SecretFile()); err != nil {
			return errors.New("its run folder is gone")
		}
		if _, err := os.Stat(inst.Dir.View()); err != nil {
			return errors.New("a server of another version made it")
		}
		inst.Skills.Folder, err = h.views.Open(inst.Dir.View())
		return err
	case Cold, Pooled:
		if err = os.MkdirAll(string(inst.Dir), 0o711); err == nil {
			inst.Skills.Folder, err = h.views.Folder(inst.Dir.View())
		}
		if err != nil {
			return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
		}
		if s.Way == Pooled { // a claim changes what its own user does not see
			return h.skills.ShowEverybody(inst)
		}
		s.skills = make(chan error, 1) // it takes as long as all that comes now
		shown := s.skills
		h.group.Go(func() { shown <- h.skills.First(ctx, inst) })
	}
	return nil
}

func (h *folderHook) down(_ context.Context, e *end) {
	e.inst.Tools.Forbid()
	h.skills.End(e.inst, e.failed == nil && !e.leave && !e.held)
	if e.leave || e.held && e.failed != nil {
		return
	}
	if err := os.RemoveAll(string(e.inst.Dir)); err != nil {
		logOf(h.log, e.inst).Error("run folder not removed", "error", err)
	}
}
