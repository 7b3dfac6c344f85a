package quota

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of <linux/btrfs.h>.
const (
	subvolCreate = 0x5000940e
	snapDestroy  = 0x5000940f
	resize       = 0x50009403
	inoLookup    = 0xd0009412
	fsInfo       = 0x8400941f
	quotaCtl     = 0xc0109428
	qgroupAssign = 0x40189429
	qgroupCreate = 0x4010942a
	qgroupLimit  = 0x8030942b

	enableSimple = 4 // of quotaCtl
	enableFull   = 1
	limitBytes   = 1   // BTRFS_QGROUP_LIMIT_MAX_RFER
	topInode     = 256 // of the top folder of every subvolume
)

// volArgs is struct btrfs_ioctl_vol_args.
type volArgs struct {
	FD   int64
	Name [4088]byte
}

// limitArgs is struct btrfs_ioctl_qgroup_limit_args.
type limitArgs struct {
	Group, Flags, MaxReferenced, MaxExclusive, ReserveReferenced, ReserveExclusive uint64
}

// Levels of quota groups: a subvolume's own group is 0/<subvolume>, a thread's 1/<its subvolume>, and a user's
// 2/<the subvolume of its threads' folder>. With simple quotas, a subvolume that is made inside a thread's
// is in the thread's group, too.
const (
	threadLevel = 1
	userLevel   = 2
)

func group(level, id uint64) uint64 { return level<<48 | id }

// subvolumes counts by quota groups.
type subvolumes struct {
	root  string
	sysfs string // folder of the quota groups
}

func newBtrfs(root string) (*subvolumes, error) {
	var info [1024]byte
	if err := ask(root, fsInfo, unsafe.Pointer(&info)); err != nil {
		return nil, fmt.Errorf("btrfs: %w", err)
	}
	u := info[16:32] // after max_id and num_devices
	q := &subvolumes{root: root, sysfs: fmt.Sprintf("/sys/fs/btrfs/%x-%x-%x-%x-%x/qgroups", u[:4], u[4:6], u[6:8], u[8:10], u[10:])}
	if _, err := os.Stat(q.sysfs); err != nil {
		return nil, errors.New("the btrfs of the data folder has no quotas on (btrfs quota enable --simple)")
	}
	return q, nil
}

func (q *subvolumes) String() string { return "btrfs quota groups" }

// ask is an ioctl on a folder.
func ask(dir string, request uintptr, arg unsafe.Pointer) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only a handle
	return ioctl(f, request, arg)
}

// enableQuotas switches counting on, by the cheap way where the kernel has it (6.7).
func enableQuotas(root string) error {
	var err error
	for _, way := range []uint64{enableSimple, enableFull} {
		args := [2]uint64{way}
		if err = ask(root, quotaCtl, unsafe.Pointer(&args)); err == nil || errors.Is(err, unix.EEXIST) {
			return nil
		}
	}
	return fmt.Errorf("switch quotas on: %w", err)
}

// subvolume returns the number of the subvolume whose top is dir; 0: dir is an ordinary folder.
func subvolume(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return 0, &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Ino != topInode || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, nil
	}
	var args [4096]byte
	binary.NativeEndian.PutUint64(args[8:], topInode)
	if err := ask(dir, inoLookup, unsafe.Pointer(&args)); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(args[:]), nil
}

// inParent is an ioctl on the folder above dir, about dir.
func inParent(dir string, request uintptr) error {
	var args volArgs
	if name := filepath.Base(dir); copy(args.Name[:255], name) < len(name) {
		return unix.ENAMETOOLONG
	}
	return ask(filepath.Dir(dir), request, unsafe.Pointer(&args))
}

func (q *subvolumes) group(add bool, id uint64) error {
	args := [2]uint64{0, id}
	if add {
		args[0] = 1
	}
	err := ask(q.root, qgroupCreate, unsafe.Pointer(&args))
	if add && errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (q *subvolumes) assign(child, parent uint64) error {
	args := [3]uint64{1, child, parent}
	err := ask(q.root, qgroupAssign, unsafe.Pointer(&args))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (q *subvolumes) setLimit(id uint64, l Limits) error {
	args := limitArgs{Group: id, Flags: limitBytes, MaxReferenced: uint64(l.Bytes)} //nolint:gosec // not negative
	if l.Bytes == 0 {
		args.MaxReferenced = ^uint64(0) // takes the limit away
	}
	if err := ask(q.root, qgroupLimit, unsafe.Pointer(&args)); err != nil {
		return fmt.Errorf("set a quota: %w", err)
	}
	return nil
}

func (q *subvolumes) makeUser(dir string) error {
	id, err := subvolume(dir)
	if errors.Is(err, os.ErrNotExist) {
		id, err = q.make(dir, 0o711)
	}
	if err != nil || id == 0 { // 0: of a server without quotas, while sandboxes were live
		return err
	}
	return q.group(true, group(userLevel, id))
}

// make makes a subvolume, and returns its number.
func (q *subvolumes) make(dir string, mode os.FileMode) (uint64, error) {
	if err := inParent(dir, subvolCreate); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, err
	}
	if err := os.Chmod(dir, mode); err != nil {
		return 0, err
	}
	return subvolume(dir)
}

func (q *subvolumes) makeThread(dir string) error {
	id, err := q.make(dir, 0o755)
	if err != nil {
		return err
	}
	return q.join(id)
}

// join puts a subvolume into the group of its thread.
func (q *subvolumes) join(id uint64) error {
	if err := q.group(true, group(threadLevel, id)); err != nil {
		return err
	}
	return q.assign(id, group(threadLevel, id))
}

// errNotCounted says that a folder is of a server without quotas.
var errNotCounted = errors.New("the folder is not a subvolume: it is made one at a start of the server while the user has no sandbox")

func (q *subvolumes) limit(dir, userDir string, _ int, thread, user Limits) error {
	t, err := subvolume(dir)
	if err != nil {
		return err
	}
	u, err := subvolume(userDir)
	if err != nil {
		return err
	}
	if t == 0 || u == 0 {
		return errNotCounted
	}
	if err := q.assign(group(threadLevel, t), group(userLevel, u)); err != nil {
		return fmt.Errorf("count for the user: %w", err)
	}
	if err := q.setLimit(group(threadLevel, t), thread); err != nil {
		return err
	}
	return q.setLimit(group(userLevel, u), user)
}

// pass has nothing to do: a subvolume may be renamed to anywhere, and limit puts its group into the user's. Before
// the first limit it is in no quota group.
func (q *subvolumes) pass(context.Context, string, string) error { return nil }

func (q *subvolumes) drop(dir string, _ int) error {
	id, err := subvolume(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && id != 0 {
		if err = inParent(dir, snapDestroy); errors.Is(err, unix.ENOENT) { // another server was first
			err = nil
		}
	}
	q.sweep()
	return errors.Join(err, os.RemoveAll(dir))
}

// sweep removes the groups of threads whose subvolume no longer exists. One whose blocks are still being freed is
// refused by the kernel and found the next time.
func (q *subvolumes) sweep() {
	entries, err := os.ReadDir(q.sysfs)
	if err != nil {
		return
	}
	have := map[string]bool{}
	for _, e := range entries {
		have[e.Name()] = true
	}
	for name := range have {
		level, text, ok := strings.Cut(name, "_")
		id, err := strconv.ParseUint(text, 10, 48)
		if !ok || err != nil || have["0_"+text] && !q.unused(text) {
			continue
		}
		switch level {
		case "0":
			if id > topInode {
				_ = q.group(false, id) // refused while the subvolume is there
			}
		case "1":
			_ = q.group(false, group(threadLevel, id))
		}
	}
}

// unused says whether a subvolume's own group counts nothing: not even the one block of its top folder.
func (q *subvolumes) unused(id string) bool {
	raw, err := os.ReadFile(filepath.Join(q.sysfs, "0_"+id, "referenced"))
	return err == nil && bytes.Equal(bytes.TrimSpace(raw), []byte("0"))
}

// convert exchanges the folder of a user's threads, when it is an ordinary one, for a subvolume in which each
// thread is one. The blocks of files are copied, not shared: simple quotas count a block for its first writer. It does
// nothing while sandboxes have the files open.
func (q *subvolumes) convert(ctx context.Context, dir string, live bool) error {
	if id, err := subvolume(dir); err != nil || id != 0 || live {
		return err
	}
	stage := dir + ".counted"
	if err := q.discard(stage); err != nil { // of a server that was killed
		return err
	}
	u, err := q.make(stage, 0o711)
	if err != nil {
		return err
	}
	if err := q.group(true, group(userLevel, u)); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || isRest(e.Name()) {
			continue
		}
		to := filepath.Join(stage, e.Name())
		if err := q.makeThread(to); err != nil {
			return err
		}
		if err := CopyTree(ctx, filepath.Join(dir, e.Name()), to); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(unix.AT_FDCWD, stage, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return q.discard(stage)
}

// isRest tells by its name what a server that was killed had begun to make or to delete.
func isRest(name string) bool {
	return strings.HasPrefix(name, ".new-") || strings.HasPrefix(name, ".deleted-")
}

// discard removes a folder of threads, whichever way it was made.
func (q *subvolumes) discard(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	q.sweep()
	return nil
}

// CopyTree copies all that is in a folder into another one as it is: owners, modes, times, links, holes.
func CopyTree(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "cp", "-a", "--reflink=never", "--sparse=always", "--", from+"/.", to)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy: %w: %.300s", err, bytes.TrimSpace(out))
	}
	return nil
}
