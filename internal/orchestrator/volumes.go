package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/platform/deadline"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// Threads whose files lie on a volume of their user's (driver.Volumes). The volume is ahead of the server's folder of the thread
// from the first sandbox on: nothing is pulled at the end of an exec, or of a sandbox. Who looks has the files pulled, from the
// sandbox, or where there is none from one that has only files, after which the server's folder is ahead: what is changed in it
// the next sandbox is given whole. So at each moment one of the two has all.
//
// A thread that has been on a volume stays there. One that has not moves when it gets its next sandbox.

// volumeState is what is remembered of such a thread, in a file beside the workspaces.
type volumeState struct {
	Ahead bool `json:"ahead"` // a sandbox has run since both sides were the same
	// Due are paths that the server changed all the same, and the volume does not have.
	Due []string `json:"due,omitempty"`
}

// maxVolumeState bounds the file: maxDue paths.
const maxVolumeState = 8 << 20

func (r *Orchestrator) volumeFile(t sandbox.Thread) string {
	return filepath.Join(r.o.DataDir, "volumes", t.Tenant, t.User, t.ID+".json")
}

// volumeState returns what is remembered of a thread; nil: it was never on a volume.
func (r *Orchestrator) volumeState(t sandbox.Thread) (*volumeState, error) {
	if r.volumes == nil {
		return nil, nil //nolint:nilnil // no thread is
	}
	_, text, err := lockedfile.Read(r.volumeFile(t), maxVolumeState)
	if errors.Is(err, fs.ErrNotExist) || err == nil && text == nil {
		return nil, nil //nolint:nilnil // this one is not
	}
	var s volumeState
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "nobody knows what of the thread is on its user's volume")
	}
	return &s, nil
}

func (r *Orchestrator) rememberVolume(t sandbox.Thread, s volumeState) error {
	file := r.volumeFile(t)
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

// onVolume reports whether the next sandbox of a thread has its files on a volume.
func (r *Orchestrator) onVolume(t sandbox.Thread) bool {
	if r.volumes == nil {
		return false
	}
	_, err := os.Lstat(r.volumeFile(t))
	return r.o.OnVolumes || err == nil
}

func volumeOf(t sandbox.Thread) *sandbox.Volume {
	return &sandbox.Volume{Tenant: t.Tenant, User: t.User, Thread: t.ID}
}

// volumeWork has one thing at a time done with the volume's folder of a thread.
type volumeWork struct {
	mu  sync.Mutex
	now map[sandbox.Thread]*volumeTurn
}

// volumeTurn is one use of a thread's folder on its volume.
type volumeTurn struct {
	done chan struct{}
	err  error
}

// begin returns the round that goes on, or a new one that is the caller's to end.
func (w *volumeWork) begin(t sandbox.Thread) (x *volumeTurn, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.now[t]; x != nil {
		return x, false
	}
	if w.now == nil {
		w.now = map[sandbox.Thread]*volumeTurn{}
	}
	x = &volumeTurn{done: make(chan struct{})}
	w.now[t] = x
	return x, true
}

func (w *volumeWork) end(t sandbox.Thread, x *volumeTurn, err error) {
	w.mu.Lock()
	delete(w.now, t)
	w.mu.Unlock()
	x.err = err
	close(x.done)
}

// alone calls do while no other goroutine works on the folder.
func (w *volumeWork) alone(ctx context.Context, t sandbox.Thread, do func() error) error {
	for {
		x, mine := w.begin(t)
		if mine {
			err := do()
			w.end(t, x, err)
			return err
		}
		if err := x.wait(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
}

func (x *volumeTurn) wait(ctx context.Context) error {
	select {
	case <-x.done:
		return x.err
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the thread's files are being copied from its user's volume; try again")
	}
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
	return r.volumeWork.alone(ctx, inst.Thread, func() error { return r.makeOnVolume(ctx, inst) })
}

func (r *Orchestrator) makeOnVolume(ctx context.Context, inst *instance.Instance) error {
	state, err := r.volumeState(inst.Thread)
	if err != nil {
		return err
	}
	if state == nil { // before there is a folder, so that a thread which is deleted has it deleted
		state = &volumeState{}
		if err := r.rememberVolume(inst.Thread, *state); err != nil {
			return err
		}
	}
	spec := r.spec(inst)
	spec.Volume = volumeOf(inst.Thread)
	spec.Volume.Ahead = state.Ahead
	if _, err := r.o.Driver.Create(ctx, spec); err != nil {
		return err
	}
	inst.FileSync.Files.Add(state.Due...)
	inst.FileSync.Opened(!state.Ahead)
	if len(state.Due) > 0 {
		if err := r.upToDate(ctx, inst); err != nil {
			return err
		}
	}
	// Nothing ran until now: before that the server's folder counts, if it did.
	return r.rememberVolume(inst.Thread, volumeState{Ahead: true})
}

// owe notes what the server changed in a thread without a sandbox whose volume was ahead by then.
func (r *Orchestrator) owe(t sandbox.Thread, paths []string) error {
	if len(paths) == 0 || r.volumes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, cleanupTimeout)
	defer cancel()
	return r.volumeWork.alone(ctx, t, func() error {
		state, err := r.volumeState(t)
		if err != nil || state == nil || !state.Ahead {
			return err
		}
		state.Due = append(state.Due, paths...)
		slices.Sort(state.Due)
		state.Due = slices.Compact(state.Due)
		if len(state.Due) > filesync.MaxDue {
			return sandbox.Errorf(sandbox.Unavailable, "%d changes wait for the user's volume; start a sandbox of the thread first", filesync.MaxDue)
		}
		return r.rememberVolume(t, *state)
	})
}

// bringKept is bringToRead for a thread that is on a volume.
func (r *Orchestrator) bringKept(ctx context.Context, t sandbox.Thread) error {
	for {
		inst := r.find(t)
		if inst == nil {
			if again, err := r.fetch(ctx, t); !again || err != nil {
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
					return unreadable(err)
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

// fetch makes the server's folder of a thread without a sandbox what its volume has. again: another goroutine worked on the
// volume meanwhile. It goes on when the caller gives up, who then finds it done.
func (r *Orchestrator) fetch(ctx context.Context, t sandbox.Thread) (again bool, err error) {
	state, err := r.volumeState(t)
	if err != nil || state == nil || !state.Ahead {
		return false, err
	}
	x, mine := r.volumeWork.begin(t)
	if mine {
		r.wg.Go(func() { r.volumeWork.end(t, x, r.fetchNow(t)) })
	}
	return true, x.wait(ctx)
}

var errHasSandbox = sandbox.Errorf(sandbox.Unavailable, "the thread's sandbox is starting; try again")

func (r *Orchestrator) fetchNow(t sandbox.Thread) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.o.StartTime+filesync.PullTime)
	defer cancel()
	if r.find(t) != nil {
		return errHasSandbox
	}
	state, err := r.volumeState(t)
	if err != nil || state == nil || !state.Ahead {
		return err
	}
	return r.withFolder(ctx, t, func(spec sandbox.Spec, own *ownership.Ownership) error {
		began := time.Now()
		if _, err := r.o.Driver.Create(ctx, spec); err != nil {
			return err
		}
		defer r.endFiles(spec.ID)
		if len(state.Due) > 0 {
			if err := r.remote.Push(ctx, spec.ID, state.Due...); err != nil {
				return err
			}
		}
		if _, err := r.remote.Pull(ctx, spec.ID); err != nil {
			if errors.Is(err, sandbox.Conflict) {
				return sandbox.Wrap(sandbox.Internal, err, "the thread's files are not on its user's volume, which must be another one than it was")
			}
			return unreadable(err)
		}
		if !r.owners.Confirm(own) {
			return ownership.NotHere(&ownership.Elsewhere{})
		}
		r.o.Log.Info("files fetched from a volume", "thread", t.String(), "ms", time.Since(began).Milliseconds())
		return r.rememberVolume(t, volumeState{})
	})
}

// withFolder holds a thread, and returns the Spec of a sandbox that has its files on the volume, and nothing else.
func (r *Orchestrator) withFolder(ctx context.Context, t sandbox.Thread, use func(sandbox.Spec, *ownership.Ownership) error) error {
	uid, err := workspace.UID(r.folders.Dir(t))
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	own, err := r.owners.Acquire(ctx, t, "")
	if err != nil {
		return ownership.NotHere(err)
	}
	defer r.owners.Release(own)
	tmpl := r.o.Templates[r.o.Default]
	if saved := r.Specs.Read(t); saved != nil {
		if named, ok := r.o.Templates[saved.Template]; ok {
			tmpl = named
		}
	}
	v := volumeOf(t)
	v.Ahead, v.Bare = true, true
	return use(sandbox.Spec{
		ID: sandbox.NewID(), Image: tmpl.Image, Runtime: tmpl.Runtime, UID: uid, Daemon: r.o.Daemon, Limits: tmpl.Limits, Volume: v,
		Token:  own.Token.Load(),
		Mounts: []sandbox.Mount{{Source: r.folders.Dir(t), Target: sandbox.UserDataDir}},
		Labels: map[string]string{
			sandbox.LabelInstall: r.o.Install, sandbox.LabelRole: sandbox.RoleFiles, sandbox.LabelReplica: r.peers.ID(),
			sandbox.LabelTenant: t.Tenant, sandbox.LabelUser: t.User, sandbox.LabelThread: t.ID,
		},
	}, own)
}

// endFiles removes a sandbox that had files alone.
func (r *Orchestrator) endFiles(id sandbox.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), removeTimeout)
	defer cancel()
	if err := errors.Join(r.remote.Detach(ctx, id), r.o.Driver.Remove(ctx, id)); err != nil {
		r.o.Log.Warn("a sandbox for files alone was not removed; tried again later", "sandbox", string(id), "error", err)
	}
}

// filesAge is how old a sandbox for files alone may be: one that is older was left behind by a server that ended.
const filesAge = 10 * time.Minute

// leftForFiles reports whether a sandbox was made for files alone, and no caller can be waiting for it any more.
func (r *Orchestrator) leftForFiles(entry sandbox.Instance) bool {
	return entry.Labels[sandbox.LabelRole] == sandbox.RoleFiles &&
		(!r.peers.Alive(entry.Labels[sandbox.LabelReplica]) || time.Since(entry.CreatedAt) > filesAge)
}

// deleteFolder deletes what a thread that is being deleted has on a volume.
func (r *Orchestrator) deleteFolder(ctx context.Context, t sandbox.Thread) error {
	if r.volumes == nil {
		return nil
	}
	ctx, cancel := deadline.Detached(ctx, r.o.StartTime+filesync.PullTime)
	defer cancel()
	return r.volumeWork.alone(ctx, t, func() error {
		state, err := r.volumeState(t)
		if err != nil || state == nil {
			return err
		}
		err = r.withFolder(ctx, t, func(spec sandbox.Spec, _ *ownership.Ownership) error { return r.volumes.RemoveFolder(ctx, spec) })
		if err != nil {
			return err
		}
		if err := os.Remove(r.volumeFile(t)); err != nil {
			return fmt.Errorf("volume of thread: %w", err)
		}
		return lockedfile.SyncDir(filepath.Dir(r.volumeFile(t)))
	})
}
