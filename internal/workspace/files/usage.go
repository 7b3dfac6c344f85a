package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// Meter measures the files of threads, and the home folders of users' MCP servers.
type Meter struct {
	dataDir string
	folders *workspace.Folders
}

// NewMeter measures the folders of a data folder.
func NewMeter(dataDir string, folders *workspace.Folders) *Meter { return &Meter{dataDir, folders} }

// Used returns the bytes of the files of a user, homes of MCP servers included, or of all users of a tenant
// when user is "". QuotaExceeded: the user has files that lie too deep to be counted. Of a tenant those are left
// out: one user must not stop the others, nor tell them the names of its threads.
func (m *Meter) Used(ctx context.Context, tenant, user string) (int64, error) {
	users := []string{user}
	if user == "" {
		var err error
		if users, err = folders(filepath.Join(m.dataDir, "tenants", tenant, "users")); err != nil {
			return 0, err
		}
	}
	var sum int64
	for _, u := range users {
		owner := sandbox.Owner{Tenant: tenant, User: u}
		threads, err := folders(filepath.Dir(m.folders.Dir(sandbox.Thread{Owner: owner, ID: "any"})))
		if err != nil {
			return 0, err
		}
		for _, id := range threads {
			t := sandbox.Thread{Owner: owner, ID: id}
			if sandbox.CheckThreadID(id) != nil || errors.Is(m.folders.Exists(t), sandbox.NotFound) {
				continue // being made, or deleted
			}
			used, err := m.Thread(ctx, t)
			var deep *sandbox.Error
			switch {
			case err == nil, errors.Is(m.folders.Exists(t), sandbox.NotFound):
			case user == "" && errors.Is(err, sandbox.QuotaExceeded):
			case errors.Is(err, sandbox.QuotaExceeded) && errors.As(err, &deep):
				return 0, sandbox.Wrap(sandbox.QuotaExceeded, err, "thread %q: %s", id, deep.Detail)
			default:
				return 0, err
			}
			sum += used.Bytes
		}
		homes, err := m.folders.Homes().Measure(ctx, owner)
		if err != nil && (user != "" || !errors.Is(err, sandbox.QuotaExceeded)) {
			return 0, err
		}
		sum += homes
	}
	return sum, nil
}

// Thread measures the files of one thread. Skills, plugins and wrappers are not its.
func (m *Meter) Thread(ctx context.Context, t sandbox.Thread) (sandbox.DiskUsage, error) {
	view, err := paths.New(paths.Options{Mounts: []paths.Mount{{Virtual: sandbox.UserDataDir, Host: m.folders.Dir(t)}}})
	if err != nil {
		return sandbox.DiskUsage{}, err
	}
	defer view.Close() //nolint:errcheck // only closes folders that were read
	return view.Usage(ctx)
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
