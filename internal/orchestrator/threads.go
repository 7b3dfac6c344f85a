package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/files"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// Threads are the threads of callers, with their sandboxes.
type Threads struct {
	Files    *files.Files
	specs    *savedspec.Specs
	audit    *audit.Log
	copies   *copies.Copies
	folders  *workspace.Folders
	live     *instance.Map
	log      *slog.Logger
	peers    ownership.Peers
	store    *store.Store
	teardown *lifecycle.Teardown
	threads  *threads.Threads
	volumes  *volumes.Volumes
}

// Thread shows one thread of the caller.
func (u *Threads) Thread(ctx context.Context, c sandbox.Caller, id string) (sandbox.ThreadView, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	if err := u.threads.Exists(ctx, t); err != nil {
		return sandbox.ThreadView{}, err
	}
	known, err := u.store.UsedThread(ctx, t)
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	view := u.view(known)
	if view.Sandbox != nil {
		view.Sandbox.EnvNames = u.envNames(t)
		if view.Sandbox.State == sandbox.Running {
			view.Sandbox.Waiting = u.interpreters(ctx, t)
		}
	}
	if u.live.Find(t) == nil { // nothing is started for its size
	} else if err := u.copies.Restore(ctx, t); err != nil { // its size is that of what was copied before
		u.log.Debug("files not copied", "thread", t.String(), "error", err)
	}
	err = u.Files.With(t, nil, func(fs *paths.FS) error {
		if view.Workspace, err = fs.Usage(ctx); errors.Is(err, sandbox.QuotaExceeded) {
			return nil // what lies too deep is not shown; a write says so
		}
		return err
	})
	return view, err
}

func (u *Threads) view(t store.ListedThread) sandbox.ThreadView {
	v := sandbox.ThreadView{ThreadInfo: t.ThreadInfo, Usage: t.Used}
	v.Channels = nil // with the hashes of keys
	if inst := u.live.Find(t.Thread); inst != nil {
		i := inst.Info()
		v.Sandbox = &i
	} else if saved := u.specs.Head(t.Thread); saved != nil {
		v.Sandbox = saved.Hibernated
	}
	return v
}

// SandboxLoad says what the thread's sandbox uses, with its files.
func (s Sandboxes) SandboxLoad(ctx context.Context, c sandbox.Caller, id string) (sandbox.Load, error) {
	l, err := s.Lifecycle.SandboxLoad(ctx, c, id)
	if err != nil {
		return l, err
	}
	t := sandbox.Thread{Owner: c.Owner, ID: id}
	if inst := s.Threads.live.Find(t); inst != nil {
		l.Disk = inst.Disk.Used(func() (used sandbox.DiskUsage, err error) {
			err = s.Threads.Files.With(t, nil, func(fs *paths.FS) error {
				used, err = fs.Usage(context.WithoutCancel(ctx)) // others wait for it, too; it has a bound of its own
				return err
			})
			return used, err
		})
	}
	return l, nil
}

// ReleaseSandbox ends the thread's sandbox, if there is one, and forgets what it was; the files stay.
func (u *Threads) ReleaseSandbox(ctx context.Context, c sandbox.Caller, id string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := u.threads.Exists(ctx, t); err != nil {
		return err
	}
	inst, saved := u.live.Find(t), u.specs.Head(t)
	if inst != nil {
		inst.Saved.Forget()
		if err := u.teardown.Retire(ctx, c, inst, sandbox.StatusKilled, "released"); err != nil {
			return err
		}
	}
	if err := u.specs.Forget(t); err != nil {
		return err
	}
	if inst == nil && saved != nil && saved.Hibernated != nil {
		u.teardown.Forgot(t, *saved.Hibernated)
	}
	return nil
}

// DeleteThread ends the sandbox and deletes the files. The files vanish by one rename; deleting
// them goes on when the caller goes away.
func (u *Threads) DeleteThread(ctx context.Context, c sandbox.Caller, id string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	if err := u.threads.Exists(ctx, t); err != nil {
		return err
	}
	rec := audit.About(c, t, audit.ActionThreadDelete, audit.PhaseAttempt)
	rec.Subject = id
	return u.audit.Do(ctx, rec, func(*audit.Record) error {
		if err := u.ReleaseSandbox(ctx, c, id); err != nil {
			return err
		}
		uid, err := workspace.UID(u.folders.Dir(t))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be deleted")
		}
		if err := u.volumes.Delete(ctx, t); err != nil {
			return err
		}
		if err := u.threads.Delete(ctx, t); err != nil {
			return err
		}
		return u.releaseDeleted(ctx, c, t, uid)
	})
}

// releaseDeleted ends a sandbox that began while the thread's files, of that uid, were being deleted: it has them.
func (u *Threads) releaseDeleted(ctx context.Context, c sandbox.Caller, t sandbox.Thread, uid int) error {
	inst := u.live.Find(t)
	if inst == nil {
		return u.store.ForgetSandbox(ctx, t) // of a server that was killed, and whose sandbox is gone
	}
	select {
	case <-inst.Ready:
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the thread is deleted, and a sandbox of it is still starting")
	}
	if inst.UID != uid {
		return nil
	}
	return errors.Join(u.teardown.Retire(ctx, c, inst, sandbox.StatusKilled, "deleted"), u.specs.Forget(t))
}

// interpretersTimeout bounds the question which interpreters wait, which stands before the answer to a caller.
const interpretersTimeout = 2 * time.Second

// interpreters asks a sandbox of this server which of them wait. A sandbox that does not answer at once is not asked again.
func (u *Threads) interpreters(ctx context.Context, t sandbox.Thread) []sandbox.WaitingInterpreter {
	inst := u.live.Find(t)
	if inst == nil || !inst.IsReady() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, interpretersTimeout)
	defer cancel()
	st, err := inst.Conn.Client.Status(ctx)
	if err != nil {
		return nil
	}
	var list []sandbox.WaitingInterpreter
	for _, i := range st.GetInterpreters() {
		list = append(list, sandbox.WaitingInterpreter{Language: i.GetLanguage(), Starting: i.GetStarts(), Forks: i.GetForks(), MemoryBytes: i.GetMemoryBytes()})
	}
	return list
}

// envNames are those of the variables that each exec of a thread has, whatever a request adds.
func (u *Threads) envNames(t sandbox.Thread) []string {
	all := map[string]string{}
	if inst := u.live.Find(t); inst != nil {
		maps.Copy(all, inst.Template.Env)
		maps.Copy(all, inst.Saved.Env())
	} else if saved := u.specs.Read(t); saved != nil {
		maps.Copy(all, saved.Env)
	}
	return slices.Sorted(maps.Keys(all))
}
