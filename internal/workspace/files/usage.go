package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

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

// folders lists the folders in a folder, which may not be there.
func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
