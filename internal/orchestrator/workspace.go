package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// firstUID is where the host uids of workspaces begin: above every login, system and subordinate
// uid that a distribution hands out by default.
const firstUID = 1_000_000

// workspaceFolders are the folders of a thread that its code may write.
var workspaceFolders = []string{"workspace", "uploads", "outputs"}

// workspaceUID is the uid that owns the thread's files. ErrNotExist: the thread has none yet.
func workspaceUID(dir string) (int, error) {
	info, err := os.Lstat(filepath.Join(dir, workspaceFolders[0]))
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || st.Uid < firstUID {
		return 0, fmt.Errorf("workspace folder of the thread is not a folder with a uid of its own")
	}
	return int(st.Uid), nil
}

// ensureThread makes the thread's record and folders when they are missing, and returns its uid. The
// owner of the workspace folder is the truth of the uid, so the folder appears by one rename, whole.
func (r *Orchestrator) ensureThread(ctx context.Context, t sandbox.Thread) (int, error) {
	dir := r.threadDir(t)
	if err := r.restoreSnapshot(ctx, t, false); err != nil {
		return 0, err
	}
	uid, err := workspaceUID(dir)
	if errors.Is(err, fs.ErrNotExist) {
		uid, err = r.makeWorkspace(ctx, dir, makeFolders)
	}
	if err != nil {
		var known *sandbox.Error
		if errors.As(err, &known) {
			return 0, err
		}
		return 0, noRoom(err, "the thread's files cannot be opened")
	}
	_, err = r.ensureRecord(ctx, t)
	return uid, err
}

// ensureRecord makes the thread's record when it is missing.
func (r *Orchestrator) ensureRecord(ctx context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error) {
	info, err := r.o.Store.Thread(ctx, t)
	if errors.Is(err, sandbox.NotFound) {
		now := time.Now().UTC()
		info = sandbox.ThreadInfo{Thread: t, Labels: map[string]string{}, CreatedAt: now, LastActiveAt: now}
		err = r.o.Store.PutThread(ctx, info)
	}
	return info, err
}

// makeFolders makes those of workspaceFolders that are missing.
func makeFolders(files string, uid int) error {
	for _, name := range workspaceFolders {
		p := filepath.Join(files, name)
		err := os.Mkdir(p, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err := errors.Join(err, os.Lchown(p, uid, uid)); err != nil {
			return err
		}
	}
	return nil
}

// makeWorkspace makes the folder of a thread, whole: fill makes what is in it.
func (r *Orchestrator) makeWorkspace(ctx context.Context, dir string, fill func(files string, uid int) error) (int, error) {
	parent := filepath.Dir(dir)
	if err := r.o.Disk.MakeUser(parent); err != nil {
		return 0, err
	}
	uid, err := r.o.Store.NextUID(ctx, firstUID)
	if err != nil {
		return 0, err
	}
	stage, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(stage)
	files := filepath.Join(stage, "files")
	if err := r.o.Disk.MakeThread(files); err != nil {
		return 0, err
	}
	if err := fill(files, uid); err != nil {
		return 0, err
	}
	err = os.Rename(files, dir)
	if err == nil {
		return uid, lockedfile.SyncDir(parent)
	}
	// Another request made it first; its uid counts.
	if made, e := workspaceUID(dir); e == nil {
		return made, r.o.Disk.Drop(files, uid)
	}
	return 0, err
}

// exists reports whether the caller has such a thread, as NotFound when not.
func (r *Orchestrator) exists(t sandbox.Thread) error {
	_, err := workspaceUID(r.threadDir(t))
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.NotFound, "there is no thread %q", t.ID)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	return nil
}
