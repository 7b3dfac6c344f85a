package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/savedspec"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// Options are all needed.
type Options struct {
	DataDir   string
	Driver    Driver
	Live      *instance.Map
	Folders   *workspace.Folders
	Owners    *ownership.Owners
	Peers     Peers
	Specs     *savedspec.Specs
	Templates map[string]instance.Template
	Default   string // name of the default template
	Daemon    string // host path of skerry-sandboxd
	Install   string // id of the data folder
	StartTime time.Duration
	Log       *slog.Logger
	// Group counts what runs in the background, which ends with the context.
	Group *sync.WaitGroup
}

// Driver keeps files of threads on volumes: a driver.Driver that is a driver.Volumes, too.
type Driver interface {
	Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error)
	Remove(ctx context.Context, id sandbox.ID) error
	Detach(ctx context.Context, id sandbox.ID) error
	Push(ctx context.Context, id sandbox.ID, paths ...string) error
	Pull(ctx context.Context, id sandbox.ID) (changed bool, err error)
	RemoveFolder(ctx context.Context, spec sandbox.Spec) error
}

// Peers are the servers of the data folder.
type Peers interface {
	ID() string
	Alive(id string) bool
}

// Volumes are the folders of threads on the volumes of their users. A nil *Volumes has none: the driver keeps none.
type Volumes struct {
	o     Options
	ctx   context.Context // ends with the server
	turns turns
}

// New returns the volumes of a server.
func New(ctx context.Context, o Options) *Volumes { return &Volumes{o: o, ctx: ctx} }

const (
	// noteTimeout bounds the note of what a volume does not have, removeTimeout the removal of a sandbox for files alone.
	noteTimeout, removeTimeout = 10 * time.Second, 30 * time.Second
)

// state is what is remembered of such a thread, in a file beside the workspaces.
type state struct {
	Ahead bool `json:"ahead"` // a sandbox has run since both sides were the same
	// Due are paths that the server changed all the same, and the volume does not have.
	Due []string `json:"due,omitempty"`
}

// maxState bounds the file: maxDue paths.
const maxState = 8 << 20

func (v *Volumes) file(t sandbox.Thread) string {
	return filepath.Join(v.o.DataDir, "volumes", t.Tenant, t.User, t.ID+".json")
}

// read returns what is remembered of a thread; nil: it was never on a volume.
func (v *Volumes) read(t sandbox.Thread) (*state, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // no thread is
	}
	_, text, err := lockedfile.Read(v.file(t), maxState)
	if errors.Is(err, fs.ErrNotExist) || err == nil && text == nil {
		return nil, nil //nolint:nilnil // this one is not
	}
	var s state
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "it is unknown what of the thread is on its user's volume")
	}
	return &s, nil
}

// remember writes it down.
func (v *Volumes) remember(t sandbox.Thread, s state) error {
	file := v.file(t)
	text, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = lockedfile.Replace(file, text)
	}
	if err != nil {
		return workspace.NoRoom(err, "what is on the user's volume cannot be written down")
	}
	return nil
}

// On reports whether a thread has been on a volume, and so stays there.
func (v *Volumes) On(t sandbox.Thread) bool {
	if v == nil {
		return false
	}
	_, err := os.Lstat(v.file(t))
	return err == nil
}

// Of names the folder of a thread on its user's volume.
func Of(t sandbox.Thread) *sandbox.Volume {
	return &sandbox.Volume{Tenant: t.Tenant, User: t.User, Thread: t.ID}
}

// Owe notes what the server changed in a thread without a sandbox whose volume was ahead by then.
func (v *Volumes) Owe(t sandbox.Thread, paths []string) error {
	if len(paths) == 0 || v == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(v.ctx, noteTimeout)
	defer cancel()
	return v.turns.alone(ctx, t, func() error {
		now, err := v.read(t)
		if err != nil || now == nil || !now.Ahead {
			return err
		}
		now.Due = append(now.Due, paths...)
		slices.Sort(now.Due)
		now.Due = slices.Compact(now.Due)
		if len(now.Due) > filesync.MaxDue {
			return sandbox.Errorf(sandbox.Unavailable, "%d changes wait for the user's volume; start a sandbox of the thread first", filesync.MaxDue)
		}
		return v.remember(t, *now)
	})
}

// Was is On for a caller who goes by it for long: a note that cannot be read is an error.
func (v *Volumes) Was(t sandbox.Thread) (bool, error) {
	now, err := v.read(t)
	return now != nil, err
}

// Start calls start, which makes a sandbox of a thread with its files on a volume, while no other goroutine works on the
// volume's folder. due are paths that the server has and the volume does not. When start returns nil the volume is ahead.
func (v *Volumes) Start(ctx context.Context, t sandbox.Thread, start func(on *sandbox.Volume, due []string) error) error {
	return v.turns.alone(ctx, t, func() error {
		now, err := v.read(t)
		if err != nil {
			return err
		}
		if now == nil { // before there is a folder, so that a thread which is deleted has it deleted
			now = &state{}
			if err := v.remember(t, *now); err != nil {
				return err
			}
		}
		on := Of(t)
		on.Ahead = now.Ahead
		if err := start(on, now.Due); err != nil {
			return err
		}
		// Nothing ran until now: before that the server's folder counts, if it did.
		return v.remember(t, state{Ahead: true})
	})
}

// Fetch makes the server's folder of a thread without a sandbox what its volume has. again: another
// goroutine worked on the volume meanwhile. It goes on when the caller stops waiting; the next call finds
// it done.
func (v *Volumes) Fetch(ctx context.Context, t sandbox.Thread) (again bool, err error) {
	now, err := v.read(t)
	if err != nil || now == nil || !now.Ahead {
		return false, err
	}
	x, mine := v.turns.begin(t)
	if mine {
		v.o.Group.Go(func() { v.turns.end(t, x, v.fetchNow(t)) })
	}
	return true, x.wait(ctx)
}

var errHasSandbox = sandbox.Errorf(sandbox.Unavailable, "the thread's sandbox is starting; try again")

func (v *Volumes) fetchNow(t sandbox.Thread) error {
	ctx, cancel := context.WithTimeout(v.ctx, v.o.StartTime+filesync.PullTime)
	defer cancel()
	if v.o.Live.Find(t) != nil {
		return errHasSandbox
	}
	now, err := v.read(t)
	if err != nil || now == nil || !now.Ahead {
		return err
	}
	return v.withFolder(ctx, t, func(spec sandbox.Spec, own *ownership.Ownership) error {
		began := time.Now()
		if _, err := v.o.Driver.Create(ctx, spec); err != nil {
			return err
		}
		defer v.endFiles(spec.ID)
		if len(now.Due) > 0 {
			if err := v.o.Driver.Push(ctx, spec.ID, now.Due...); err != nil {
				return err
			}
		}
		if _, err := v.o.Driver.Pull(ctx, spec.ID); err != nil {
			if errors.Is(err, sandbox.Conflict) {
				return sandbox.Wrap(sandbox.Internal, err, "the thread's files are not on its user's volume, which must be another one than it was")
			}
			return filesync.Unreadable(err)
		}
		if !v.o.Owners.Confirm(own) {
			return ownership.NotHere(&ownership.Elsewhere{})
		}
		v.o.Log.Info("files fetched from a volume", "thread", t.String(), "ms", time.Since(began).Milliseconds())
		return v.remember(t, state{})
	})
}

// withFolder holds a thread, and returns the Spec of a sandbox that has its files on the volume, and nothing else.
func (v *Volumes) withFolder(ctx context.Context, t sandbox.Thread, use func(sandbox.Spec, *ownership.Ownership) error) error {
	uid, err := workspace.UID(v.o.Folders.Dir(t))
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	own, err := v.o.Owners.Acquire(ctx, t, "")
	if err != nil {
		return ownership.NotHere(err)
	}
	defer v.o.Owners.Release(own)
	tmpl := v.o.Templates[v.o.Default]
	if saved := v.o.Specs.Head(t); saved != nil {
		if named, ok := v.o.Templates[saved.Template]; ok {
			tmpl = named
		}
	}
	on := Of(t)
	on.Ahead, on.Bare = true, true
	return use(sandbox.Spec{
		ID: sandbox.NewID(), Image: tmpl.Image, Runtime: tmpl.Runtime, UID: uid, Daemon: v.o.Daemon, Limits: tmpl.Limits, Volume: on,
		Token:  own.Token.Load(),
		Mounts: []sandbox.Mount{{Source: v.o.Folders.Dir(t), Target: sandbox.UserDataDir}},
		Labels: map[string]string{
			sandbox.LabelInstall: v.o.Install, sandbox.LabelRole: sandbox.RoleFiles, sandbox.LabelReplica: v.o.Peers.ID(),
			sandbox.LabelTenant: t.Tenant, sandbox.LabelUser: t.User, sandbox.LabelThread: t.ID,
		},
	}, own)
}

// endFiles removes a sandbox that had files alone.
func (v *Volumes) endFiles(id sandbox.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), removeTimeout)
	defer cancel()
	if err := errors.Join(v.o.Driver.Detach(ctx, id), v.o.Driver.Remove(ctx, id)); err != nil {
		v.o.Log.Warn("a sandbox for files alone was not removed; tried again later", "sandbox", string(id), "error", err)
	}
}

// filesAge is how old a sandbox for files alone may be: a server that ended left an older one behind.
const filesAge = 10 * time.Minute

// Left reports whether a sandbox was made for files alone, and no caller can be waiting for it any more.
func (v *Volumes) Left(entry sandbox.Instance) bool {
	return v != nil && entry.Labels[sandbox.LabelRole] == sandbox.RoleFiles &&
		(!v.o.Peers.Alive(entry.Labels[sandbox.LabelReplica]) || time.Since(entry.CreatedAt) > filesAge)
}

// Delete deletes what a thread that is being deleted has on a volume.
func (v *Volumes) Delete(ctx context.Context, t sandbox.Thread) error {
	if v == nil {
		return nil
	}
	ctx, cancel := deadline.Detached(ctx, v.o.StartTime+filesync.PullTime)
	defer cancel()
	return v.turns.alone(ctx, t, func() error {
		now, err := v.read(t)
		if err != nil || now == nil {
			return err
		}
		err = v.withFolder(ctx, t, func(spec sandbox.Spec, _ *ownership.Ownership) error { return v.o.Driver.RemoveFolder(ctx, spec) })
		if err != nil {
			return err
		}
		if err := os.Remove(v.file(t)); err != nil {
			return fmt.Errorf("volume of thread: %w", err)
		}
		return lockedfile.SyncDir(filepath.Dir(v.file(t)))
	})
}
