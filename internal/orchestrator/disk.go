package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// stageAge is how old the beginning of a thread's folder must be to be the rest of a server that died.
const stageAge = time.Hour

// bound sets the disk quota of a thread's folder.
func (r *Orchestrator) bound(t sandbox.Thread, uid int, bytes int64) error {
	if err := r.o.Disk.Limit(r.threadDir(t), uid, bytes); err != nil {
		return noRoom(err, "the thread's disk quota cannot be set")
	}
	return nil
}

// noRoom maps an error of making folders to its kind.
func noRoom(err error, otherwise string) error {
	var known *sandbox.Error
	switch {
	case errors.As(err, &known):
		return err
	case quota.Exceeded(err):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "there is no room for the thread's files")
	}
	return sandbox.Wrap(sandbox.Internal, err, "%s", otherwise)
}

// removeGrave deletes what a grave holds: the files of a thread that belonged to uid, at <grave>/files. Each
// folder is emptied by itself, because deep ones are moved about, and <grave>/files may be the top of a
// file system of its own.
func (r *Orchestrator) removeGrave(ctx context.Context, grave string, uid int) error {
	files := filepath.Join(grave, "files")
	var errs []error
	for _, name := range workspaceFolders {
		errs = append(errs, paths.RemoveAll(ctx, filepath.Join(files, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.Join(r.o.Disk.Drop(files, uid), paths.RemoveAll(ctx, grave))
}

// sweepGraves finishes what servers that died had begun to delete or to make: it counts for the user.
func (r *Orchestrator) sweepGraves() {
	dirs, err := filepath.Glob(filepath.Join(r.o.DataDir, "tenants", "*", "users", "*", "threads", ".*-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		name := filepath.Base(dir)
		if err != nil || !strings.HasPrefix(name, ".deleted-") && (!strings.HasPrefix(name, ".new-") || time.Since(info.ModTime()) < stageAge) {
			continue
		}
		uid, err := workspaceUID(filepath.Join(dir, "files"))
		if err != nil {
			uid = 0
		}
		if err := r.removeGrave(r.ctx, dir, uid); err != nil {
			r.o.Log.Warn("files of a deleted thread are not all deleted", "error", err)
		}
	}
}
