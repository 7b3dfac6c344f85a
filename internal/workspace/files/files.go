package files

import (
	"bytes"
	"context"
	"encoding/json"
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

// withView is withFiles, with the skills and plugins of a view. more says how else it is opened; nil: as it is.
func (f *Files) withView(t sandbox.Thread, uid *int, view *skills.View, more func(*paths.Options), use func(*paths.FS) error) error {
	o := paths.Options{
		Mounts: []paths.Mount{
			{Virtual: sandbox.UserDataDir, Host: f.folders.Dir(t), Writable: uid != nil},
			{Virtual: sandbox.SkillsDir},
			{Virtual: sandbox.PluginsDir},
			{Virtual: sandbox.CodeAPIDir},
		},
		DiskBytes: f.templates[f.defaultName].Limits.DiskBytes,
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

// ReadFiles calls read with a view of the thread's files, with its skills and plugins.
func (f *Files) ReadFiles(ctx context.Context, c sandbox.Caller, id string, read func(*paths.FS) error) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := f.threads.Exists(ctx, t); err != nil {
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
		if e := f.threads.Keep(context.WithoutCancel(ctx), t, uid); err == nil {
			err = e // what failed may have changed something, too
		}
		return err
	})
}

// keepResult writes a tool's result into the thread's files. name is fit for a file name.
func (f *Files) KeepResult(ctx context.Context, t sandbox.Thread, name string, result json.RawMessage) (sandbox.ResultFile, error) {
	file := sandbox.ResultFile{Path: resultsDir + "/" + name + ".json", Format: "json"}
	content := []byte(result)
	var text string
	if json.Unmarshal(result, &text) == nil {
		file.Path, file.Format, content = resultsDir+"/"+name+".txt", "text", []byte(text)
	}
	file.Bytes = int64(len(content))
	uid, err := f.threads.Ensure(ctx, t)
	if err != nil {
		return file, err
	}
	return file, f.Change(ctx, t, uid, func(fs *paths.FS) error {
		_, err := fs.Write(ctx, file.Path, bytes.NewReader(content), false)
		return err
	})
}

// DiskUsed returns the bytes of the files of a user, or of all users of a tenant when user is "".
func (f *Files) DiskUsed(ctx context.Context, tenant, user string) (int64, error) {
	users := []string{user}
	if user == "" {
		var err error
		if users, err = folders(filepath.Join(f.dataDir, "tenants", tenant, "users")); err != nil {
			return 0, err
		}
	}
	var sum int64
	for _, u := range users {
		owner := sandbox.Owner{Tenant: tenant, User: u}
		threads, err := folders(filepath.Dir(f.folders.Dir(sandbox.Thread{Owner: owner, ID: "any"})))
		if err != nil {
			return 0, err
		}
		for _, id := range threads {
			t := sandbox.Thread{Owner: owner, ID: id}
			if sandbox.CheckThreadID(id) != nil || errors.Is(f.folders.Exists(t), sandbox.NotFound) {
				continue // being made, or deleted
			}
			var used sandbox.DiskUsage
			err := f.With(t, nil, func(fs *paths.FS) (err error) {
				used, err = fs.Usage(ctx)
				return err
			})
			if err != nil && !errors.Is(f.folders.Exists(t), sandbox.NotFound) {
				return 0, err
			}
			sum += used.Bytes
		}
	}
	return sum, nil
}

// WatchFiles tells emit what changes in a folder of the thread: first nothing, when it has begun, and then each time one or more
// changes. It returns nil when the sandbox that the thread has, or gets meanwhile, has ended and its last changes are told, else what
// ended it: NotFound when the thread is deleted, Unavailable when this server stops. It starts no sandbox, and keeps none from
// being idle.
func (f *Files) WatchFiles(ctx context.Context, c sandbox.Caller, id, path string, recursive bool, emit func([]paths.Change) error) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	lives, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, err := f.watches.begin(t, &fileWatch{end: cancel})
	if err != nil {
		return err
	}
	defer done()
	w := paths.NewWatch(path, recursive)
	defer w.Close()
	look := func(ctx context.Context) (changes []paths.Change, err error) {
		if err := f.threads.Exists(ctx, t); err != nil {
			return nil, err
		}
		err = f.read(ctx, t, func(fs *paths.FS) error { changes, err = w.Look(ctx, fs); return err })
		return changes, err
	}
	most := watchEvery
	if f.copies.Apart() {
		most = watchFar
	}
	w.Listen()
	defer context.AfterFunc(f.ctx, func() { cancel(sandbox.Errorf(sandbox.Unavailable, "the server stops: watch again")) })()
	for first := true; ; first = false {
		ended := errors.Is(context.Cause(lives), errSandboxEnded)
		changes, err := look(ctx)
		if err == nil && (first || len(changes) > 0) {
			err = emit(changes)
		}
		switch {
		case err != nil:
			return err
		case ended:
			return nil
		}
		if err := w.Wait(lives, most); err != nil && !errors.Is(context.Cause(lives), errSandboxEnded) {
			return context.Cause(lives)
		}
	}
}
