package orchestrator

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/vpath"
)

// withFiles opens a view of the thread's files for use. With a uid it may write. No sandbox is
// needed: the files lie on this host.
func (r *Orchestrator) withFiles(t sandbox.Thread, uid *int, use func(*vpath.FS) error) error {
	o := vpath.Options{
		Mounts: []vpath.Mount{
			{Virtual: sandbox.UserDataDir, Host: r.threadDir(t), Writable: uid != nil},
			{Virtual: sandbox.SkillsDir, Host: r.o.Skills.Root()},
			{Virtual: sandbox.PluginsDir},
			{Virtual: sandbox.CodeAPIDir},
		},
		DiskBytes: r.o.Templates[r.o.Default].Limits.DiskBytes,
	}
	if uid != nil {
		o.UID = *uid
	}
	if b := r.find(t); b != nil {
		o.Mounts[2].Host, o.Mounts[3].Host = b.plugins(), b.codeAPI()
		o.DiskBytes = b.template.Limits.DiskBytes
	}
	fs, err := vpath.New(o)
	if err != nil {
		return err
	}
	defer fs.Close() //nolint:errcheck // only closes folders that were read
	return use(fs)
}

// ReadFiles gives read a view of the thread's files.
func (r *Orchestrator) ReadFiles(_ context.Context, c sandbox.Caller, id string, read func(*vpath.FS) error) error {
	t, err := thread(c, id)
	if err != nil {
		return err
	}
	if err := r.exists(t); err != nil {
		return err
	}
	return r.withFiles(t, nil, read)
}

// ChangeFiles gives change a view of the thread's files that it may write, and records what it did.
// A thread that is not there yet is made, so that files can be put before anything runs.
func (r *Orchestrator) ChangeFiles(ctx context.Context, c sandbox.Caller, id, action, path string, change func(*vpath.FS) (int64, error)) error {
	t, err := thread(c, id)
	if err != nil {
		return err
	}
	uid, err := r.ensureThread(ctx, t)
	if err != nil {
		return err
	}
	rec := record(c, t, action, audit.PhaseAttempt)
	rec.Subject = path
	attempt, err := r.o.Audit.Append(ctx, rec)
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the audit log cannot be written")
	}
	began := time.Now()
	var n int64
	err = r.withFiles(t, &uid, func(fs *vpath.FS) error {
		var err error
		n, err = change(fs)
		return err
	})
	rec.Parent, rec.Outcome, rec.Millis, rec.BytesIn = attempt.ID, "ok", time.Since(began).Milliseconds(), n
	if err != nil {
		rec.Outcome, rec.Detail = "error", string(sandbox.KindOf(err))
	}
	// The change is done or not done by now: its record is written even when the caller has gone.
	if e := r.note(context.WithoutCancel(ctx), rec); e != nil {
		return e
	}
	return err
}
