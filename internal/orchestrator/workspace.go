package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// ensureThread makes the thread's record and folders when they are missing, and returns its uid. The
// owner of the workspace folder is the truth of the uid, so the folder appears by one rename, whole.
func (r *Orchestrator) ensureThread(ctx context.Context, t sandbox.Thread) (int, error) {
	dir := r.folders.Dir(t)
	if err := r.restoreSnapshot(ctx, t, false); err != nil {
		return 0, err
	}
	uid, err := workspace.UID(dir)
	if errors.Is(err, fs.ErrNotExist) {
		uid, err = r.folders.Make(ctx, dir, workspace.Fill)
	}
	if err != nil {
		var known *sandbox.Error
		if errors.As(err, &known) {
			return 0, err
		}
		return 0, workspace.NoRoom(err, "the thread's files cannot be opened")
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
