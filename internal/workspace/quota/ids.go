package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// Kinds of quota, commands and structures of <linux/quota.h> and <linux/fs.h>.
const (
	userQuota    = 0
	projectQuota = 2
	quotaGet     = 0x800007 // Q_GETQUOTA
	quotaSet     = 0x800008 // Q_SETQUOTA
	blockSize    = 1024     // of limits
	validLimits  = 1 | 4    // QIF_BLIMITS | QIF_ILIMITS

	getXattr      = 0x801c581f // FS_IOC_FSGETXATTR
	setXattr      = 0x401c5820 // FS_IOC_FSSETXATTR
	inheritFlag   = 0x200      // FS_XFLAG_PROJINHERIT
	firstProject  = 1_000_000  // above what people assign by hand
	projectsLock  = ".projects.lock"
	projectsTime  = 10 * time.Second // bounds the wait for other servers that set a project
	convertedMark = ".counted"       // beside the folder of a user's threads: all that is in it has the project
)

type ifDqblk struct {
	BHard, BSoft, Space, IHard, ISoft, Inodes, BTime, ITime uint64
	Valid                                                   uint32
	_                                                       uint32
}

type fsXattr struct {
	Flags, ExtSize, Nextents, Project, CowExtSize uint32
	_                                             [8]byte
}

// ids counts a thread by the uid of its files and a user by project.
type ids struct {
	root string
	fs   string
}

func newIDs(root, fs string) (*ids, error) {
	q := &ids{root: root, fs: fs}
	for kind, name := range map[int]string{userQuota: "usrquota", projectQuota: "prjquota"} {
		var have ifDqblk
		if err := q.quota(kind, quotaGet, 0, &have); err != nil {
			switch {
			case errors.Is(err, unix.ENOSYS):
				return nil, errors.New("kernels before 5.14 have no way to set quotas by folder")
			case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOTSUP):
				return nil, fmt.Errorf("the %s of the data folder does not count by uid and project (mounted without %s)", fs, name)
			}
			return nil, fmt.Errorf("quotas of the data folder: %w", err)
		}
	}
	return q, nil
}

func (q *ids) String() string { return q.fs + " quotas (uid and project)" }

// quota is quotactl_fd for the file system of the root.
func (q *ids) quota(kind, command, id int, d *ifDqblk) error {
	f, err := os.Open(q.root)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only a handle
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), uintptr(command<<8|kind), uintptr(id), uintptr(unsafe.Pointer(d)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (q *ids) setLimits(kind, id int, l Limits) error {
	blocks := (uint64(l.Bytes) + blockSize - 1) / blockSize //nolint:gosec // not negative
	files := uint64(l.Files)                                //nolint:gosec // not negative
	d := ifDqblk{BHard: blocks, IHard: files, Valid: validLimits}
	if err := q.quota(kind, quotaSet, id, &d); err != nil {
		return fmt.Errorf("set a quota: %w", err)
	}
	return nil
}

func (q *ids) makeUser(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // sandboxes pass through it
		return err
	}
	if project, err := projectOf(dir); err != nil || project != 0 {
		return err
	}
	empty, err := isEmpty(dir)
	if err != nil {
		return err
	}
	if err := q.giveProject(dir); err != nil {
		return err
	}
	if empty {
		return os.WriteFile(mark(dir), nil, 0o600)
	}
	return nil
}

func mark(dir string) string { return filepath.Join(filepath.Dir(dir), convertedMark) }

func isEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // only read
	names, _ := f.Readdirnames(1)
	return len(names) == 0, nil
}

// giveProject sets on the folder of a user's threads a project that no other has. What is made in it from
// then on inherits it.
func (q *ids) giveProject(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), projectsTime)
	defer cancel()
	lock, err := lockedfile.WaitLock(ctx, filepath.Join(q.root, projectsLock))
	if err != nil {
		return err
	}
	defer lock.Unlock()                                       //nolint:errcheck // the process that reads it next finds what was written
	if have, err := projectOf(dir); err != nil || have != 0 { // another server was first
		return err
	}
	last := uint32(firstProject)
	dirs, err := filepath.Glob(filepath.Join(q.root, "*", "users", "*", "threads"))
	if err != nil {
		return err
	}
	for _, other := range dirs {
		if n, err := projectOf(other); err == nil && n > last {
			last = n
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only a handle
	return setProject(f, last+1)
}

func projectOf(dir string) (uint32, error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	x, err := xattr(f)
	return x.Project, err
}

func xattr(f *os.File) (x fsXattr, err error) {
	return x, ioctl(f, getXattr, unsafe.Pointer(&x))
}

// setProject puts an open file, or a folder and what will be made in it, into a project.
func setProject(f *os.File, project uint32) error {
	x, err := xattr(f)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	x.Project = project
	if info.IsDir() {
		x.Flags |= inheritFlag
	}
	return ioctl(f, setXattr, unsafe.Pointer(&x))
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}

func (q *ids) makeThread(dir string) error {
	return os.Mkdir(dir, 0o755) //nolint:gosec // code of the sandbox, with a uid of its own, passes through it
}

func (q *ids) limit(_, userDir string, uid int, thread, user Limits) error {
	project, err := projectOf(userDir)
	if err != nil {
		return err
	}
	if err := q.setLimits(userQuota, uid, thread); err != nil {
		return err
	}
	if project == 0 {
		return errors.New("the folder of the user's threads has no project")
	}
	return q.setLimits(projectQuota, int(project), user)
}

// pass sets on the folder the project of the user's: the kernel renames nothing from one project into another.
func (q *ids) pass(ctx context.Context, dir, userDir string) error {
	project, err := projectOf(userDir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only a handle
	return putAll(ctx, root, project, putDepth)
}

func (q *ids) drop(dir string, uid int) error {
	err := os.RemoveAll(dir)
	if uid <= 0 { // root's quota is none of ours
		return err
	}
	return errors.Join(err, q.setLimits(userQuota, uid, Limits{}))
}

// convert puts all that is in the folder of a user's threads into the user's project. Uids count by
// themselves. What code in a live sandbox makes meanwhile inherits the project, or is found by the walk.
func (q *ids) convert(ctx context.Context, dir string, _ bool) error {
	if _, err := os.Lstat(mark(dir)); err == nil {
		return nil
	}
	if err := q.giveProject(dir); err != nil {
		return err
	}
	project, err := projectOf(dir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only a handle
	if err := putAll(ctx, root, project, putDepth); err != nil {
		return err
	}
	return os.WriteFile(mark(dir), nil, 0o600)
}

// putDepth is how deep putAll goes: each level takes descriptors, and code nests folders a hundred thousand
// deep. What lies deeper counts for its thread only, by its uid.
const putDepth = 500

// putAll puts the regular files and folders below root into a project. The files are hostile: each folder
// is opened relative to the one above it, links are not followed, and nothing that could wait is opened.
func putAll(ctx context.Context, root *os.Root, project uint32, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	list, err := root.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()                                //nolint:errcheck // only a handle
	if err := setProject(list, project); err != nil { // first, so that what is made from now on inherits it
		return err
	}
	for {
		entries, err := list.ReadDir(256)
		for _, e := range entries {
			if err := putOne(ctx, root, e, project, depth); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err != nil {
			break // at the end, or the folder went away
		}
	}
	return nil
}

func putOne(ctx context.Context, root *os.Root, e os.DirEntry, project uint32, depth int) error {
	switch {
	case e.IsDir() && depth == 0:
		return nil
	case e.IsDir():
		sub, err := root.OpenRoot(e.Name() + "/.")
		if err != nil {
			return err
		}
		defer sub.Close() //nolint:errcheck // only a handle
		return putAll(ctx, sub, project, depth-1)
	case e.Type().IsRegular():
		f, err := root.OpenFile(e.Name(), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only a handle
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return err
		}
		return setProject(f, project)
	}
	return nil
}
