package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

const (
	// A first image grows up to firstShare of the free space, at most firstMost bytes. Where that is less than
	// firstLeast there is none, because few threads of the default template would fit.
	firstShare = 4
	firstMost  = 64 << 30
	firstLeast = 1 << 30

	lockName = "disk.lock"
	lockTime = 5 * time.Minute // another server may be copying threads into an image
)

// firstImage makes the image of a data folder that has no threads yet and a file system whose quotas are
// not on, which is why: what bounds threads must not wait until an operator reads the log. It returns what
// openImage does, or why there is none.
func (v *Volume) firstImage(ctx context.Context, why error) (string, error) {
	size, err := firstSize(v.o.Data)
	if err != nil {
		return "", err
	}
	if size == 0 {
		return "", why
	}
	image, err := v.openImage(ctx, size, true)
	if err != nil {
		return "", fmt.Errorf("%w; %w", why, err)
	}
	v.o.Log.Info("the files of threads are in a disk image from now on, which bounds them: it takes space as they grow, and stays mounted when the server ends. "+
		"disk_image_mib sets another size and reserves it; disk_quota: off has no image and no bounds",
		"image", filepath.Join(v.o.Data, imageName), "mounted_at", v.root, "at_most_mib", size>>20)
	return image, nil
}

// firstSize is the size of the image that a data folder gets by itself; 0: it gets none.
func firstSize(data string) (int64, error) {
	at, err := nearest(data)
	if err != nil {
		return 0, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil {
		return 0, err
	}
	// What is in a tmpfs is memory, and of other file systems it is not known whether blocks go back to them.
	if os.Geteuid() != 0 || s.Type != unix.EXT4_SUPER_MAGIC && s.Type != unix.XFS_SUPER_MAGIC {
		return 0, nil
	}
	empty, err := isEmpty(filepath.Join(data, "tenants"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	if size := min(int64(s.Bavail)*s.Bsize/firstShare, firstMost) >> 20 << 20; size >= firstLeast && (empty || err != nil) {
		return size, nil
	}
	return 0, nil
}

// lock keeps other servers of the data folder from making, mounting or converting at the same time.
func lock(ctx context.Context, data string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	path := filepath.Join(data, lockName)
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	unlock, err = lockedfile.Lock(ctx, path)
	if errors.Is(err, lockedfile.ErrBusy) {
		return nil, errors.New("another server is preparing the disk image of this data folder")
	}
	return unlock, err
}
