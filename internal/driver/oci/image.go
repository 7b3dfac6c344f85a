package oci

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// image is a root file system that is ready to be mounted.
type image struct {
	rootfs        string
	passwd, group []byte // its own, nil when it has none
}

// maxEtcBytes bounds the passwd and group of an image, which are copied for each sandbox.
const maxEtcBytes = 1 << 20

// imageKey names a folder for good: a folder that was replaced under its name is prepared anew.
type imageKey struct {
	path     string
	dev, ino uint64
}

// imagePreparer makes the mount points in unpacked images, once each.
type imagePreparer struct {
	mu    sync.Mutex
	ready map[imageKey]image
}

// prepare returns the image in dir with every mount point in place. NotFound: dir is no folder.
// NotSupported: the image leaves no room for a mount point.
func (p *imagePreparer) prepare(dir string) (image, error) {
	if !path.IsAbs(dir) || path.Clean(dir) == "/" {
		return image{}, sandbox.Errorf(sandbox.NotFound, "the template's image is not an unpacked image on this host")
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return image{}, sandbox.Wrap(sandbox.NotFound, err, "the template's image is not on this host")
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return image{}, sandbox.Errorf(sandbox.Internal, "the template's image cannot be identified")
	}
	key := imageKey{path: path.Clean(dir), dev: uint64(stat.Dev), ino: stat.Ino}

	p.mu.Lock()
	defer p.mu.Unlock()
	if img, ok := p.ready[key]; ok {
		return img, nil
	}
	img, err := prepareImage(key.path)
	if err != nil {
		return image{}, err
	}
	if p.ready == nil {
		p.ready = make(map[imageKey]image)
	}
	p.ready[key] = img
	return img, nil
}

// ImageNow implements driver.ImageTeller. A folder that was replaced under its name is another image; one whose files
// were changed in place is not, and its sandboxes see the change.
func (d *Driver) ImageNow(_ context.Context, dir string) (string, error) {
	if dir == "" {
		return "host", nil
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", sandbox.Wrap(sandbox.NotFound, err, "the template's image is not on this host")
	}
	return fmt.Sprintf("%d:%d:%d:%d.%d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}

func prepareImage(dir string) (image, error) {
	// os.Root: a link in the image that leads out of it must not make files on the host.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return image{}, sandbox.Wrap(sandbox.NotFound, err, "the template's image cannot be opened")
	}
	defer root.Close() //nolint:errcheck // nothing was written through this handle itself
	if err := ociconfig.MakeMountPoints(root); err != nil {
		return image{}, err
	}
	img := image{rootfs: dir}
	if img.passwd, err = readSmall(root, "etc/passwd"); err == nil {
		img.group, err = readSmall(root, "etc/group")
	}
	if err != nil {
		return image{}, sandbox.Wrap(sandbox.NotSupported, err, "the template's image has an unreadable passwd or group")
	}
	return img, nil
}

// makeMountPointsOf makes the places of a Spec's own mounts in an image.
func (i image) makeMountPointsOf(spec sandbox.Spec) error {
	root, err := os.OpenRoot(i.rootfs)
	if err != nil {
		return sandbox.Wrap(sandbox.NotFound, err, "the template's image cannot be opened")
	}
	defer root.Close() //nolint:errcheck // nothing was written through this handle itself
	return ociconfig.MakeMountPointsOf(root, spec, nil)
}

// checkPassable reports, as a NotSupported error, that a folder on the way to the root file system lets only its owner
// by. In a user namespace of the sandbox's own the runtime is not that.
func checkPassable(rootfs string) error {
	dir, err := filepath.EvalSymlinks(rootfs)
	for err == nil && dir != "/" {
		var info fs.FileInfo
		if info, err = os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			return sandbox.Errorf(sandbox.NotSupported, "the template's image lies in a folder that others may not pass: the folders above it, and its own, need the mode 711")
		}
		dir = filepath.Dir(dir)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.NotFound, err, "the template's image cannot be opened")
	}
	return nil
}

func readSmall(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxEtcBytes+1))
	if err == nil && len(data) > maxEtcBytes {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxEtcBytes)
	}
	if len(data) == 0 {
		data = nil
	}
	return data, err
}
