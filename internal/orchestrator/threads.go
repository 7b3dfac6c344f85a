package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/vpath"
)

// Thread shows one thread of the caller.
func (r *Orchestrator) Thread(ctx context.Context, c sandbox.Caller, id string) (sandbox.ThreadView, error) {
	t, err := thread(c, id)
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	if err := r.exists(t); err != nil {
		return sandbox.ThreadView{}, err
	}
	info, err := r.o.Store.Thread(ctx, t)
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	view := r.view(info)
	err = r.withFiles(t, nil, func(fs *vpath.FS) error {
		view.Workspace, err = fs.Usage(ctx)
		return err
	})
	return view, err
}

func (r *Orchestrator) view(info sandbox.ThreadInfo) sandbox.ThreadView {
	v := sandbox.ThreadView{ThreadInfo: info}
	if b := r.find(info.Thread); b != nil {
		i := b.snapshot()
		v.Sandbox = &i
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

// ReleaseSandbox ends the thread's sandbox, if there is one, and keeps its files.
func (r *Orchestrator) ReleaseSandbox(ctx context.Context, c sandbox.Caller, id string) error {
	t, err := thread(c, id)
	if err != nil {
		return err
	}
	if err := r.exists(t); err != nil {
		return err
	}
	if b := r.find(t); b != nil {
		return r.retire(ctx, c, b, sandbox.StatusKilled, "released")
	}
	return nil
}

// DeleteThread ends the sandbox and deletes the files. The files vanish by one rename; deleting
// them goes on when the caller goes away.
func (r *Orchestrator) DeleteThread(ctx context.Context, c sandbox.Caller, id string) error {
	if err := r.ReleaseSandbox(ctx, c, id); err != nil {
		return err
	}
	t := sandbox.Thread{Owner: c.Owner, ID: id}
	rec := record(c, t, audit.ActionThreadDelete, audit.PhaseResult)
	rec.Subject, rec.Outcome = id, "ok"
	if err := r.note(ctx, rec); err != nil {
		return err
	}
	dir := r.threadDir(t)
	uid, err := workspaceUID(dir)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be deleted")
	}
	r.o.Disk.Forget(dir)
	grave, err := os.MkdirTemp(filepath.Dir(dir), ".deleted-")
	if err == nil {
		err = os.Rename(dir, filepath.Join(grave, "files"))
	}
	r.o.Hub.ForgetThread(t)
	r.virtuals.Forget(t)
	r.contexts.forget(t)
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = r.bury(ctx, grave, uid)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be deleted")
	}
	return r.o.Store.DeleteThread(ctx, t)
}

// Pause freezes the thread's sandbox; Resume thaws it. Any exec resumes it by itself.
func (r *Orchestrator) Pause(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	return r.freeze(ctx, c, id, sandbox.Paused, driver.Pauser.Pause)
}

// Resume thaws a paused sandbox.
func (r *Orchestrator) Resume(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	return r.freeze(ctx, c, id, sandbox.Running, driver.Pauser.Resume)
}

func (r *Orchestrator) freeze(ctx context.Context, c sandbox.Caller, id string, to sandbox.State, do func(driver.Pauser, context.Context, sandbox.ID) error) (sandbox.Info, error) {
	b, err := r.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	p, ok := r.o.Driver.(driver.Pauser)
	if !ok {
		return sandbox.Info{}, sandbox.Errorf(sandbox.NotSupported, "the driver %s cannot pause a sandbox", r.caps.Name)
	}
	ctx, cancel := detached(ctx, cleanupTimeout)
	defer cancel()
	if err := do(p, ctx, b.id); err != nil {
		return sandbox.Info{}, err
	}
	b.setState(to)
	return b.snapshot(), r.publish(ctx, b)
}

// Hibernate ends the container and keeps the files; the next call that needs a sandbox brings one back.
func (r *Orchestrator) Hibernate(ctx context.Context, c sandbox.Caller, id string) (sandbox.Info, error) {
	b, err := r.existing(ctx, c, id)
	if err != nil {
		return sandbox.Info{}, err
	}
	if err := r.retire(ctx, c, b, sandbox.StatusKilled, "hibernated"); err != nil {
		return sandbox.Info{}, err
	}
	return b.snapshot(), nil
}

// existing gives the thread's box when there is one, ready. It starts none.
func (r *Orchestrator) existing(ctx context.Context, c sandbox.Caller, id string) (*box, error) {
	t, err := thread(c, id)
	if err != nil {
		return nil, err
	}
	if err := r.exists(t); err != nil {
		return nil, err
	}
	b := r.find(t)
	if b == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "thread %q has no sandbox now", id)
	}
	return b, r.waitReady(ctx, b, 0)
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
