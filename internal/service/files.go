package service

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// View runs read with the thread's files and returns its result.
func View[T any](ctx context.Context, files Files, c sandbox.Caller, thread string, read func(*paths.FS) (T, error)) (out T, err error) {
	err = files.ReadFiles(ctx, c, thread, func(f *paths.FS) error {
		var err error
		out, err = read(f)
		return err
	})
	return out, err
}

// Put writes a file as a recorded change.
func Put(ctx context.Context, files Files, c sandbox.Caller, thread, path string, write func(*paths.FS) (paths.Written, error)) (w paths.Written, err error) {
	err = files.ChangeFiles(ctx, c, thread, audit.ActionFileWrite, path, func(f *paths.FS) (int64, error) {
		var err error
		w, err = write(f)
		return w.Added, err
	})
	return w, err
}
