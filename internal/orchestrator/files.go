package orchestrator

import (
	"context"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// withFiles opens a view of the thread's files for use. With a uid it may write. No sandbox is
// needed: the files lie on this host.
func (r *Orchestrator) withFiles(t sandbox.Thread, uid *int, use func(*paths.FS) error) error {
	return r.withView(t, uid, nil, nil, use)
}

// withView is withFiles, with the skills and plugins of a view. more says how else it is opened; nil: as it is.
func (r *Orchestrator) withView(t sandbox.Thread, uid *int, view *skill.View, more func(*paths.Options), use func(*paths.FS) error) error {
	o := paths.Options{
		Mounts: []paths.Mount{
			{Virtual: sandbox.UserDataDir, Host: r.folders.Dir(t), Writable: uid != nil},
			{Virtual: sandbox.SkillsDir},
			{Virtual: sandbox.PluginsDir},
			{Virtual: sandbox.CodeAPIDir},
		},
		DiskBytes: r.o.Templates[r.o.Default].Limits.DiskBytes,
	}
	if uid != nil {
		o.UID = *uid
	}
	if inst := r.live.Find(t); inst != nil {
		o.Mounts[3].Host = inst.Dir.CodeAPI()
		o.DiskBytes = inst.Template.Limits.DiskBytes
	} else if id := r.owners.Record(t).Sandbox; id != "" { // another replica runs it
		o.Mounts[3].Host = filepath.Join(r.runRoot(), string(id), "code-api")
	}
	if uid != nil {
		o.Spool = r.runRoot()
		o.Hold = quota.Hold
		if err := r.folders.Bound(t, o.UID, o.DiskBytes); err != nil {
			return err
		}
	}
	if view != nil {
		var err error
		if o.Mounts[1].Host, o.Mounts[2].Host, err = r.viewFolders(t, view); err != nil {
			return sandbox.Wrap(sandbox.Internal, err, "the skills cannot be shown")
		}
	}
	if more != nil {
		more(&o)
	}
	fs, err := paths.New(o)
	if err != nil {
		return err
	}
	defer fs.Close() //nolint:errcheck // only closes folders that were read
	return use(fs)
}

// changeFiles calls change with a view of the thread's files that it may write. When it returns, a sandbox that runs has what
// was changed.
func (r *Orchestrator) changeFiles(ctx context.Context, t sandbox.Thread, uid int, change func(*paths.FS) error) error {
	return r.copies.Change(ctx, t, func(more func(*paths.Options)) error { return r.withView(t, &uid, nil, more, change) })
}

// viewFolders returns the host folders of a view: those of the thread's sandbox, or else others that show the same.
func (r *Orchestrator) viewFolders(t sandbox.Thread, view *skill.View) (skills, plugins string, err error) {
	if inst := r.live.Find(t); inst != nil && inst.IsReady() && inst.Skills.Folder.Shows(view) {
		return inst.Skills.Folder.Skills(), inst.Skills.Folder.Plugins(), nil
	}
	return r.o.Views.Shared(view)
}

// ReadFiles calls read with a view of the thread's files, with its skills and plugins.
func (r *Orchestrator) ReadFiles(ctx context.Context, c sandbox.Caller, id string, read func(*paths.FS) error) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := r.threads.Exists(ctx, t); err != nil {
		return err
	}
	r.active(t, ActivityFileRead)
	return r.readFiles(ctx, t, read)
}

func (r *Orchestrator) readFiles(ctx context.Context, t sandbox.Thread, read func(*paths.FS) error) error {
	view, err := r.Skills.Of(ctx, t)
	if err != nil {
		r.o.Log.Error("skills not shown", "thread", t.String(), "error", err)
		view = skill.NoView()
	}
	if err := r.copies.Restore(ctx, t); err != nil {
		return err
	}
	return r.withView(t, nil, view, nil, read)
}

// ChangeFiles calls change with a view of the thread's files that it may write, and records what it did.
// A thread that is not there yet is made, so that files can be put before anything runs.
func (r *Orchestrator) ChangeFiles(ctx context.Context, c sandbox.Caller, id, action, path string, change func(*paths.FS) (int64, error)) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := r.refuse(t); err != nil {
		return err
	}
	if action != audit.ActionFileDelete {
		if err := r.o.Limits.Files(ctx, c); err != nil {
			return err
		}
	}
	r.active(t, ActivityFileWrite)
	uid, err := r.threads.Ensure(ctx, t)
	if err != nil {
		return err
	}
	rec := audit.About(c, t, action, audit.PhaseAttempt)
	rec.Subject = path
	rec.Args, rec.ArgsHash = audit.Args(map[string]string{"path": path})
	return r.o.Audit.Do(ctx, rec, func(result *audit.Record) error {
		err := r.copies.Restore(ctx, t)
		if err == nil {
			err = r.changeFiles(ctx, t, uid, func(fs *paths.FS) error {
				var err error
				result.BytesIn, err = change(fs)
				return err
			})
		}
		if e := r.threads.Keep(context.WithoutCancel(ctx), t, uid); err == nil {
			err = e // what failed may have changed something, too
		}
		return err
	})
}
