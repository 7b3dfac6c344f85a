package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/rename"
)

// Modes of Options.
const (
	Auto   = "auto"   // what is there: an image when one is there or has a size, else the kernel's quotas, else a first image, else nothing
	Kernel = "kernel" // the quotas of the data folder's file system, or no start
	Image  = "image"  // an image, or no start
	Off    = "off"    // no limits of the kernel's
)

// Limits bound one thread, or all threads of one user. 0: no limit.
type Limits struct {
	Bytes int64 // on disk, with what the file system needs for the files themselves
	Files int64 // inodes; on btrfs files are bounded by the bytes that they need
}

// bytesAFile is how many bytes of a limit come with one inode.
const bytesAFile = 4096

// minFiles is the least number of inodes of a limit.
const minFiles = 4096

// Of returns the limits for so many bytes: one inode for every 4 KiB, at least 4096. 0: no limit.
func Of(bytes int64) Limits {
	if bytes <= 0 {
		return Limits{}
	}
	return Limits{Bytes: bytes, Files: max(bytes/bytesAFile, minFiles)}
}

// Options say what Open makes.
type Options struct {
	Data       string // folder of everything that is kept; the threads are below <Data>/tenants
	Mode       string // Auto, Kernel, Image or Off
	ImageBytes int64  // size of the image, at least MinImage; 0: in Auto, without threads yet, a part of the free space
	UserBytes  int64  // of all threads of one user together; 0: no limit
	// Live says whether a sandbox of a thread of that user is running. It gets the folder of the user's
	// threads below tenants ("<tenant>/users/<user>/threads"). The user's files are not moved then. nil:
	// none is.
	Live func(threads string) bool
	Log  *slog.Logger
}

// State is what holds the limits.
type State struct {
	Enforced bool
	How      string // "btrfs image of 2048 MiB", "ext4 quotas"; or why there are none
}

// String returns one line for people.
func (s State) String() string {
	if s.Enforced {
		return "enforced by " + s.How
	}
	return "not enforced: " + s.How
}

// enforcer is a way of the kernel's. Folders are absolute, on its file system, and owned by root; none of
// its calls follows what code in a sandbox could have made.
type enforcer interface {
	// makeUser makes the folder of a user's threads, whose parent is there. An existing folder is no error.
	makeUser(dir string) error
	// makeThread makes an empty folder in the folder of a user's threads, or in a folder of that.
	makeThread(dir string) error
	// limit sets the limits of a thread's folder, whose files belong to uid, and of its user.
	limit(dir, userDir string, uid int, thread, user Limits) error
	// pass lets the user of userDir have a thread's folder that is in another's, so that it can be renamed into
	// userDir.
	pass(ctx context.Context, dir, userDir string) error
	// drop frees what is kept about a thread, whose folder is empty but for folders, and removes it.
	drop(dir string, uid int) error
	// convert starts the counting of a folder of a user's threads that was made without this package. It is
	// called again for what is converted already. live: sandboxes have these files open.
	convert(ctx context.Context, dir string, live bool) error
}

// Volume is where the folders of threads are. It may be used by many goroutines at once; several servers
// may have one on one data folder. A nil one makes plain folders and sets no limits.
type Volume struct {
	o     Options
	root  string // <data>/tenants
	how   enforcer
	state State

	mu    sync.Mutex
	users map[string]bool    // folders of users' threads that makeUser has seen
	set   map[string]applied // by thread's folder: what limit has set last
}

type applied struct {
	uid          int
	thread, user Limits
}

// Open finds or makes what holds the limits, tries it, and converts what was there before. It needs root.
// An error says that Mode asks for more than there is, or that the folders of threads cannot be reached.
func Open(ctx context.Context, o Options) (*Volume, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	v := &Volume{o: o, root: filepath.Join(o.Data, "tenants"), users: map[string]bool{}, set: map[string]applied{}}
	if err := os.MkdirAll(v.root, 0o711); err != nil {
		return nil, fmt.Errorf("disk quota: %w", err)
	}
	unlock, err := lock(ctx, o.Data)
	if err != nil {
		return nil, fmt.Errorf("disk quota: %w", err)
	}
	defer unlock()
	image, err := v.openImage(ctx, o.ImageBytes, false)
	if err != nil {
		return nil, fmt.Errorf("disk quota: %w", err)
	}
	if o.Mode == Off {
		v.state.How = "switched off (disk_quota)"
		if v.how, err = find(v.root); err == nil { // folders keep the form that they have; their limits go
			return v, nil
		}
		v.how = nil
		return v, nil
	}
	err = v.try()
	if err != nil && image == "" && o.Mode == Auto {
		if image, err = v.firstImage(ctx, err); err == nil {
			err = v.try()
		}
	}
	switch {
	case err == nil && image != "":
		v.state = State{Enforced: true, How: image}
	case err == nil:
		v.state = State{Enforced: true, How: v.how.(fmt.Stringer).String()}
	case o.Mode == Auto && image == "":
		v.how = nil
		v.state.How = fmt.Sprintf("%v; the server bounds only what it writes itself. Mount the data folder with quotas, or set disk_image_mib", err)
		o.Log.Warn("disk quota", "state", v.state.String())
		return v, nil
	default:
		return nil, fmt.Errorf("disk quota: %w", err)
	}
	o.Log.Info("disk quota", "state", v.state.String())
	return v, v.convert(ctx)
}

// try finds the way of the file system that the threads are on, and makes sure of it.
func (v *Volume) try() (err error) {
	if v.how, err = find(v.root); err != nil {
		return err
	}
	return probe(v.how, v.root)
}

// State says what holds the limits.
func (v *Volume) State() State { return v.state }

// convert makes what was there before countable.
func (v *Volume) convert(ctx context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(v.root, "*", "users", "*", "threads"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		rel, err := filepath.Rel(v.root, dir)
		if err != nil {
			return err
		}
		live := v.o.Live != nil && v.o.Live(rel)
		if err := v.how.convert(ctx, dir, live); err != nil {
			return fmt.Errorf("disk quota: the threads of %s cannot be counted: %w", rel, err)
		}
	}
	return nil
}

// MakeUser makes the folder of a user's threads, <data>/tenants/<tenant>/users/<user>/threads.
func (v *Volume) MakeUser(dir string) error {
	if v == nil || v.how == nil {
		return os.MkdirAll(dir, 0o711) //nolint:gosec // sandboxes pass through it
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.users[dir] {
		if _, err := os.Lstat(dir); err == nil {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	if err := v.how.makeUser(dir); err != nil {
		return err
	}
	v.users[dir] = true
	return nil
}

// MakeThread makes an empty folder for a thread's files in the folder of its user's threads, or in a
// folder of that. It can be renamed within.
func (v *Volume) MakeThread(dir string) error {
	if v == nil || v.how == nil {
		return os.Mkdir(dir, 0o755) //nolint:gosec // code of the sandbox, with a uid of its own, passes through it
	}
	return v.how.makeThread(dir)
}

// Pass moves the folder of a thread, with all that is in it and is bound to it, into the folder of another
// user's threads. It counts for that user's share from then on. os.ErrExist: there is something at the new
// place, and nothing has moved. Limit is to be called next.
func (v *Volume) Pass(ctx context.Context, dir, to string) error {
	if v != nil && v.how != nil {
		if err := v.how.pass(ctx, dir, filepath.Dir(to)); err != nil {
			return err
		}
	}
	if err := rename.NoReplace(dir, to); err != nil {
		return &os.LinkError{Op: "rename", Old: dir, New: to, Err: err}
	}
	return nil
}

// Limit sets how much the thread whose files are in dir and belong to uid may have, in bytes, and its
// user. It costs nothing when nothing has changed since it was called last. A thread that has more than its
// limit keeps it and gets no further space.
func (v *Volume) Limit(dir string, uid int, bytes int64) error {
	if v == nil || v.how == nil {
		return nil
	}
	want := applied{uid: uid, thread: Of(bytes), user: Of(v.o.UserBytes)}
	if v.o.Mode == Off {
		want.thread, want.user = Limits{}, Limits{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.set[dir] == want {
		return nil
	}
	err := v.how.limit(dir, filepath.Dir(dir), uid, want.thread, want.user)
	if errors.Is(err, errNotCounted) {
		v.o.Log.Warn("thread without a disk quota", "uid", uid, "error", err)
	} else if err != nil {
		return err
	}
	v.set[dir] = want
	return nil
}

// Forget lets Limit set the limits of dir again: its files go.
func (v *Volume) Forget(dir string) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.set, dir)
}

// Drop removes the folder of a thread and frees its quota. The folder may be at another place by now and is
// empty but for empty folders.
func (v *Volume) Drop(dir string, uid int) error {
	if v == nil || v.how == nil {
		return os.RemoveAll(dir)
	}
	return v.how.drop(dir, uid)
}

// Exceeded says whether an error is that of a limit, or of a full disk.
func Exceeded(err error) bool {
	return errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC)
}

// find returns the way of the file system that dir is on; an error says why there is none.
func find(dir string) (enforcer, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return nil, err
	}
	switch s.Type {
	case unix.EXT4_SUPER_MAGIC:
		return newIDs(dir, "ext4")
	case unix.XFS_SUPER_MAGIC:
		return newIDs(dir, "xfs")
	case unix.BTRFS_SUPER_MAGIC:
		return newBtrfs(dir)
	}
	return nil, errors.New("the data folder is on a file system without quotas for uids and projects (ext4, xfs and btrfs have them)")
}
