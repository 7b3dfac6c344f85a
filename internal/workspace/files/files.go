package files

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// Files are the files of threads, as callers read, change and watch them.
type Files struct {
	lifecycle   *lifecycle.Lifecycle
	drain       *drain.Drain
	skills      *mounted.Skills
	audit       *audit.Log
	copies      *copies.Copies
	ctx         context.Context
	dataDir     string
	defaultName string
	folders     *workspace.Folders
	limits      *limits.Gate
	live        *instance.Map
	log         *slog.Logger
	owners      *ownership.Owners
	runRoot     string
	searches    searches
	templates   map[string]instance.Template
	threads     *threads.Threads
	views       *skills.Views
	watches     *Watches
}

// With opens a view of the thread's files for use. With a uid it may write. No sandbox is
// needed: the files lie on this host.
func (f *Files) With(t sandbox.Thread, uid *int, use func(*paths.FS) error) error {
	return f.withView(t, uid, nil, nil, use)
}

// withView is With, with the skills and plugins of a view. more says how else it is opened; nil: as it is.
func (f *Files) withView(t sandbox.Thread, uid *int, view *skills.View, more func(*paths.Options), use func(*paths.FS) error) error {
	o := paths.Options{
		Mounts: []paths.Mount{
			{Virtual: sandbox.UserDataDir, Host: f.folders.Dir(t), Writable: uid != nil},
			{Virtual: sandbox.SkillsDir},
			{Virtual: sandbox.PluginsDir},
			{Virtual: sandbox.CodeAPIDir},
		},
		DiskBytes: f.templates[f.defaultName].Limits.DiskBytes,
		Search:    func(ctx context.Context) (func(), error) { return f.searches.begin(ctx, t.Owner) },
	}
	if uid != nil {
		o.UID = *uid
	}
	if inst := f.live.Find(t); inst != nil {
		o.Mounts[3].Host = inst.Dir.CodeAPI()
		o.DiskBytes = inst.Template.Limits.DiskBytes
	} else if id := f.owners.Record(t).Sandbox; id != "" { // another replica runs it
		o.Mounts[3].Host = filepath.Join(f.runRoot, string(id), "code-api")
	}
	if uid != nil {
		o.Spool = f.runRoot
		o.Hold = quota.Hold
		if err := f.folders.Bound(t, o.UID, o.DiskBytes); err != nil {
			return err
		}
	}
	if view != nil {
		var err error
		if o.Mounts[1].Host, o.Mounts[2].Host, err = f.viewFolders(t, view); err != nil {
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

// Change calls change with a view of the thread's files that it may write. When it returns, a sandbox that runs has what
// was changed.
func (f *Files) Change(ctx context.Context, t sandbox.Thread, uid int, change func(*paths.FS) error) error {
	return f.copies.Change(ctx, t, func(more func(*paths.Options)) error { return f.withView(t, &uid, nil, more, change) })
}

// viewFolders returns the host folders of a view: those of the thread's sandbox, or else others that show the same.
func (f *Files) viewFolders(t sandbox.Thread, view *skills.View) (skills, plugins string, err error) {
	if inst := f.live.Find(t); inst != nil && inst.IsReady() && inst.Skills.Folder.Shows(view) {
		return inst.Skills.Folder.Skills(), inst.Skills.Folder.Plugins(), nil
	}
	return f.views.Shared(view)
}

// ReadFiles calls read with a view of the thread's files, with its skills and plugins. A thread that is not there yet has
// empty folders: agents look for their skills before they run or write anything.
func (f *Files) ReadFiles(ctx context.Context, c sandbox.Caller, id string, read func(*paths.FS) error) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := f.threads.Exists(ctx, t); err != nil && !errors.Is(err, sandbox.NotFound) {
		return err
	}
	f.lifecycle.Active(t, lifecycle.ActivityFileRead)
	return f.read(ctx, t, read)
}

func (f *Files) read(ctx context.Context, t sandbox.Thread, read func(*paths.FS) error) error {
	view, err := f.skills.Of(ctx, t)
	if err != nil {
		f.log.Error("skills not shown", "thread", t.String(), "error", err)
		view = skills.NoView()
	}
	if err := f.copies.Restore(ctx, t); err != nil {
		return err
	}
	return f.withView(t, nil, view, nil, read)
}

// ChangeFiles calls change with a view of the thread's files that it may write, and records what it did.
// A thread that is not there yet is made, so that files can be put before anything runs.
func (f *Files) ChangeFiles(ctx context.Context, c sandbox.Caller, id, action, path string, change func(*paths.FS) (int64, error)) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := f.drain.Refuse(t); err != nil {
		return err
	}
	if action != audit.ActionFileDelete {
		if err := f.limits.Files(ctx, c); err != nil {
			return err
		}
	}
	f.lifecycle.Active(t, lifecycle.ActivityFileWrite)
	uid, err := f.threads.Ensure(ctx, t)
	if err != nil {
		return err
	}
	rec := audit.About(c, t, action, audit.PhaseAttempt)
	rec.Subject = path
	rec.Args, rec.ArgsHash = audit.Args(map[string]string{"path": path})
	return f.audit.Do(ctx, rec, func(result *audit.Record) error {
		err := f.copies.Restore(ctx, t)
		if err == nil {
			err = f.Change(ctx, t, uid, func(fs *paths.FS) error {
				var err error
				result.BytesIn, err = change(fs)
				return err
			})
		}
		if e := f.threads.Save(context.WithoutCancel(ctx), t, uid); err == nil {
			err = e // what failed may have changed something, too
		}
		return err
	})
}
