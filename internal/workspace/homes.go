package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

const (
	// homePrefix begins the names of home folders among the folders of threads. No thread has such a name.
	homePrefix = ".home-"
	// homeFiles is the folder in one that its program writes. homeAbout says whose it is.
	homeFiles = "home"
	homeAbout = "about.json"
	// formerHomes is where homes were before they counted for their users.
	formerHomes = "mcp-homes"
	// maxAbout bounds homeAbout, which the server alone writes.
	maxAbout = 64 << 10
)

// sharedHomes is the owner of the homes of servers that all users share: no user has such a name.
var sharedHomes = sandbox.Owner{Tenant: ".mcp", User: "shared"}

// Home is the folder that an MCP server in a sandbox keeps from one start to the next.
type Home struct {
	Owner  sandbox.Owner `json:"-"` // whose server it is; empty for a server that all share
	Name   string        `json:"-"` // of the folder: the same name is the same folder
	Server string        `json:"server"`
	Thread string        `json:"thread,omitempty"` // of a server that one thread has
	Plugin bool          `json:"plugin,omitempty"` // the server came with a plugin
}

// Homes are the homes of a data folder. Each lies among the threads of its user: so it counts for that user,
// and the kernel bounds it as it bounds a thread.
type Homes struct{ f *Folders }

// Homes returns the homes of MCP servers in the data folder.
func (f *Folders) Homes() *Homes { return &Homes{f} }

// Threads is the folder, below "tenants", of the threads and homes of a user; of an empty owner, that of the
// homes of servers that all share.
func Threads(o sandbox.Owner) string {
	if o == (sandbox.Owner{}) {
		o = sharedHomes
	}
	return filepath.Join(o.Tenant, "users", o.User, "threads")
}

func (h *Homes) threads(o sandbox.Owner) string {
	return filepath.Join(h.f.o.DataDir, "tenants", Threads(o))
}

func (h *Homes) former(name string) string {
	return filepath.Join(h.f.o.DataDir, formerHomes, name)
}

// homeUID is the uid that owns a home. ErrNotExist: there is no such home.
func homeUID(top string) (int, error) { return ownerOf(filepath.Join(top, homeFiles)) }

// Open returns the folder of a home and the uid that owns it, made when it is missing, and bounds it: its
// program gets no space beyond so many bytes. A home that has more keeps it, and gets no further space.
func (h *Homes) Open(ctx context.Context, home Home, bytes int64) (dir string, uid int, err error) {
	if !filepath.IsLocal(home.Name) || filepath.Base(home.Name) != home.Name || home.Name == "." {
		return "", 0, sandbox.Errorf(sandbox.Internal, "a home folder cannot have the name %.100q", home.Name)
	}
	top := filepath.Join(h.threads(home.Owner), homePrefix+home.Name)
	uid, err = homeUID(top)
	if errors.Is(err, fs.ErrNotExist) {
		uid, err = h.make(ctx, home, top, bytes)
	}
	if err == nil {
		err = h.f.o.Disk.Limit(top, uid, bytes)
	}
	if err != nil {
		return "", 0, NoRoom(err, "the server's home folder cannot be made")
	}
	return filepath.Join(top, homeFiles), uid, nil
}

// make makes a home, with what the former one had.
func (h *Homes) make(ctx context.Context, home Home, top string, bytes int64) (int, error) {
	about, err := json.Marshal(home)
	if err != nil {
		return 0, err
	}
	former := h.former(home.Name)
	had, err := ownerOf(former)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if had > 0 {
		if err := fitsHome(ctx, former, bytes); err != nil {
			return 0, err
		}
	}
	uid, err := h.f.make(ctx, top, had, homeUID, func(files string, uid int) error {
		if err := os.WriteFile(filepath.Join(files, homeAbout), about, 0o600); err != nil {
			return err
		}
		into := filepath.Join(files, homeFiles)
		if err := errors.Join(os.Mkdir(into, 0o700), os.Lchown(into, uid, uid)); err != nil || had == 0 {
			return err
		}
		return quota.CopyTree(ctx, former, into)
	})
	if err != nil || had == 0 {
		return uid, err
	}
	if err := paths.RemoveAll(ctx, former); err != nil {
		h.f.o.Log.Warn("the former home folder of an MCP server is not deleted", "server", home.Server, "folder", former, "error", err)
	}
	return uid, nil
}

// fitsHome refuses to copy a former home that has more than its limit: other files of the user would pay for
// it.
func fitsHome(ctx context.Context, former string, bytes int64) error {
	used, err := paths.Measure(ctx, former)
	if err == nil && bytes > 0 && used.Bytes > bytes {
		err = sandbox.Errorf(sandbox.QuotaExceeded,
			"the home folder of the MCP server has %d bytes, and its limit is %d: an administrator has to delete files in <data>/%s",
			used.Bytes, bytes, filepath.Join(formerHomes, filepath.Base(former)))
	}
	return err
}

// Remove removes a home, wherever it is. A missing one is no error.
func (h *Homes) Remove(ctx context.Context, o sandbox.Owner, name string) error {
	top := filepath.Join(h.threads(o), homePrefix+name)
	return errors.Join(h.f.discard(ctx, top, homeUID), paths.RemoveAll(ctx, h.former(name)))
}

// RemoveOf removes the homes of the servers that a thread had for itself.
func (h *Homes) RemoveOf(ctx context.Context, t sandbox.Thread) error {
	return h.removeIf(ctx, h.threads(t.Owner), func(home Home) bool { return home.Thread == t.ID })
}

// Sweep removes the homes that no server has any more, as gone says of each.
func (h *Homes) Sweep(ctx context.Context, gone func(Home) bool) error {
	dirs, err := filepath.Glob(filepath.Join(h.f.o.DataDir, "tenants", "*", "users", "*", "threads"))
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, h.removeIf(ctx, dir, gone))
	}
	return errors.Join(append(errs, err)...)
}

func (h *Homes) removeIf(ctx context.Context, threads string, gone func(Home) bool) error {
	names, err := homesIn(threads)
	var errs []error
	for _, name := range names {
		home, err := readHome(threads, name)
		if err == nil && gone(home) {
			err = h.f.discard(ctx, filepath.Join(threads, homePrefix+name), homeUID)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, err)...)
}

// Measure returns the bytes of all homes of a user, or, with an error, what was counted until then.
func (h *Homes) Measure(ctx context.Context, o sandbox.Owner) (int64, error) {
	threads := h.threads(o)
	names, err := homesIn(threads)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, name := range names {
		used, err := paths.Measure(ctx, filepath.Join(threads, homePrefix+name, homeFiles))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is being removed
		}
		if errors.Is(err, sandbox.QuotaExceeded) {
			home, _ := readHome(threads, name) // without its name it is still one
			return sum + used.Bytes, sandbox.Wrap(sandbox.QuotaExceeded, err, "the home of the MCP server %q has folders so deep that they cannot be counted: remove the server", home.Server)
		}
		if err != nil {
			return 0, err
		}
		sum += used.Bytes
	}
	return sum, nil
}

// homesIn lists the names of homes among threads.
func homesIn(threads string) ([]string, error) {
	entries, err := os.ReadDir(threads)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), homePrefix); ok && e.IsDir() {
			names = append(names, name)
		}
	}
	return names, nil
}

// readHome reads whose a home is.
func readHome(threads, name string) (Home, error) {
	path := filepath.Join(threads, homePrefix+name, homeAbout)
	info, err := os.Lstat(path)
	if err != nil {
		return Home{}, err
	}
	if info.Size() > maxAbout {
		return Home{}, fmt.Errorf("%s is larger than %d bytes", path, maxAbout)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Home{}, err
	}
	home := Home{Name: name}
	if err := json.Unmarshal(text, &home); err != nil {
		return Home{}, fmt.Errorf("%s: %w", path, err)
	}
	user := filepath.Dir(threads)
	tenant := filepath.Dir(filepath.Dir(user))
	home.Owner = sandbox.Owner{Tenant: filepath.Base(tenant), User: filepath.Base(user)}
	if home.Owner == sharedHomes {
		home.Owner = sandbox.Owner{}
	}
	return home, nil
}

// emptied are the folders of a thread, or of a home, that code fills.
func emptied() []string { return append(slices.Clone(Names), homeFiles) }
