package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Thread shows one thread of the caller.
func (r *Orchestrator) Thread(ctx context.Context, c sandbox.Caller, id string) (sandbox.ThreadView, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	if err := r.threads.Exists(ctx, t); err != nil {
		return sandbox.ThreadView{}, err
	}
	info, err := r.o.Store.Thread(ctx, t)
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	view := r.view(info)
	if view.Sandbox != nil && view.Sandbox.State == sandbox.Running {
		view.Sandbox.Waiting = r.interpreters(ctx, t)
	}
	if r.live.Find(t) == nil { // nothing is started for its size
	} else if err := r.copies.Restore(ctx, t); err != nil { // its size is that of what was copied before
		r.o.Log.Debug("files not copied", "thread", t.String(), "error", err)
	}
	err = r.withFiles(t, nil, func(fs *paths.FS) error {
		view.Workspace, err = fs.Usage(ctx)
		return err
	})
	return view, err
}

func (r *Orchestrator) view(info sandbox.ThreadInfo) sandbox.ThreadView {
	v := sandbox.ThreadView{ThreadInfo: info}
	if inst := r.live.Find(info.Thread); inst != nil {
		i := inst.Info()
		v.Sandbox = &i
	} else if saved := r.Specs.Read(info.Thread); saved != nil {
		v.Sandbox = saved.Hibernated
	}
	return v
}

// Threads lists the caller's threads by id. The size of each workspace is left out: it would cost a
// walk of every one.
func (r *Orchestrator) Threads(ctx context.Context, c sandbox.Caller, f sandbox.ThreadFilter) ([]sandbox.ThreadView, string, error) {
	infos, next, err := r.o.Store.Threads(ctx, c.Owner, f.Labels, f.Limit, f.Cursor)
	if err != nil {
		return nil, "", err
	}
	views := make([]sandbox.ThreadView, 0, len(infos))
	for _, info := range infos {
		views = append(views, r.view(info))
	}
	if err := r.elsewhereViews(ctx, views); err != nil {
		return nil, "", err
	}
	all := views
	views = views[:0]
	for _, v := range all {
		if f.State != "" && (v.Sandbox == nil || v.Sandbox.State != f.State) {
			continue
		}
		views = append(views, v)
	}
	return views, next, nil
}

// ReleaseSandbox ends the thread's sandbox, if there is one, and forgets what it was; the files stay.
func (r *Orchestrator) ReleaseSandbox(ctx context.Context, c sandbox.Caller, id string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := r.threads.Exists(ctx, t); err != nil {
		return err
	}
	if inst := r.live.Find(t); inst != nil {
		inst.Release()
		if err := r.retire(ctx, c, inst, sandbox.StatusKilled, "released"); err != nil {
			return err
		}
	}
	return r.Specs.Forget(t)
}

// DeleteThread ends the sandbox and deletes the files. The files vanish by one rename; deleting
// them goes on when the caller goes away.
func (r *Orchestrator) DeleteThread(ctx context.Context, c sandbox.Caller, id string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := r.threads.Exists(ctx, t); err != nil {
		return err
	}
	rec := audit.About(c, t, audit.ActionThreadDelete, audit.PhaseAttempt)
	rec.Subject = id
	return r.o.Audit.Do(ctx, rec, func(*audit.Record) error {
		if err := r.ReleaseSandbox(ctx, c, id); err != nil {
			return err
		}
		uid, err := workspace.UID(r.folders.Dir(t))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be deleted")
		}
		if err := r.volumes.Delete(ctx, t); err != nil {
			return err
		}
		if err := r.threads.Delete(ctx, t); err != nil {
			return err
		}
		return r.releaseDeleted(ctx, c, t, uid)
	})
}

// releaseDeleted ends a sandbox that began while the thread's files, of that uid, were being deleted: it has them.
func (r *Orchestrator) releaseDeleted(ctx context.Context, c sandbox.Caller, t sandbox.Thread, uid int) error {
	inst := r.live.Find(t)
	if inst == nil {
		return nil
	}
	select {
	case <-inst.Ready:
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the thread is deleted, and a sandbox of it is still starting")
	}
	if inst.UID != uid {
		return nil
	}
	return errors.Join(r.retire(ctx, c, inst, sandbox.StatusKilled, "deleted"), r.Specs.Forget(t))
}

// Templates lists what a sandbox can be made from.
func (r *Orchestrator) Templates() []sandbox.Template {
	list := make([]sandbox.Template, 0, len(r.o.Templates))
	for _, t := range r.o.Templates {
		list = append(list, t.Template)
	}
	slices.SortFunc(list, func(a, b sandbox.Template) int { return strings.Compare(a.Name, b.Name) })
	return list
}
